package consolidation

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/planner/catalog"
)

// kind is reschedulable pods that a plan can't tell apart. Pods of different classes are of one kind if they need the same and may go to the
// same places; pods of one class are of different kinds if what they have now must not get worse (their topology domain, preferences).
type kind struct {
	asks int // index in kinds.asks of what its pods ask of a node's labels and taints
	// need is what a pod takes of an existing node. A pod that another scheduler binds takes twice as much, since it may go elsewhere.
	need []int64
	// least is the sum of the weights of the preferred node terms that the present node satisfies. A new one must satisfy as much.
	least  int32
	class  *capacity.Class // of one of the pods
	sample capacity.PodRef
	// most is how many of its pods may share a node; apart are other kinds that must not be on the same node.
	most  int
	apart []int32
	// mates: its pods prefer not to share a node with others of their class. So that no more of them do than now, most is how many pods of the class
	// are on the node now, and the class's other kinds are in apart.
	mates bool
	// alone: its pods prefer not to share a node with those of certain other classes, and don't now.
	alone bool
	// fixed: its pods depend on others on their node and are not planned elsewhere; prefers: they only prefer to be with these.
	fixed, prefers bool
	count          int // of its pods on all candidates
	// weight is the mean disruption cost of its pods.
	weight float64

	// all are the offerings that may be bought for it, as indexes of the catalog's candidates; may are those worth buying, as indexes of market.offers.
	all, may packing.Bits
	// value is what a pod is worth, in $/h: its share of the cheapest nodes for all pods. floor is what a pod counts, in $/h, in a lower bound of
	// what new nodes for some pods cost.
	value, floor float64
	// id is the same in all passes for kinds that a packing can't tell apart, so that packings can be kept; rank is the kind's place in an order that
	// doesn't depend on earlier passes.
	id, rank int32
}

// special reports whether other pods on a node matter for the kind.
func (k *kind) special() bool {
	return k.most < math.MaxInt || len(k.apart) > 0 || len(k.class.HostPorts) > 0
}

// why says why pods of the kind are fixed.
func (k *kind) why() string {
	if k.prefers {
		return "it prefers to be on the node of other pods, and is"
	}
	return "it must be on the node of other pods"
}

// share is a number of pods of one kind.
type share struct{ kind, n int32 }

// kinds are the kinds of a pass, and what is needed to find the kind of a pod.
type kinds struct {
	dims *catalog.Dims
	all  []kind
	asks []catalog.Asks
	// plain are the kinds of classes all of whose pods are of one kind. last is the class of these that was looked up last, lastKind its kind: the next
	// pod is often of the same class.
	plain    map[capacity.ClassKey]int32
	last     *capacity.Class
	lastKind int32
	// pinned are the kinds of pods that depend on where they are now; domains are the topology keys that matter for this, by class.
	pinned  map[pinned]int32
	domains map[capacity.ClassKey][]string
	byKey   map[string]int32
	askIDs  map[string]int
	ignore  bool // preferences don't count
	// repels are the terms by which classes keep pods of others off their nodes, or prefer to.
	repels []*capacity.PodTerm
}

// pinned is what pods of a class that are of one kind have in common: the values of their nodes' topology labels, the weight of the preferred
// node terms that are satisfied now, how many of them share a node although they prefer not to, and whether what they prefer of the pods of
// other classes on their node is satisfied now.
type pinned struct {
	class  capacity.ClassKey
	values string
	least  int32
	mates  int // pods of the class on the node; 0: they don't prefer to be apart
	// with: they prefer to be on the node of pods that are there. alone: they prefer not to be on that of others, and are not.
	with, alone bool
}

