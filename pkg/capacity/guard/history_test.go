package guard

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// history makes random calls to a guard and checks what must always hold.
type history struct {
	draw func(n int) int
	g    *Guard
	now  time.Time
	// obedient: nothing is bought that the guard stops. Otherwise calls come in any order.
	obedient bool
	names    []string // of live machines
	at       map[string]time.Time
	probes   map[string][]Key
	// failed is when a probe of a breaker last failed, by key, and pause is the least time until the next probe. freed: something has
	// changed since.
	failed   map[Key]time.Time
	pause    map[Key]time.Duration
	freed    map[Key]bool
	counted  map[Key][]time.Time // probes that were due without a change, and that had a verdict
	bought   int
	journal  strings.Builder
	problems []string
}

func newHistory(draw func(n int) int, obedient bool) *history {
	h := &history{
		draw: draw, g: New(), now: epoch, obedient: obedient, at: map[string]time.Time{}, probes: map[string][]Key{}, failed: map[Key]time.Time{},
		freed: map[Key]bool{}, counted: map[Key][]time.Time{}, pause: map[Key]time.Duration{},
	}
	h.g.Recovered(h.now)
	return h
}

func (h *history) problem(format string, args ...any) {
	h.problems = append(h.problems, fmt.Sprintf("at %s: ", h.now.Sub(epoch))+fmt.Sprintf(format, args...))
}

func pick[T any](h *history, of ...T) T { return of[h.draw(len(of))] }

func (h *history) workload() Workload {
	return pick(h, workload("w1"), workload("w2"), workload("w3"), workload("w4"), workload("w5"), workload("NodePool/static"))
}

func (h *history) key() Key {
	return pick(h, MachineKey(h.class(), h.image(), ""), MachineKey(h.class(), h.image(), h.zone()), PodKey(h.pool(), h.workload()), PoolKey(h.pool(), h.cause()))
}

func (h *history) pool() string  { return pick(h, "a", "b") }
func (h *history) class() string { return pick(h, "c", "d") }
func (h *history) image() string { return pick(h, "i", "i", "i", "j") }
func (h *history) zone() string  { return pick(h, "x", "y") }
func (h *history) cause() string { return pick(h, "taint", "taint", "taint", "resource", "deleted") }

func (h *history) machine() string {
	if len(h.names) == 0 {
		return "none"
	}
	return h.names[h.draw(len(h.names))]
}

// step makes one random event.
func (h *history) step() {
	h.now = h.now.Add(pick(h, 0, 0, time.Second, time.Minute, 2*time.Minute, 15*time.Minute, time.Hour, 7*time.Hour))
	what := pick(h, "buy", "buy", "buy", "buy", "locate", "initialized", "steady", "serve", "fail", "fail", "fail", "fail", "break", "throw", "end", "end",
		"changed", "accepted", "tick", "tick", "restart", "take")
	name := h.machine()
	fmt.Fprintf(&h.journal, "%s %s %s\n", h.now.Sub(epoch), what, name)
	switch what {
	case "buy":
		h.buy()
	case "locate":
		h.g.Locate(name, h.image(), h.zone())
	case "initialized":
		h.g.Initialized(name, h.now)
	case "steady":
		h.g.Steady(name, h.now)
		h.succeeded(name, func(k Key) bool { return k.Machine() })
	case "serve":
		w := pick(h, h.workload(), Workload{})
		h.g.Serve(name, w, h.now)
		h.succeeded(name, func(k Key) bool { return k.Machine() || k.PoolWide() || k.Workload == w || w == Workload{} })
	case "fail":
		f := Fault{Cause: h.cause(), Message: strings.Repeat("é", h.draw(200)), Chance: pick(h, 0, 0, 0, 1, 3), Overtaken: h.draw(5) == 0}
		for range h.draw(3) {
			f.Workloads = append(f.Workloads, h.workload())
		}
		h.fail(name, f)
	case "break":
		h.fail(name, Fault{Machine: true, Cause: h.cause(), Refused: h.draw(4) == 0})
	case "throw":
		h.g.Throw(name, h.pool(), h.workload(), h.draw(4), Fault{Cause: h.cause()}, h.now)
		h.settle()
	case "end":
		h.end(name)
	case "changed":
		k, all := h.key(), h.draw(3) == 0
		match := func(o Key) bool { return all || o == k }
		h.g.Changed(match, h.draw(3) == 0, h.now)
		h.free(match)
	case "accepted":
		k := h.key()
		h.g.Accepted(k, h.now)
		h.free(func(o Key) bool { return o == k })
	case "tick":
		h.g.Tick(h.now)
	case "restart":
		h.restart()
	case "take":
		for _, n := range h.g.Take() {
			fmt.Fprintf(&h.journal, "%+v\n", n)
		}
	}
	h.invariants()
}

