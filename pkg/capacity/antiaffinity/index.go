package antiaffinity

import (
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Index holds classes in lists: by what labels they have, and by what labels their anti-affinity terms select. Several goroutines may ask at once as long as
// none changes it.
type Index struct {
	entries map[capacity.ClassKey]*entry
	lists   map[listKey]*list
	// namespaces is the number of classes by namespace.
	namespaces map[string]int
}

// kind says what the classes of a list have in common.
type kind uint8

const (
	within   kind = iota // their pods are in the namespace
	has                  // their pods are in the namespace and have the label with the value
	hasKey               // their pods are in the namespace and have the label
	repels               // one of their terms selects all pods of the namespace: its selector is empty
	wants                // one of their terms selects only pods of the namespace that have the label with one of some values, this one among them
	wantsKey             // one of their terms selects only pods of the namespace that have the label
)

type listKey struct {
	kind       kind
	everywhere bool // the terms select pods of every namespace, so namespace is empty
	namespace  string
	key, value string
}

// list is the classes that have something in common, in no order.
type list struct {
	key     listKey
	members []member
}

// member is a class on a list. entry.places[place] says where on the list it is, so that Remove needn't search.
type member struct {
	*entry
	place int
}

// entry is a class of the index, with its positions on all lists that it is on.
type entry struct {
	class  *capacity.Class
	places []place
}

// place is a position in a list.
type place struct {
	*list
	at int
}

// New returns an empty index.
func New() *Index {
	return &Index{entries: map[capacity.ClassKey]*entry{}, lists: map[listKey]*list{}, namespaces: map[string]int{}}
}

// Len returns the number of classes.
func (x *Index) Len() int { return len(x.entries) }

// Add adds a class, unless one with its key is there.
func (x *Index) Add(c *capacity.Class) {
	if _, ok := x.entries[c.Key]; ok {
		return
	}
	e := &entry{class: c}
	x.entries[c.Key] = e
	x.namespaces[c.Namespace]++
	x.put(e, listKey{kind: within, namespace: c.Namespace})
	for key, value := range c.Labels {
		x.put(e, listKey{kind: has, namespace: c.Namespace, key: key, value: value})
		x.put(e, listKey{kind: hasKey, namespace: c.Namespace, key: key})
	}
	for i := range c.AntiAffinity {
		t := &c.AntiAffinity[i]
		if t.TopologyKey != capacity.LabelHostname {
			continue
		}
		if everywhere(t) {
			x.addTerm(e, t, listKey{everywhere: true})
			continue
		}
		for _, namespace := range t.Namespaces {
			x.addTerm(e, t, listKey{namespace: namespace})
		}
	}
}

// addTerm puts the class on the lists of one of the term's requirements: the one whose lists are the shortest now, so that a label which many
// classes share (app.kubernetes.io/managed-by, say) isn't chosen where there is another.
func (x *Index) addTerm(e *entry, t *capacity.PodTerm, in listKey) {
	for _, key := range x.shortest(t, in, [...]kind{repels, wants, wantsKey}) {
		x.put(e, key)
	}
}

// shortest returns the lists of one requirement of the term's selector: the requirement whose lists have the fewest members. One is enough, because a
// pod that the term selects meets all requirements. kinds are the kinds of the lists to return: if there is no requirement, if it names a label's
// values, and if it names only the label. It returns nil if the term selects no pod.
func (x *Index) shortest(t *capacity.PodTerm, in listKey, kinds [3]kind) []listKey {
	if t.Selector == nil {
		return nil
	}
	requirements, selectable := t.Selector.Requirements()
	if !selectable {
		return nil
	}
	in.kind = kinds[0]
	best, least := []listKey{in}, -1
	for i := range requirements {
		keys := listsOf(&requirements[i], in, kinds)
		if keys == nil {
			continue
		}
		n := len(keys)
		for _, key := range keys {
			n += x.length(key)
		}
		if least < 0 || n < least {
			best, least = keys, n
		}
	}
	return best
}

// listsOf returns the lists of a requirement of a selector, or nil if pods without the label meet it, so that no list has all of them.
func listsOf(r *labels.Requirement, in listKey, kinds [3]kind) []listKey {
	in.key = r.Key()
	switch r.Operator() {
	case selection.In, selection.Equals, selection.DoubleEquals:
		in.kind = kinds[1]
		out := []listKey{}
		for value := range r.Values() {
			in.value = value
			out = append(out, in)
		}
		return out
	case selection.Exists, selection.GreaterThan, selection.LessThan:
		in.kind = kinds[2]
		return []listKey{in}
	}
	return nil
}

func (x *Index) length(key listKey) int {
	if l := x.lists[key]; l != nil {
		return len(l.members)
	}
	return 0
}

func (x *Index) put(e *entry, key listKey) {
	l := x.lists[key]
	if l == nil {
		l = &list{key: key}
		x.lists[key] = l
	}
	l.members = append(l.members, member{e, len(e.places)})
	e.places = append(e.places, place{l, len(l.members) - 1})
}

// Remove removes the class with the key, if there is one.
func (x *Index) Remove(key capacity.ClassKey) {
	e, ok := x.entries[key]
	if !ok {
		return
	}
	delete(x.entries, key)
	if x.namespaces[e.class.Namespace]--; x.namespaces[e.class.Namespace] == 0 {
		delete(x.namespaces, e.class.Namespace)
	}
	for _, p := range e.places {
		last := len(p.members) - 1
		moved := p.members[last]
		p.members[p.at] = moved
		moved.places[moved.place].at = p.at
		p.members[last] = member{}
		if p.list.members = p.members[:last]; last == 0 {
			delete(x.lists, p.key)
		}
	}
}

// everywhere reports whether the term selects pods of every namespace, as capacity.PodTerm.Selects has it.
func everywhere(t *capacity.PodTerm) bool {
	return t.NamespaceSelector != nil && t.NamespaceSelector.Empty()
}
