package commitments

import (
	"cmp"
	"slices"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Source computes coverage. It keeps the instance types by name between calls. A Source is not safe for concurrent use.
type Source struct {
	commitments []capacity.Commitment
	// pools are the types of each pool, by its name. known are all types that any pool has had, by name, for the price of nodes whose pool no
	// longer has their type.
	pools map[string]poolTypes
	known map[string]*capacity.InstanceType
}

// poolTypes are a pool's instance types by name. of is the slice (Pool.Types) that they were read from.
type poolTypes struct {
	of     []*capacity.InstanceType
	byName map[string]*capacity.InstanceType
}

// New returns a Source for commitments. Their names have to be unique.
func New(commitments []capacity.Commitment) *Source {
	return &Source{commitments: capacity.InOrder(commitments), pools: map[string]poolTypes{}, known: map[string]*capacity.InstanceType{}}
}

// Of returns what the commitments cover now; nil: there are none. claims are all NodeClaims, by name.
//
// Nodes are looked at in the order of their age, the oldest first, and each is covered by the first commitment of which enough is left for the whole
// node. A claim that is being launched counts with the most that its offerings may use. A node that is being terminated doesn't count: what it used
// is soon free.
func (s *Source) Of(pools []*capacity.Pool, claims map[string]*capacity.Claim) *capacity.Coverage {
	if len(s.commitments) == 0 {
		return nil
	}
	s.see(pools)
	out := &capacity.Coverage{Commitments: s.commitments, Used: make([]int64, len(s.commitments)), Nodes: map[string]capacity.CoveredNode{}}
	for _, c := range ByAge(claims) {
		for i := range s.commitments {
			if use, list, ok := s.use(&s.commitments[i], c); ok && use <= out.Left(i) {
				out.Used[i] += use
				n := capacity.CoveredNode{Commitment: i, Use: use, List: list}
				if out.Nodes[c.Name] = n; c.NodeName != "" {
					out.Nodes[c.NodeName] = n
				}
				break
			}
		}
	}
	return out
}

// ByAge returns the claims that aren't being deleted, the oldest first. Those that have no age yet, since they are being written, come last.
func ByAge(claims map[string]*capacity.Claim) []*capacity.Claim {
	out := make([]*capacity.Claim, 0, len(claims))
	for _, c := range claims {
		if !c.Deleting {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b *capacity.Claim) int {
		switch young, other := a.CreatedAt.IsZero(), b.CreatedAt.IsZero(); {
		case young && !other:
			return 1
		case other && !young:
			return -1
		}
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// see updates pools and known to the types that the pools have now.
func (s *Source) see(pools []*capacity.Pool) {
	there := make(map[string]bool, len(pools))
	for _, p := range pools {
		there[p.Name] = true
		if have := s.pools[p.Name]; have.byName != nil && len(have.of) == len(p.Types) && (len(p.Types) == 0 || &have.of[0] == &p.Types[0]) {
			continue
		}
		byName := make(map[string]*capacity.InstanceType, len(p.Types))
		for _, t := range p.Types {
			byName[t.Name], s.known[t.Name] = t, t
		}
		s.pools[p.Name] = poolTypes{p.Types, byName}
	}
	for name := range s.pools {
		if !there[name] {
			delete(s.pools, name)
		}
	}
}

// use returns what a claim's node uses of a commitment, or the most that it may use while it is being launched, in millionths of a dollar per hour,
// with its list price in $/h; false: it can't use it, or may become an instance that can't.
func (s *Source) use(m *capacity.Commitment, c *capacity.Claim) (use int64, list float64, ok bool) {
	switch {
	case c.Launched:
		if !c.Shared() {
			return 0, 0, false
		}
		return s.useOf(m, c.Pool, capacity.OfferKey{InstanceType: c.InstanceType, Zone: c.Zone, CapacityType: c.CapacityType})
	case c.LaunchBatch == nil:
		return 0, 0, false // nothing is being launched for it
	}
	for _, key := range c.LaunchBatch.Offers {
		most, price, may := s.useOf(m, c.Pool, key)
		if !may {
			return 0, 0, false
		}
		use, list, ok = max(use, most), max(list, price), true
	}
	return use, list, ok
}

// useOf returns what an instance of the pool with this key uses of a commitment, in millionths of a dollar per hour, with its list price in $/h. If
// the pool doesn't offer it in that zone any more, the dearest zone counts.
func (s *Source) useOf(m *capacity.Commitment, pool string, key capacity.OfferKey) (use int64, list float64, ok bool) {
	if key.CapacityType != capacity.CapacityTypeOnDemand || !key.Shared() {
		return 0, 0, false
	}
	t := s.pools[pool].byName[key.InstanceType]
	if t == nil {
		t = s.known[key.InstanceType]
	}
	if t == nil {
		return 0, 0, false
	}
	for i := range t.Offers {
		o := &t.Offers[i]
		if n, may := m.Use(t.Name, o); may {
			if o.Zone == key.Zone {
				return n, o.Price, true
			}
			use, list, ok = max(use, n), max(list, o.Price), true
		} else if o.Zone == key.Zone && o.CapacityType == capacity.CapacityTypeOnDemand && o.Shared() {
			return 0, 0, false
		}
	}
	return use, list, ok
}