func (h *history) free(match func(Key) bool) {
	for k := range h.failed {
		if match(k) {
			h.freed[k] = true
		}
	}
}

func (h *history) buy() {
	w, pool, class, image, zone := h.workload(), h.pool(), h.class(), h.image(), h.zone()
	m := Bought{Purchase: Purchase{Round: fmt.Sprintf("r%d", h.bought)}, Pool: pool, Class: class, Images: []string{image}, Zones: []string{zone}, At: h.now}
	for range h.draw(3) {
		m.Workloads = append(m.Workloads, w)
		w = h.workload()
	}
	due := h.g.Due(h.now, nil)
	holds := []*Breaker{h.g.HoldsMachine(class, image, zone)}
	for _, w := range m.Workloads {
		holds = append(holds, h.g.HoldsPods(pool, w, h.now))
	}
	if len(m.Workloads) == 0 {
		holds = append(holds, h.g.HoldsPods(pool, NoPod, h.now))
	}
	for _, b := range holds {
		switch {
		case b == nil || slices.Contains(m.Probes, b.Key):
		case slices.Contains(due, b.Key):
			m.Probes = append(m.Probes, b.Key)
		case h.obedient:
			return
		}
	}
	n := 1
	if len(m.Probes) == 0 {
		n += h.draw(4)
	}
	for _, k := range m.Probes {
		h.probe(k)
	}
	for range n {
		name := fmt.Sprintf("m%d", h.bought)
		h.bought++
		h.g.Buy(name, m)
		if h.obedient || h.draw(2) == 0 {
			h.g.Locate(name, image, zone)
		}
		h.names = append(h.names, name)
		h.at[name], h.probes[name] = h.now, m.Probes
	}
}

// probe records that a probe is bought.
func (h *history) probe(k Key) {
	b := h.g.breakers[k]
	if b.Probing() || b.Refused {
		h.problem("a second probe of %s", k)
	}
	if failed, ok := h.failed[k]; h.obedient && ok && !h.freed[k] && h.now.Sub(failed) < h.pause[k] {
		h.problem("a probe of %s only %s after one failed; machines lived %s", k, h.now.Sub(failed), b.Life)
	}
}

// fail makes a machine fail, and records whose probe it was.
func (h *history) fail(name string, f Fault) {
	before := map[Key]int{}
	for _, b := range h.g.Breakers() {
		before[b.Key] = b.Failed
	}
	h.g.Fail(name, f, h.now)
	for _, b := range h.g.Breakers() {
		if n, ok := before[b.Key]; b.Open() && ok && b.Failed > n {
			if !h.freed[b.Key] {
				h.counted[b.Key] = append(h.counted[b.Key], h.at[name])
			}
			h.failed[b.Key], h.freed[b.Key], h.pause[b.Key] = h.now, false, max(minPause, min(2*b.Life, maxPause))
		}
	}
	h.settle()
}

