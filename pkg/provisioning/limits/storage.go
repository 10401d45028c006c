package limits

import (
	"maps"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/storage"
)

// Storage adds to instance types the storage that their nodes have published. It belongs to the planner goroutine.
type Storage struct {
	of   *storage.Capacities
	last map[string]limitedTypes // by pool
}

// limitedTypes are a pool's instance types without (from) and with (types) the storage that their nodes have published. They are kept as long as
// nothing changes, because planners recognize types by their slice.
type limitedTypes struct {
	from, types []*capacity.InstanceType
	limits      map[string]map[string]int64 // bytes of storage by type, then by capacity.StorageOf of the storage class
}

// NewStorage returns a Storage that adds what of knows.
func NewStorage(of *storage.Capacities) *Storage { return &Storage{of: of} }

// On returns the pools with the storage added to their instance types, as a planner has to see them.
func (s *Storage) On(pools []*capacity.Pool) []*capacity.Pool {
	shown := s.of.Shown()
	last := s.last
	s.last = map[string]limitedTypes{}
	out := make([]*capacity.Pool, 0, len(pools))
	for _, p := range pools {
		limits := map[string]map[string]int64{}
		for _, t := range p.Types {
			if of := shown.Of(p.Name, t.Name); len(of) > 0 {
				limits[t.Name] = of
			}
		}
		if len(limits) > 0 {
			known := last[p.Name]
			if !known.are(p.Types, limits) {
				known = limitedTypes{p.Types, withStorage(p.Types, limits), limits}
			}
			s.last[p.Name] = known
			limited := *p
			limited.Types = known.types
			p = &limited
		}
		out = append(out, p)
	}
	return out
}

func (l limitedTypes) are(from []*capacity.InstanceType, limits map[string]map[string]int64) bool {
	return len(from) == len(l.from) && &from[0] == &l.from[0] && maps.EqualFunc(limits, l.limits, maps.Equal)
}

func withStorage(types []*capacity.InstanceType, limits map[string]map[string]int64) []*capacity.InstanceType {
	out := make([]*capacity.InstanceType, 0, len(types))
	for _, t := range types {
		if of := limits[t.Name]; of != nil {
			limited := *t
			limited.VolumeLimits = maps.Clone(of)
			maps.Copy(limited.VolumeLimits, t.VolumeLimits)
			t = &limited
		}
		out = append(out, t)
	}
	return out
}
