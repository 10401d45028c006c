package karpenter

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation/field"
	karpv1alpha1 "sigs.k8s.io/karpenter/pkg/apis/v1alpha1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Reasons of a NodeOverlay's ValidationSucceeded condition, as Karpenter names them.
const (
	reasonRuntimeValidation = "RuntimeValidation"
	reasonConflict          = "Conflict"
)

// Overlays applies NodeOverlays to the instance types of pools.
//
//	NodeOverlay -> parsed -> sorted by weight -> accepted, or in conflict with one of the same weight -> types of pools
//
// Pools with the same instance types and the same matching overlays form one group, whose types are created once: planners recognize
// types by the identity of their slice, so a new slice is created only when something in it is new.
type Overlays struct {
	mu     sync.Mutex
	parsed map[string]*parsedOverlay
	sorted []*overlay // the valid overlays, in the order they are applied

	groups  map[groupKey]*group
	ofPool  map[string]*group
	hits    map[*capacity.InstanceType][]hit // the overlays that apply to some offering of a type, by the type as the cloud has it
	refused map[string]string                // why an overlay is not applied, by name
}

type parsedOverlay struct {
	object  *karpv1alpha1.NodeOverlay
	overlay *overlay
	errs    field.ErrorList
}

// hit is an overlay that applies to some of a type's offerings.
type hit struct {
	overlay int    // index in Overlays.sorted
	offers  []bool // by the type's offerings: whether the overlay applies to it
}

// groupKey identifies a slice of types and the overlays that match a pool, in order.
type groupKey struct {
	first **capacity.InstanceType
	len   int
	about string
}

type group struct {
	overlays []*overlay // all valid overlays, in the order they are applied
	about    []bool     // about[i]: overlays[i] matches the group's pools
	pools    []string
	from     []*capacity.InstanceType
	// accepted encodes which overlays were applied to create types.
	accepted string
	types    []*capacity.InstanceType
}

// NewOverlays returns a value without overlays.
func NewOverlays() *Overlays { return &Overlays{parsed: map[string]*parsedOverlay{}} }

// Put adds or replaces an overlay, or removes it when o is nil, and reports whether that may change anything.
func (v *Overlays) Put(name string, o *karpv1alpha1.NodeOverlay) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	have := v.parsed[name]
	if o == nil {
		if have == nil {
			return false
		}
		delete(v.parsed, name)
	} else {
		if have != nil && SameIntent(have.object, o) {
			have.object = o
			return false
		}
		one := &parsedOverlay{object: o}
		if Malformed(o) == "" && o.DeletionTimestamp.IsZero() {
			one.overlay, one.errs = overlayOf(o)
		}
		v.parsed[name] = one
	}
	v.sorted = nil
	for _, one := range v.parsed {
		if one.overlay != nil {
			v.sorted = append(v.sorted, one.overlay)
		}
	}
	slices.SortFunc(v.sorted, func(a, b *overlay) int {
		// Of two overlays of equal weight, the one whose name comes later in the alphabet is first, as in Karpenter.
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(b.name, a.name))
	})
	v.groups, v.hits = nil, nil
	return true
}

// Problem returns why an overlay is not applied, with the reason for a condition; both are empty when it is applied.
func (v *Overlays) Problem(name string) (reason, message string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	one := v.parsed[name]
	switch {
	case one == nil:
		return "", ""
	case Malformed(one.object) != "":
		return ReasonMalformed, Malformed(one.object)
	case len(one.errs) > 0:
		return reasonRuntimeValidation, JoinErrors(one.errs)
	case v.refused[name] != "":
		return reasonConflict, v.refused[name]
	}
	return "", ""
}

// Apply sets the pools' types as changed by the overlays. It returns the overlays whose problem has changed.
func (v *Overlays) Apply(pools []*capacity.Pool) (changed []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before := v.groups
	v.groups, v.ofPool = map[groupKey]*group{}, map[string]*group{}
	refused := map[string]string{}
	if len(v.sorted) > 0 {
		fresh := false
		for _, p := range pools {
			if p.Unready != "" || len(p.Types) == 0 {
				continue
			}
			key, about := v.key(p)
			g := v.groups[key]
			if g == nil {
				g = &group{overlays: v.sorted, about: about, from: p.Types}
				if have := before[key]; have != nil {
					g.accepted, g.types = have.accepted, have.types
				}
				fresh = fresh || g.types == nil
				v.groups[key] = g
			}
			g.pools = append(g.pools, p.Name)
			v.ofPool[p.Name] = g
		}
		if fresh || len(v.groups) != len(before) {
			refused = v.decide()
		} else {
			refused = v.refused
		}
		for _, p := range pools {
			if g := v.ofPool[p.Name]; g != nil {
				p.Types = g.types
			}
		}
	}
	for _, o := range v.sorted {
		if refused[o.name] != v.refused[o.name] {
			changed = append(changed, o.name)
		}
	}
	v.refused = refused
	return changed
}