// settle forgets what it knows about breakers that are new.
func (h *history) settle() {
	for k := range h.failed {
		if b := h.g.breakers[k]; b == nil || b.Failed == 0 || !b.Open() {
			h.freed[k] = true
		}
	}
}

// succeeded checks that no breaker is open whose probe has succeeded.
func (h *history) succeeded(name string, of func(Key) bool) {
	if !slices.Contains(h.names, name) {
		return
	}
	for _, k := range h.probes[name] {
		if b := h.g.breakers[k]; b != nil && b.Open() && of(k) {
			if _, probes := b.probes[name]; probes {
				h.problem("%s is open after its probe %s succeeded", k, name)
			}
		}
	}
	h.settle()
}

func (h *history) end(name string) {
	h.g.End(name, h.now)
	h.names = slices.DeleteFunc(h.names, func(n string) bool { return n == name })
	delete(h.at, name)
	delete(h.probes, name)
}

// restart writes the guard's state to its records and reads it back: everything that was stopped stays stopped.
func (h *history) restart() {
	texts := map[Owner]string{}
	owners := h.g.Owners()
	for _, pool := range []string{"a", "b"} {
		owners[Owner{Pool: pool}] = true
	}
	for _, o := range []Owner{{Class: "c"}, {Class: "d"}, {Pool: "a"}, {Pool: "b"}} {
		if owners[o] {
			texts[o] = h.g.Encode(o, h.now)
			if len(texts[o]) > maxRecord && strings.Count(texts[o], `"key"`) > 1 {
				h.problem("the record of %v has %d bytes", o, len(texts[o]))
			}
		}
	}
	fresh := New()
	for o, text := range texts {
		if err := fresh.Restore(o, text); err != nil {
			h.problem("%v", err)
		}
		if again := fresh.Encode(o, h.now); strings.ReplaceAll(again, `,"refused":true`, "") != strings.ReplaceAll(text, `,"refused":true`, "") {
			h.problem("restored it is another: %s", cmp.Diff(text, again))
		}
	}
	if diff := cmp.Diff(h.g.held(h.now), fresh.held(h.now)); diff != "" {
		h.problem("another process holds back something else: %s", diff)
	}
	if h.draw(2) == 0 { // the new guard learns of the machines, too
		for _, name := range h.names {
			m := h.g.machines[name]
			fresh.Buy(name, m.Bought)
			fresh.Locate(name, m.image, m.zone)
			if m.served {
				fresh.Serve(name, Workload{}, m.At)
			}
		}
		fresh.Recovered(h.now)
		for _, o := range h.g.Breakers() {
			h.free(func(k Key) bool { return k == o.Key && o.Refused })
		}
		h.g = fresh
		h.settle()
	}
}

// held returns the visible state of a guard that a restart must keep.
func (g *Guard) held(now time.Time) (out []string) {
	for _, b := range g.Breakers() {
		if b.Trial && !b.Probing() || !b.Open() && now.Sub(b.Closed) >= memory {
			continue
		}
		early := 0
		for _, at := range b.Early {
			early += int(at.Unix())
		}
		out = append(out, fmt.Sprintf("%s: open %t, %d failed, next %d, probing %t, trial %t, early %d, life %s, cause %s, tried %v, since %d",
			b.Key, b.Open(), b.Failed, b.Next.Unix(), b.Probing(), b.Trial, early, b.Life.Truncate(time.Second), b.Cause, b.Tried, b.Since.Unix()))
	}
	for _, class := range []string{"c", "d"} {
		for _, image := range []string{"i", "j"} {
			out = append(out, fmt.Sprintf("known %t", g.KnownImage(class, image)))
			for _, zone := range []string{"x", "y"} {
				if b := g.HoldsMachine(class, image, zone); b != nil {
					out = append(out, fmt.Sprintf("%s %s %s: held by %s", class, image, zone, b.Key))
				}
			}
		}
	}
	return out
}

