package guard

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// maxRecord is the maximum length of one owner's record, in bytes: a quarter of what the API server allows for all annotations of an object.
// It has space for about 150 open breakers with their messages, and for more than 300 without.
const maxRecord = 64 << 10

// Record is what is stored about the breakers of one owner: a node class's machine faults and known images, or a node pool's pod faults.
type Record struct {
	Breakers []entry `json:"breakers,omitempty"`
	// Images are those of which a machine was initialized at least once.
	Images []string `json:"images,omitempty"`
}

// entry is a breaker as it is stored. Times are in seconds since 1970, durations in seconds.
type entry struct {
	Key     Key        `json:"key"`
	Cause   string     `json:"cause,omitempty"`
	Message string     `json:"message,omitempty"`
	Since   int64      `json:"since"`
	Closed  int64      `json:"closed,omitempty"`
	Next    int64      `json:"next,omitempty"`
	Failed  int        `json:"failed,omitempty"`
	Life    int64      `json:"life,omitempty"`
	Trial   bool       `json:"trial,omitempty"`
	Refused bool       `json:"refused,omitempty"` // for the text only: a new process has no Node to ask about
	Early   []int64    `json:"early,omitempty"`
	Members []Workload `json:"members,omitempty"`
	Tried   []string   `json:"tried,omitempty"`
	Probes  []string   `json:"probes,omitempty"`
}

// The most that a record holds of one breaker; mostImages is for the whole record.
const (
	mostMembers = 20      // workloads
	mostNames   = 1 << 10 // bytes of the members' names
	mostImages  = 16
	mostMessage = 160 // bytes
	mostFailed  = 32  // failed probes: the pause stops growing long before
)

// Owner is the object whose record holds the breakers of a key.
type Owner struct {
	Class, Pool string // one of them is set
}

func (o Owner) String() string { return Key{Class: o.Class, Pool: o.Pool}.String() }

// OwnerOf returns the owner of a key's record.
func OwnerOf(k Key) Owner {
	if k.Machine() {
		return Owner{Class: k.Class}
	}
	return Owner{Pool: k.Pool}
}

// Owners returns the owners that have anything to store.
func (g *Guard) Owners() map[Owner]bool {
	out := map[Owner]bool{}
	for k := range g.breakers {
		out[OwnerOf(k)] = true
	}
	for k := range g.known {
		out[OwnerOf(k)] = true
	}
	return out
}

// Encode returns the record of an owner, or "" if there is nothing to store. It changes no breaker: what a record has no space for is lost
// only to the next process. If a record is too long, Encode leaves out messages first, then closed breakers, the oldest first, and in the end
// the open ones that have been due for the longest time: there may be no pods left to probe them for.
func (g *Guard) Encode(o Owner, now time.Time) string {
	var r Record
	latest := func(a, b Key) int { return cmp.Or(g.known[b].Compare(g.known[a]), compareKeys(a, b)) }
	for _, k := range slices.SortedFunc(maps.Keys(g.known), latest) {
		if OwnerOf(k) == o && len(r.Images) < mostImages {
			r.Images = append(r.Images, k.Image)
		}
	}
	slices.Sort(r.Images)
	open, closed := g.of(o, now)
	if len(open)+len(closed)+len(r.Images) == 0 {
		return ""
	}
	all := slices.Concat(open, closed)
	for _, b := range all {
		r.Breakers = append(r.Breakers, entryOf(b))
	}
	text := encoded(r)
	if len(text) <= maxRecord {
		return text
	}
	r.Breakers = nil
	left := maxRecord - len(encoded(r)) - len(`"breakers":[],`)
	slices.SortStableFunc(open, func(a, b *Breaker) int { return b.Next.Compare(a.Next) })
	brief := map[*Breaker]entry{}
	for _, b := range append(open, closed...) {
		e := entryOf(b)
		e.Message = ""
		if n := len(encoded(e)) + len(","); n <= left {
			brief[b], left = e, left-n
		}
	}
	for _, b := range all { // in the same order as the next process
		if e, ok := brief[b]; ok {
			r.Breakers = append(r.Breakers, e)
		}
	}
	return encoded(r)
}

// encoded returns JSON for a record or an entry.
func encoded(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic("guard: a record does not marshal: " + err.Error()) // it has nothing that can fail
	}
	return string(text)
}

