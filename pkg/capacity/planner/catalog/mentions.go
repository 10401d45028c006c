package catalog

import (
	"maps"
	"slices"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Mentions are the node labels that the demand asks for, or by whose values its pods are counted. The zero value mentions none.
type Mentions struct {
	// asked are the node terms of the demand; counted are the topology keys of its spread and affinity constraints.
	asked   []capacity.Requirements
	counted map[string]bool
}

// Add adds what the node terms of a class ask for, required or preferred.
func (m *Mentions) Add(class *capacity.Class) {
	m.asked = append(m.asked, class.Terms...)
	for _, t := range class.Preferred {
		m.asked = append(m.asked, t.Term)
	}
}

// Count adds a topology key by whose values pods are counted.
func (m *Mentions) Count(key string) {
	if m.counted == nil {
		m.counted = map[string]bool{}
	}
	m.counted[key] = true
}

// among returns the node terms of the demand, reduced to these keys: sorted, each once, without terms that ask for none of the keys.
func (m *Mentions) among(keys []string) []capacity.Requirements {
	if len(keys) == 0 {
		return nil
	}
	byID := map[string]capacity.Requirements{}
	for _, term := range m.asked {
		var part capacity.Requirements
		for _, key := range keys {
			if r, ok := term[key]; ok {
				if part == nil {
					part = capacity.Requirements{}
				}
				part[key] = r
			}
		}
		if part != nil {
			var id capacity.KeyBytes
			id.Requirements(part)
			byID[string(id)] = part
		}
	}
	out := make([]capacity.Requirements, 0, len(byID))
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		out = append(out, byID[id])
	}
	return out
}
