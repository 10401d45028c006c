package antiaffinity

import "github.com/dovetail-scheduler/dovetail/pkg/capacity"

// Apart returns the classes of the index whose pods must not share a node with pods of c (capacity.Apart), as far as counts returns true for them;
// nil: there are none. c need not be in the index. counts is called for each class that may conflict, once or more often.
func (x *Index) Apart(c *capacity.Class, counts func(capacity.ClassKey) bool) map[capacity.ClassKey]bool {
	s := search{index: x, of: c, counts: counts}
	s.repelling(listKey{namespace: c.Namespace})
	s.repelling(listKey{everywhere: true})
	for i := range c.AntiAffinity {
		t := &c.AntiAffinity[i]
		if t.TopologyKey != capacity.LabelHostname {
			continue
		}
		if everywhere(t) {
			for namespace := range x.namespaces {
				s.selected(t, namespace)
			}
			continue
		}
		for _, namespace := range t.Namespaces {
			s.selected(t, namespace)
		}
	}
	return s.found
}

// search is one call of Apart.
type search struct {
	index  *Index
	of     *capacity.Class
	counts func(capacity.ClassKey) bool
	found  map[capacity.ClassKey]bool
}

// repelling looks at the classes that have anti-affinity terms which may select pods of search.of.
func (s *search) repelling(in listKey) {
	in.kind = repels
	s.list(in)
	for key, value := range s.of.Labels {
		in.kind, in.key, in.value = wantsKey, key, ""
		s.list(in)
		in.kind, in.value = wants, value
		s.list(in)
	}
}

// selected looks at the classes in the namespace whose pods the anti-affinity term t of search.of may select.
func (s *search) selected(t *capacity.PodTerm, namespace string) {
	for _, key := range s.index.shortest(t, listKey{namespace: namespace}, [...]kind{within, has, hasKey}) {
		s.list(key)
	}
}

func (s *search) list(key listKey) {
	l := s.index.lists[key]
	if l == nil {
		return
	}
	for _, m := range l.members {
		if s.found[m.class.Key] || !s.counts(m.class.Key) || !capacity.Apart(s.of, m.class) {
			continue
		}
		if s.found == nil {
			s.found = map[capacity.ClassKey]bool{}
		}
		s.found[m.class.Key] = true
	}
}