func newKinds(candidates []Candidate, ignorePreferences bool) (*kinds, *catalog.Mentions) {
	seen := map[capacity.ClassKey]bool{}
	var demand []capacity.Demand
	mentions := &catalog.Mentions{}
	var repels []*capacity.PodTerm
	var last *capacity.Class
	for i := range candidates {
		for j := range candidates[i].Pods {
			class := candidates[i].Pods[j].Class
			if class == last {
				continue
			}
			if last = class; seen[class.Key] {
				continue
			}
			seen[class.Key] = true
			demand = append(demand, capacity.Demand{Class: class})
			mentions.Add(class)
			repels = append(repels, repelling(class, !ignorePreferences)...)
			for _, key := range domainKeys(class, !ignorePreferences) {
				mentions.Count(key)
			}
		}
	}
	return &kinds{dims: catalog.DimsOf(demand), plain: map[capacity.ClassKey]int32{}, pinned: map[pinned]int32{}, domains: map[capacity.ClassKey][]string{},
		byKey: map[string]int32{}, askIDs: map[string]int{}, ignore: ignorePreferences, repels: repels}, mentions
}

// repelling returns the terms by which pods of the class keep others off their node or, if that counts, prefer to.
func repelling(c *capacity.Class, preferences bool) (out []*capacity.PodTerm) {
	all := [][]capacity.PodTerm{c.AntiAffinity}
	if preferences {
		all = append(all, c.PreferredAntiAffinity)
	}
	for _, terms := range all {
		for i := range terms {
			if terms[i].TopologyKey == capacity.LabelHostname {
				out = append(out, &terms[i])
			}
		}
	}
	return out
}

// repelled reports whether other classes keep pods of the class off their nodes, or prefer to.
func (ks *kinds) repelled(c *capacity.Class) bool {
	return slices.ContainsFunc(ks.repels, func(t *capacity.PodTerm) bool { return t.Selects(c) })
}

// domainKeys returns the topology keys, other than the host's, over which the class has a hard constraint or, if that counts, a preference.
func domainKeys(c *capacity.Class, preferences bool) []string {
	var out []string
	add := func(key string) {
		if key != capacity.LabelHostname && !slices.Contains(out, key) {
			out = append(out, key)
		}
	}
	for i := range c.Spread {
		if c.Spread[i].Hard || preferences {
			add(c.Spread[i].TopologyKey)
		}
	}
	all := [][]capacity.PodTerm{c.Affinity, c.AntiAffinity}
	if preferences {
		all = append(all, c.PreferredAffinity, c.PreferredAntiAffinity)
	}
	for _, terms := range all {
		for i := range terms {
			add(terms[i].TopologyKey)
		}
	}
	return out
}

// preferApart reports whether pods of the class prefer not to share a node.
func preferApart(c *capacity.Class) bool {
	own := labels.Set(c.Labels)
	return slices.ContainsFunc(c.Spread, func(s capacity.SpreadConstraint) bool {
		return !s.Hard && s.TopologyKey == capacity.LabelHostname && s.Selector != nil && s.Selector.Matches(own)
	}) || slices.ContainsFunc(c.PreferredAntiAffinity, func(t capacity.PodTerm) bool {
		return t.TopologyKey == capacity.LabelHostname && t.Selector != nil && t.Selector.Matches(own)
	})
}

// matesOf returns how many of the candidate's pods are of the class.
func matesOf(x *Candidate, class *capacity.Class) (n int) {
	for i := range x.Pods {
		if x.Pods[i].Class.Key == class.Key {
			n++
		}
	}
	return n
}

// besideOthers reports whether a pod on the candidate prefers to share a node with pods that are there now (with), and whether it prefers
// not to share one with pods of certain other classes, of which none is there now (alone).
func besideOthers(c *capacity.Class, x *Candidate) (with, alone bool) {
	selected := func(terms []capacity.PodTerm, of func(*capacity.Class) bool) bool {
		return slices.ContainsFunc(terms, func(t capacity.PodTerm) bool {
			return t.TopologyKey == capacity.LabelHostname && slices.ContainsFunc(x.Pods, func(p Pod) bool { return of(p.Class) && t.Selects(p.Class) })
		})
	}
	others := func(other *capacity.Class) bool { return other.Key != c.Key }
	with = selected(c.PreferredAffinity, func(other *capacity.Class) bool { return others(other) || matesOf(x, c) > 1 })
	onHost := func(t capacity.PodTerm) bool { return t.TopologyKey == capacity.LabelHostname }
	return with, slices.ContainsFunc(c.PreferredAntiAffinity, onHost) && !selected(c.PreferredAntiAffinity, others)
}