func (h *history) invariants() {
	due := h.g.Due(h.now, nil)
	for _, b := range h.g.Breakers() {
		if !b.Open() {
			continue
		}
		if !b.Refused && !b.Probing() && (b.Next.IsZero() || b.Next.Sub(h.now) > maxPause) {
			h.problem("%s is open, and its next probe is at %s", b.Key, b.Next)
		}
		if isDue := slices.Contains(due, b.Key); isDue && (b.Probing() || b.Refused || b.Next.After(h.now)) || !isDue && !b.Trial && b.due(h.now) {
			h.problem("%s: due %t", b.Key, isDue)
		}
		for name := range b.probes {
			if h.g.machines[name] == nil {
				h.problem("%s waits for machine %s, which is gone", b.Key, name)
			}
		}
		if len(b.Early) > earlyPerDay || len(b.Members) > mostFailing {
			h.problem("%s has %d early probes, %d members", b.Key, len(b.Early), len(b.Members))
		}
		if text := b.Text(); !strings.Contains(text, "since") {
			h.problem("%s doesn't say since when", text)
		}
	}
	if len(h.g.changes) > changesKept || len(h.g.machines) != len(h.names) {
		h.problem("%d changes, %d machines", len(h.g.changes), len(h.g.machines))
	}
	for k, all := range h.counted {
		for len(all) > 0 && h.now.Sub(all[0]) >= day {
			all = all[1:]
		}
		if h.counted[k] = all; h.obedient && len(all) > 9 {
			h.problem("%d probes of %s failed within a day", len(all), k)
		}
	}
}

// over ends all machines: three days later the guard has nothing left.
func (h *history) over() {
	for len(h.names) > 0 {
		h.end(h.names[0])
	}
	for _, b := range h.g.Breakers() {
		h.g.Accepted(b.Key, h.now)
	}
	for range 3 {
		h.now = h.now.Add(day + maxPause)
		h.g.Tick(h.now)
	}
	if n := len(h.g.machines) + len(h.g.rounds) + len(h.g.breakers) + len(h.g.thrown) + len(h.g.served) + len(h.g.initialized); n > 0 {
		h.problem("when all is over: %d machines, %d rounds, %v, %d thrown, %d served, %d initialized",
			len(h.g.machines), len(h.g.rounds), h.g.Breakers(), len(h.g.thrown), len(h.g.served), len(h.g.initialized))
	}
}

func (h *history) run(steps int) string {
	for range steps {
		if h.step(); len(h.problems) > 0 {
			return h.journal.String()
		}
	}
	for _, b := range h.g.Breakers() {
		fmt.Fprintf(&h.journal, "%s %+v\n", b.Text(), b.Early)
	}
	h.over()
	return h.journal.String()
}

func TestHistories(t *testing.T) {
	for seed := range uint64(150) {
		play := func() (*history, string) {
			r := rand.New(rand.NewPCG(seed, 3))
			h := newHistory(r.IntN, seed%3 > 0)
			return h, h.run(20 + int(seed%200))
		}
		h, journal := play()
		for _, p := range h.problems {
			t.Errorf("seed %d: %s\n%s", seed, p, journal)
		}
		if _, again := play(); again != journal {
			t.Errorf("seed %d: the same history ends otherwise: %s", seed, cmp.Diff(journal, again))
		}
		if t.Failed() {
			return
		}
	}
}

func FuzzHistory(f *testing.F) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 4))
		bytes := make([]byte, 400)
		for i := range bytes {
			bytes[i] = byte(r.Uint32())
		}
		f.Add(bytes, seed%2 == 0)
	}
	f.Fuzz(func(t *testing.T, bytes []byte, obedient bool) {
		h := newHistory(func(n int) int {
			if len(bytes) == 0 {
				return 0
			}
			b := bytes[0]
			bytes = bytes[1:]
			return int(b) % n
		}, obedient)
		journal := h.run(len(bytes) / 5)
		for _, p := range h.problems {
			t.Errorf("%s\n%s", p, journal)
		}
	})
}
