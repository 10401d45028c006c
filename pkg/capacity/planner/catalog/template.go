package catalog

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Keys returns the labels that a node of these candidates can have, and those that its pool mentions, sorted.
func (c *Catalog) Keys(p *PoolOffers, candidates []int) []string {
	all := map[string]bool{}
	for key := range p.Labels {
		all[key] = true
	}
	for key := range p.Requirements {
		all[key] = true
	}
	for _, key := range capacity.OfferLabels {
		all[key] = true
	}
	for _, b := range candidates {
		for key := range c.TypeOf(b).Labels {
			all[key] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// Choose reduces candidates, sorted by price, to MaxFleetTypes types that satisfy the pool's minValues; short says which minValues can't
// be met.
func (c *Catalog) Choose(p *PoolOffers, candidates []int) (chosen []int, short string) {
	types := map[int]bool{}
	for _, req := range p.Requirements.Sorted() {
		if req.MinValues == 0 {
			continue
		}
		values := map[string]bool{}
		for _, b := range candidates {
			if v, ok := c.Label(b, req.Key); ok && !values[v] && len(values) < req.MinValues {
				values[v] = true
				types[c.Candidates[b].typ] = true
			}
		}
		if len(values) < req.MinValues && short == "" {
			short = fmt.Sprintf("minValues: only %d of %d values of %s are possible", len(values), req.MinValues, req.Key)
		}
	}
	for _, b := range candidates {
		if len(types) < capacity.MaxFleetTypes {
			types[c.Candidates[b].typ] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(candidates), func(b int) bool { return !types[c.Candidates[b].typ] }), short
}

// Template returns the part of a PlannedNode that the candidates determine: all but ID, Requests and
// MinValuesRelaxed. candidates are sorted by price.
func (c *Catalog) Template(candidates []int, daemons *DaemonSets) *capacity.PlannedNode {
	x := &c.Candidates[candidates[0]]
	p := c.Pools[x.Pool]
	t := &capacity.PlannedNode{}
	t.Pool, t.CapacityType, t.Price = p.Pool, x.Offer.CapacityType, x.Offer.Price
	t.Offers = make([]capacity.NodeOffer, 0, len(candidates))
	if x.covered > 0 {
		t.Covered.Commitment = c.Budgets.coverage.Commitments[x.covered-1].Name
		for _, b := range candidates {
			use, _ := c.CommitmentUse(b)
			t.Covered.Use, t.Covered.List = max(t.Covered.Use, use.Amount), max(t.Covered.List, c.Candidates[b].Offer.Price)
		}
	}
	types := make([]int, 0, capacity.MaxFleetTypes)
	seen := make([]bool, len(p.Allowed))
	for _, b := range candidates {
		t.Offers = append(t.Offers, capacity.NodeOffer{Type: c.TypeOf(b), Offer: c.Candidates[b].Offer})
		if typ := c.Candidates[b].typ; !seen[typ] {
			seen[typ] = true
			types = append(types, typ)
		}
	}
	all := p.common(types)
	t.Labels, t.Allocatable, t.Largest, t.VolumeLimits = maps.Clone(all.labels), all.allocatable, all.largest, all.volumes
	maps.Copy(t.Labels, p.LabelChoices[x.LabelChoice].Labels)
	for _, key := range capacity.OfferLabels {
		if v, ok := c.Label(candidates[0], key); ok && !slices.ContainsFunc(candidates, func(b int) bool { w, _ := c.Label(b, key); return w != v }) {
			t.Labels[key] = v
		}
	}
	t.Daemons = daemons.byKey[x.daemons]
	return t
}

// common is what instance types have in common. It is shared and must not be changed.
type common struct {
	labels               map[string]string
	allocatable, largest capacity.Resources // the least Allocatable and the largest Capacity of the types, by resource
	volumes              map[string]int64   // the lowest VolumeLimits of the types
}

// maxCommon limits how many sets of types are cached.
const maxCommon = 2048

// common finds what the types at these positions have in common, or returns it from the cache.
func (p *PoolOffers) common(types []int) *common {
	key := make([]byte, 0, 3*len(types))
	for _, t := range types {
		key = binary.AppendUvarint(key, uint64(t))
	}
	if out, known := p.commons[string(key)]; known {
		return out
	}
	first := p.Allowed[types[0]]
	out := &common{labels: maps.Clone(first.Labels), allocatable: first.Allocatable.Clone(), largest: first.Capacity.Clone(), volumes: maps.Clone(first.VolumeLimits)}
	if out.labels == nil {
		out.labels = map[string]string{}
	}
	for _, at := range types[1:] {
		typ := p.Allowed[at]
		out.allocatable.AtMost(typ.Allocatable)
		out.largest.AtLeast(typ.Capacity)
		for k, v := range out.labels {
			if w, ok := typ.Labels[k]; !ok || w != v {
				delete(out.labels, k)
			}
		}
		for driver, limit := range typ.VolumeLimits {
			if out.volumes == nil {
				out.volumes = map[string]int64{}
			}
			if have, ok := out.volumes[driver]; !ok || limit < have {
				out.volumes[driver] = limit
			}
		}
	}
	if p.commons == nil || len(p.commons) >= maxCommon {
		p.commons = map[string]*common{}
	}
	p.commons[string(key)] = out
	return out
}
