package devices

import (
	"maps"
	"slices"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
)

// seen is what nodes have published.
type seen struct {
	published map[string]map[string]*resourcev1.ResourceSlice // by node and name, for one node each
	nodes     map[string]nodeKind
	learned   map[kind]map[string]*observation // by driver
	// shared are those for many nodes, sorted by name. The list is replaced, not changed.
	shared []*sharedSlice
	// version is that of Source.Version; tended is when Tend has last done anything.
	version uint64
	tended  time.Time
}

// kind is what nodes with the same devices have in common.
type kind struct{ class, instanceType, image string }

// nodeKind is the kind of a node, and when its claim was created.
type nodeKind struct {
	kind
	since time.Time
}

// observation is what a node has shown of its kind, for one driver.
type observation struct {
	node  string
	since time.Time
	// at is when the node has shown so many devices. If that number is in doubt, plans use it for life, counted from at.
	at   time.Time
	life time.Duration
	// better is what another node has shown, if that was more.
	better *observation
	told   bool // Tend has reported that its life is over
	*Template
}

// Lives of an observation that is in doubt, because it has fewer devices than are declared or than another node has shown: the node may be
// broken. If the next node shows the same, the life doubles. After each life plans expect more devices again, and may buy a node in vain.
const (
	doubtLife    = time.Hour
	maxDoubtLife = 24 * time.Hour
)

// believed returns the observation to plan with: this one, or what was known before if its life is over; nil: what is declared.
func (o *observation) believed(declared int, now time.Time) *observation {
	for o != nil && now.Sub(o.at) >= o.life && (o.better != nil || o.usable() < declared) {
		o = o.better
	}
	return o
}

// learn records what a node shows as what its kind has, driver by driver, unless a younger node has shown something: a change on an older
// node may mean that a device has failed. For the same reason nothing is learned if the same node shows fewer devices than before, or if a driver
// shows none that can be allocated. The caller holds mu.
func (s *Source) learn(node string) (news bool) {
	n, ours := s.seen.nodes[node]
	if !ours {
		return false
	}
	byDriver := map[string][]*resourcev1.ResourceSlice{}
	for _, slice := range s.slicesOf(node) {
		byDriver[slice.Spec.Driver] = append(byDriver[slice.Spec.Driver], slice)
	}
	for driver, published := range byDriver {
		shown, complete := shown(published)
		if !complete || shown.usable() == 0 {
			continue
		}
		of := s.seen.learned[n.kind]
		if of == nil {
			of = map[string]*observation{}
			s.seen.learned[n.kind] = of
		}
		next := &observation{node: node, since: n.since, at: s.clock.Now(), life: doubtLife, Template: shown}
		last := of[driver]
		if last != nil && last.node != node && n.since.Before(last.since) {
			last.doubt(next)
			continue
		}
		if next.follow(last) {
			of[driver] = next
			news = news || last == nil || last.hash != shown.hash
		}
	}
	return news
}

// follow compares the observation with the last one of its kind, and reports whether it replaces that.
func (o *observation) follow(last *observation) bool {
	switch {
	case last == nil:
		return true
	case last.node == o.node && (o.usable() < last.usable() || o.hash == last.hash):
		return false
	case last.node == o.node && o.usable() == last.usable():
		o.at, o.life = last.at, last.life // the same node with as many devices: this isn't new evidence, so life isn't prolonged
	case last.hash == o.hash:
		o.life = min(2*last.life, maxDoubtLife)
	}
	for o.better = last; o.better != nil && o.better.usable() <= o.usable(); {
		o.better = o.better.better
	}
	return true
}

// doubt is called with what an older node shows. If that has more devices, the node of this observation may be broken.
func (o *observation) doubt(older *observation) {
	if older.usable() > o.usable() && (o.better == nil || older.usable() > o.better.usable()) {
		o.better = older
	}
}

// shownBy returns what nodes of the kind have shown. For a driver of which they have shown nothing, it is what nodes of the same class and type
// with another image have, the youngest of them: a new image seldom changes which devices there are. The caller holds mu.
func (s *Source) shownBy(k kind) *Template {
	declared := s.declaredCount(k)
	now := s.clock.Now()
	best := map[string]*observation{}
	for driver, o := range s.seen.learned[k] {
		if b := o.believed(declared[driver], now); b != nil {
			best[driver] = b
		}
	}
	own := maps.Clone(best)
	for other, observed := range s.seen.learned {
		if other == k || other.class != k.class || other.instanceType != k.instanceType {
			continue
		}
		for driver, o := range observed {
			b := o.believed(declared[driver], now)
			if b == nil || own[driver] != nil {
				continue
			}
			if have := best[driver]; have == nil || have.since.Before(b.since) {
				best[driver] = b
			}
		}
	}
	var all []resourcev1.ResourceSliceSpec
	for _, driver := range slices.Sorted(maps.Keys(best)) {
		all = append(all, best[driver].slices...)
	}
	return newTemplate(all)
}

// declaredCount returns how many devices are declared for a kind of nodes, by driver. The caller holds mu.
func (s *Source) declaredCount(k kind) map[string]int {
	out := map[string]int{}
	for _, d := range declaredOn(s.classes.declared[k.class], k.instanceType) {
		out[d.Driver] += len(d.Devices)
	}
	return out
}

// forgetClass forgets what nodes of a node class have shown.
func (s *seen) forgetClass(class string) {
	maps.DeleteFunc(s.learned, func(k kind, _ map[string]*observation) bool { return k.class == class })
}

// Tend forgets what is no longer needed. It reports whether plans use other numbers of devices than before: the life of an observation in doubt has
// ended, or a count that was cut off is to be made again. Call it every now and then.
func (s *Source) Tend() (changed bool) {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	if now.Sub(s.seen.tended) < tendEvery {
		return false
	}
	s.seen.tended = now
	for k, of := range s.seen.learned {
		declared := s.declaredCount(k)
		for driver, o := range of {
			if !o.told && o.believed(declared[driver], now) != o {
				o.told, changed = true, true
			}
		}
	}
	s.seen.forgetOld()
	s.forgetShapes()
	for key, c := range s.counts {
		if !c.until.IsZero() && !now.Before(c.until) {
			delete(s.counts, key)
			changed = changed || s.shapes[key.shape] != nil // there may be devices for more pods than could be counted
		}
	}
	return changed
}

// tendEvery is how often Tend does anything.
const tendEvery = time.Minute

// forgetOld forgets what nodes with an older image have shown once those with a newer one have shown devices of all their drivers, so that a
// process doesn't remember each image that there ever was.
func (s *seen) forgetOld() {
	alive := map[kind]bool{}
	for _, n := range s.nodes {
		alive[n.kind] = true
	}
	newer := func(k kind, driver string, o *observation) bool {
		for other, of := range s.learned {
			if n := of[driver]; n != nil && other != k && other.class == k.class && other.instanceType == k.instanceType && n.better == nil && n.since.After(o.since) {
				return true
			}
		}
		return false
	}
	for k, of := range s.learned {
		maps.DeleteFunc(of, func(driver string, o *observation) bool { return !alive[k] && newer(k, driver, o) })
		if len(of) == 0 {
			delete(s.learned, k)
		}
	}
}