// prefersApart reports whether pods of the class prefer not to share a node with those of the other.
func prefersApart(c, other *capacity.Class) bool {
	return slices.ContainsFunc(c.PreferredAntiAffinity, func(t capacity.PodTerm) bool {
		return t.TopologyKey == capacity.LabelHostname && t.Selects(other)
	})
}

// of returns the kind of a pod on a candidate's node.
func (ks *kinds) of(p *Pod, node *capacity.Node, x *Candidate) int32 {
	c := p.Class
	if c == ks.last {
		return ks.lastKind
	}
	if k, ok := ks.plain[c.Key]; ok {
		ks.last, ks.lastKind = c, k
		return k
	}
	keys, known := ks.domains[c.Key]
	if !known {
		keys = domainKeys(c, !ks.ignore)
		ks.domains[c.Key] = keys
	}
	preferred := !ks.ignore && len(c.Preferred) > 0
	mates := !ks.ignore && len(c.Spread)+len(c.PreferredAntiAffinity) > 0 && preferApart(c)
	beside := !ks.ignore && len(c.PreferredAffinity)+len(c.PreferredAntiAffinity) > 0
	if len(keys) == 0 && !preferred && !mates && !beside {
		k := ks.add(p, catalog.Asks{Terms: c.Terms, Tolerations: c.Tolerations, Preferred: true, Scheduler: c.Scheduler()}, pinned{})
		ks.plain[c.Key] = k
		return k
	}
	at := pinned{class: c.Key, values: valuesOf(keys, node)}
	if preferred {
		at.least = satisfied(c, node.Label)
	}
	if mates {
		at.mates = matesOf(x, c)
	}
	if beside && x.Forced == "" {
		at.with, at.alone = besideOthers(c, x)
	}
	if k, ok := ks.pinned[at]; ok {
		return k
	}
	terms := c.Terms
	if len(keys) > 0 {
		pins := capacity.Requirements{}
		for _, key := range keys {
			if v, ok := node.Label(key); ok {
				pins = pins.And(capacity.ValueIn(key, v))
			}
		}
		if len(terms) == 0 {
			terms = []capacity.Requirements{nil}
		}
		if pinned := capacity.IntersectTerms(terms, []capacity.Requirements{pins}); len(pinned) > 0 {
			terms = pinned
		}
	}
	k := ks.add(p, catalog.Asks{Terms: terms, Tolerations: c.Tolerations, Preferred: true, Scheduler: c.Scheduler()}, at)
	ks.pinned[at] = k
	return k
}

// valuesOf returns the node's values of the labels, as a key.
func valuesOf(keys []string, n *capacity.Node) string {
	if len(keys) == 1 {
		if v, ok := n.Label(keys[0]); ok {
			return v
		}
		return "\x00" // no label has this value
	}
	var out []byte
	for _, key := range keys {
		v, ok := n.Label(key)
		out = append(out, v...)
		if !ok {
			out = append(out, 0)
		}
		out = append(out, ',')
	}
	return string(out)
}

// satisfied returns the weight of the class's preferred node terms that a node with these labels satisfies.
func satisfied(c *capacity.Class, label func(string) (string, bool)) int32 {
	sum := int32(0)
	for _, t := range c.Preferred {
		if t.Term.MatchFunc(label) {
			sum += t.Weight
		}
	}
	return sum
}