func (v *Overlays) key(p *capacity.Pool) (groupKey, []bool) {
	about := make([]bool, len(v.sorted))
	text := make([]byte, len(v.sorted))
	for i, o := range v.sorted {
		if about[i] = o.ofPool.Match(p.Labels); about[i] {
			text[i] = 1
		}
	}
	return groupKey{&p.Types[0], len(p.Types), string(text)}, about
}

// decide determines which overlays can be applied and applies them to all groups. An overlay is applied to all groups or to none.
func (v *Overlays) decide() (refused map[string]string) {
	groups := slices.SortedFunc(maps.Values(v.groups), func(a, b *group) int { return cmp.Compare(a.pools[0], b.pools[0]) })
	v.findHits(groups)
	refused = map[string]string{}
	out := make([]bool, len(v.sorted))
	said := map[*group]map[*capacity.InstanceType]*says{}
	for _, g := range groups {
		said[g] = map[*capacity.InstanceType]*says{}
	}
	for i, o := range v.sorted {
		for _, g := range groups {
			if err := v.conflict(g, i, said[g]); err != nil {
				refused[o.name], out[i] = err.Error(), true
				break
			}
		}
		if !out[i] {
			for _, g := range groups {
				v.claim(g, i, said[g])
			}
		}
	}
	for _, g := range groups {
		accepted := make([]byte, len(v.sorted))
		for i := range v.sorted {
			if g.about[i] && !out[i] {
				accepted[i] = 1
			}
		}
		if g.types == nil || g.accepted != string(accepted) {
			g.accepted = string(accepted)
			g.types = v.typesOf(g)
		}
	}
	return refused
}

// findHits determines which overlays match which types; it reuses earlier results for types it has seen before.
func (v *Overlays) findHits(groups []*group) {
	hits := map[*capacity.InstanceType][]hit{}
	for _, g := range groups {
		for _, t := range g.from {
			if _, done := hits[t]; done {
				continue
			}
			have, ok := v.hits[t]
			if !ok {
				have = hitsOf(v.sorted, t)
			}
			hits[t] = have
		}
	}
	v.hits = hits
}

func hitsOf(overlays []*overlay, t *capacity.InstanceType) (out []hit) {
	for i, o := range overlays {
		if !o.ofType.Match(t.Labels) {
			continue
		}
		h := hit{overlay: i, offers: make([]bool, len(t.Offers))}
		some := false
		for j := range t.Offers {
			h.offers[j] = t.Offers[j].Satisfies(o.ofOffer)
			some = some || h.offers[j]
		}
		if some {
			out = append(out, h)
		}
	}
	return out
}

// typesOf returns a group's types as changed by its accepted overlays; the same slice when no type is changed.
func (v *Overlays) typesOf(g *group) []*capacity.InstanceType {
	out := g.from
	for i, t := range g.from {
		changed := g.overlaid(t, v.hits[t])
		if changed == t {
			continue
		}
		if &out[0] == &g.from[0] {
			out = slices.Clone(g.from)
		}
		out[i] = changed
	}
	return out
}

// overlaid returns a type as changed by the group's accepted overlays: for each price and resource the first overlay wins.
func (g *group) overlaid(t *capacity.InstanceType, hits []hit) *capacity.InstanceType {
	out := t
	change := func() {
		if out == t {
			cp := *t
			out = &cp
		}
	}
	priced := make([]bool, len(t.Offers))
	extra := capacity.Resources{}
	for _, h := range hits {
		if g.accepted[h.overlay] == 0 {
			continue
		}
		o := g.overlays[h.overlay]
		for j, is := range h.offers {
			if !is || o.price == nil || priced[j] {
				continue
			}
			priced[j] = true
			price := o.price(t.Offers[j].Price)
			if math.IsInf(price, 1) {
				continue
			}
			if change(); !out.PriceOverlaid() {
				out.Offers = slices.Clone(t.Offers)
			}
			out.Offers[j].Price, out.Offers[j].PriceOverlaid = price, true
		}
		for name, amount := range o.extra {
			if _, taken := extra[name]; !taken {
				extra[name] = amount
			}
		}
	}
	if len(extra) > 0 {
		change()
		out.AddExtra(extra)
	}
	return out
}

// TypeFor returns an instance type as changed by the overlays of a pool.
func (v *Overlays) TypeFor(pool string, t *capacity.InstanceType) *capacity.InstanceType {
	v.mu.Lock()
	g := v.ofPool[pool]
	v.mu.Unlock()
	if g == nil {
		return t
	}
	return g.overlaid(t, hitsOf(g.overlays, t))
}
