package catalog

import "github.com/dovetail-scheduler/dovetail/pkg/capacity"

// Mentions are the label keys that the demand asks for, with the values that it names.
type Mentions map[string]map[string]bool

// Key adds a key, and returns the values that are named for it.
func (m Mentions) Key(key string) map[string]bool {
	if m[key] == nil {
		m[key] = map[string]bool{}
	}
	return m[key]
}

// Add adds what the node terms of a class ask for, required or preferred.
func (m Mentions) Add(class *capacity.Class) {
	for _, t := range class.Terms {
		m.term(t)
	}
	for _, t := range class.Preferred {
		m.term(t.Term)
	}
}

func (m Mentions) term(rs capacity.Requirements) {
	for k, r := range rs {
		values, excluded := r.Values()
		named := m.Key(k)
		for _, v := range values {
			if !excluded {
				named[v] = true
			}
		}
	}
}