// add returns the kind of a pod that asks for this, and makes it if there is none.
func (ks *kinds) add(p *Pod, asks catalog.Asks, at pinned) int32 {
	c, least := p.Class, at.least
	id := asks.ID()
	need := ks.dims.Need(c)
	if c.ByOthers {
		for d := range need {
			need[d] = capacity.SatMul(need[d], 2)
		}
	}
	most, fixed := hostLimit(c)
	if at.mates > 0 {
		most = min(most, at.mates)
	}
	var key []byte
	if most < math.MaxInt || fixed || len(c.HostPorts) > 0 || len(c.AntiAffinity) > 0 || least > 0 || c.ByOthers || at.with || at.alone || ks.repelled(c) {
		key = append(key, c.Key...) // such a class is a kind of its own
	}
	key = append(key, 0)
	key = binary.AppendVarint(key, int64(least))
	key = binary.AppendVarint(key, int64(at.mates))
	key = fmt.Append(key, at.with, at.alone)
	for _, n := range need {
		key = binary.AppendVarint(key, n)
	}
	key = append(key, id...)
	if k, ok := ks.byKey[string(key)]; ok {
		return k
	}
	asked, ok := ks.askIDs[id]
	if !ok {
		asked = len(ks.asks)
		ks.askIDs[id] = asked
		ks.asks = append(ks.asks, asks)
	}
	k := int32(len(ks.all))
	ks.byKey[string(key)] = k
	ks.all = append(ks.all, kind{asks: asked, need: need, least: least, class: c, sample: p.Ref, most: most, fixed: fixed || at.with, prefers: at.with,
		mates: at.mates > 0, alone: at.alone})
	return k
}

// hostLimit returns how many pods of the class may share a node, and whether they depend on other pods on it.
func hostLimit(c *capacity.Class) (most int, fixed bool) {
	most = math.MaxInt
	for i := range c.Spread {
		if s := &c.Spread[i]; s.Hard && s.TopologyKey == capacity.LabelHostname {
			most = min(most, max(1, int(s.MaxSkew)))
		}
	}
	if capacity.Apart(c, c) || len(c.HostPorts) > 0 {
		most = 1
	}
	return most, slices.ContainsFunc(c.Affinity, func(t capacity.PodTerm) bool { return t.TopologyKey == capacity.LabelHostname })
}

// separate finds the kinds that must not share a node with another kind.
func (ks *kinds) separate() {
	ofClass := map[capacity.ClassKey][]int32{}
	for i := range ks.all {
		if ks.all[i].mates {
			ofClass[ks.all[i].class.Key] = append(ofClass[ks.all[i].class.Key], int32(i))
		}
	}
	for i := range ks.all {
		for _, j := range ofClass[ks.all[i].class.Key] {
			if ks.all[i].mates && j != int32(i) {
				ks.all[i].apart = append(ks.all[i].apart, j)
			}
		}
	}
	for i := range ks.all {
		a := &ks.all[i]
		if !a.class.Repels() && len(a.class.HostPorts) == 0 && !a.alone {
			continue
		}
		for j := range ks.all {
			b := &ks.all[j]
			prefers := a.alone && a.class.Key != b.class.Key && prefersApart(a.class, b.class)
			if i == j || !prefers && !capacity.Apart(a.class, b.class) && !capacity.PortsConflict(a.class.HostPorts, b.class.HostPorts) {
				continue
			}
			if !slices.Contains(a.apart, int32(j)) {
				a.apart = append(a.apart, int32(j))
			}
			if !slices.Contains(b.apart, int32(i)) {
				b.apart = append(b.apart, int32(i))
			}
		}
	}
}

// admits reports whether pods of the kind may be on an existing node, apart from capacity and other reschedulable pods.
func (ks *kinds) admits(k *kind, n *capacity.Node) bool {
	asks := &ks.asks[k.asks]
	if n.Closed || n.Unschedulable && !capacity.Tolerates(asks.Tolerations, &unschedulable) || asks.Tolerates(n.Taints) != nil || !asks.Matches(n.Label) {
		return false
	}
	return k.least == 0 || satisfied(k.class, n.Label) >= k.least
}

var unschedulable = corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