// of returns an owner's open breakers and those it only remembers, the latest first.
func (g *Guard) of(o Owner, now time.Time) (open, closed []*Breaker) {
	for _, b := range g.Breakers() {
		switch {
		case OwnerOf(b.Key) != o || b.Trial && !b.Probing(): // a breaker for a trial, of which no probe is under way, is not recorded: it is created anew when a workload needs it
		case b.Open():
			open = append(open, b)
		case now.Sub(b.Closed) < memory:
			closed = append(closed, b)
		}
	}
	slices.SortStableFunc(closed, func(a, b *Breaker) int { return b.Closed.Compare(a.Closed) })
	return open, closed
}

func entryOf(b *Breaker) entry {
	e := entry{
		Key: b.Key, Cause: b.Cause, Message: b.Message, Since: b.Since.Unix(), Next: b.Next.Unix(), Failed: b.Failed,
		Life: int64(b.Life / time.Second), Trial: b.Trial, Refused: b.Refused, Tried: b.Tried,
	}
	for _, name := range slices.Sorted(maps.Keys(b.probes)) {
		if b.probes[name] {
			e.Probes = append(e.Probes, name)
		}
	}
	names := 0
	for _, w := range b.Members[:min(len(b.Members), mostMembers)] {
		if names += len(w.Namespace) + len(w.Owner); names > mostNames {
			break
		}
		e.Members = append(e.Members, w)
	}
	if len(e.Message) > mostMessage {
		e.Message = strings.ToValidUTF8(e.Message[:mostMessage], "")
	}
	if !b.Closed.IsZero() {
		e.Closed = b.Closed.Unix()
	}
	for _, at := range b.Early {
		e.Early = append(e.Early, at.Unix())
	}
	return e
}

// Restore reads what an earlier process stored for an owner. What this process knows already is kept.
func (g *Guard) Restore(o Owner, text string) error {
	if text == "" {
		return nil
	}
	var r Record
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return fmt.Errorf("reading the record of the spending guard: %w", err)
	}
	for i := range r.Breakers {
		k := r.Breakers[i].Key
		if OwnerOf(k) != o {
			return fmt.Errorf("reading the record of the spending guard: breakers[%d].key: %s belongs to the record of %s, not here", i, k, OwnerOf(k))
		}
		if !k.valid() {
			return fmt.Errorf("reading the record of the spending guard: breakers[%d].key: %s is incomplete, or of two kinds", i, k)
		}
	}
	for _, image := range r.Images {
		if o.Class != "" {
			g.Know(o.Class, image)
		}
	}
	for i := range r.Breakers {
		if b := r.Breakers[i].breaker(); g.breakers[b.Key] == nil {
			b.Refused = false
			g.breakers[b.Key] = b
		}
	}
	return nil
}

func (e *entry) breaker() *Breaker {
	b := &Breaker{
		Key: e.Key, Cause: e.Cause, Message: e.Message, Since: time.Unix(e.Since, 0), Next: time.Unix(e.Next, 0), Failed: min(max(e.Failed, 0), mostFailed),
		Life: time.Duration(min(max(e.Life, 0), int64(maxPause/time.Second))) * time.Second, Trial: e.Trial, Refused: e.Refused, Members: e.Members, Tried: e.Tried,
	}
	if e.Closed != 0 {
		b.Closed = time.Unix(e.Closed, 0)
	}
	for _, at := range e.Early {
		b.Early = append(b.Early, time.Unix(at, 0))
	}
	if len(e.Probes) > 0 && b.Open() {
		b.probes = map[string]bool{}
		for _, name := range e.Probes {
			b.probes[name] = true
		}
	}
	return b
}

// Recovered records that the machines that exist after a restart are known (Buy). Probes whose machines are gone end without a verdict.
func (g *Guard) Recovered(now time.Time) {
	g.recovered = true
	for _, b := range g.breakers {
		for name := range b.probes {
			if g.machines[name] == nil {
				g.lose(b, name, now)
			}
		}
	}
}

// OpenOf returns the texts of the open breakers in a record that pause launches, for the condition of its object.
func OpenOf(text string) (texts []string, err error) {
	g := New()
	var r Record
	if text == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return nil, fmt.Errorf("reading the record of the spending guard: %w", err)
	}
	for i := range r.Breakers {
		b := r.Breakers[i].breaker()
		g.breakers[b.Key] = b
	}
	for _, b := range g.Breakers() {
		if b.Open() && !b.Trial && !b.Key.Repair() {
			texts = append(texts, b.Text())
		}
	}
	return texts, nil
}
