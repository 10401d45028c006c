package topology

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
)

// count counts the pods on existing nodes. It also makes the groups of existing pods' own anti-affinity terms, if these select pods of
// the batches.
func (t *Groups) count(nodes []*capacity.Node, batches []*Batch, names capacity.NamespaceLabels) {
	own := len(t.Groups)
	t.countOwners(nodes, batches, names)
	if own == 0 {
		return
	}
	spreads := make([]*Group, 0, own)
	index := &groupIndex{byKey: map[string]map[string][]*Group{}}
	for _, g := range t.Groups[:own] {
		if g.Filter != nil {
			spreads = append(spreads, g)
			t.Eligible[g] = packing.NewBits(len(nodes))
		}
		index.add(g)
	}
	for i, n := range nodes {
		for _, g := range spreads {
			if d, ok := t.nodeDomain(g, n, i); ok && g.Filter.Allows(n.Taints, n.Label) {
				t.Eligible[g].Set(i)
				g.Nodes[d]++
			}
		}
		count := func(g *Group) {
			if d, ok := t.nodeDomain(g, n, i); ok {
				g.Add(d, 1)
			}
		}
		for _, p := range n.Pods {
			index.each(p, func(g *Group) {
				if !g.matches(p.Namespace, p.Labels, names) {
					return
				}
				if g.Filter != nil && (p.DeletionTimestamp != nil || !t.Eligible[g].Has(i)) {
					return
				}
				count(g)
			})
			for _, counter := range t.counters {
				counter(p, count)
			}
		}
	}
}

func (t *Groups) nodeDomain(g *Group, n *capacity.Node, index int) (int, bool) {
	if g.Host {
		return index, true
	}
	v, ok := n.Labels[g.Key]
	if !ok {
		return 0, false
	}
	return t.domain(g.Key, v), true
}

// countOwners counts, in Group.Owners, the existing pods with required anti-affinity terms that select pods of the batches.
func (t *Groups) countOwners(nodes []*capacity.Node, batches []*Batch, names capacity.NamespaceLabels) {
	type known struct{ groups []*Group }
	seen := map[string]known{}
	for i, n := range nodes {
		for _, p := range n.Pods {
			if p.Spec.Affinity == nil || p.Spec.Affinity.PodAntiAffinity == nil {
				continue
			}
			terms := p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
			if len(terms) == 0 {
				continue
			}
			k := make(capacity.KeyBytes, 0, 256)
			k.Text(p.Namespace)
			k.Message(p.Spec.Affinity.PodAntiAffinity.Size(), p.Spec.Affinity.PodAntiAffinity.MarshalTo)
			found, ok := seen[string(k)]
			if !ok {
				found = known{t.concerning(terms, p.Namespace, batches, names)}
				seen[string(k)] = found
			}
			for _, g := range found.groups {
				if d, ok := t.nodeDomain(g, n, i); ok {
					g.Owners[d]++
				}
			}
		}
	}
}

// concerning returns the groups of the terms that select pods of any batch. Terms that can't be parsed select nothing, as in
// kube-scheduler.
func (t *Groups) concerning(terms []corev1.PodAffinityTerm, namespace string, batches []*Batch, names capacity.NamespaceLabels) []*Group {
	var out []*Group
	for i := range terms {
		term, err := capacity.NewPodTerm(&terms[i], namespace, 0)
		if err != nil {
			continue
		}
		id := "term" + termID(&term)
		if g, ok := t.byID[id]; ok {
			out = append(out, g)
			continue
		}
		probe := newGroup(&term)
		for _, u := range batches {
			if probe.matches(u.Namespace, u.Labels, names) {
				out = append(out, t.group(id, &term))
				break
			}
		}
	}
	return out
}

// groupIndex finds the groups that may count a pod without checking every group.
type groupIndex struct {
	byKey map[string]map[string][]*Group // by a label and value that the group's selector requires
	rest  []*Group                       // groups whose selector requires no single value of a label
}

func (x *groupIndex) add(g *Group) {
	switch key, value := g.selected[0].firstKey, g.selected[0].firstValue; {
	case g.byKind:
	case key == "":
		x.rest = append(x.rest, g)
	default:
		if x.byKey[key] == nil {
			x.byKey[key] = map[string][]*Group{}
		}
		x.byKey[key][value] = append(x.byKey[key][value], g)
	}
}

func (x *groupIndex) each(p *corev1.Pod, f func(*Group)) {
	for key, values := range x.byKey {
		if v, ok := labels.Set(p.Labels)[key]; ok {
			for _, g := range values[v] {
				f(g)
			}
		}
	}
	for _, g := range x.rest {
		f(g)
	}
}

// countDaemons finds the groups that count daemons' pods, and those of anti-affinity terms that daemons' pods have.
func (t *Groups) countDaemons(sets []*capacity.DaemonSet, batches []*Batch, names capacity.NamespaceLabels) {
	for i, d := range sets {
		if a := d.Class.Pod.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
			for _, g := range t.concerning(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, d.Class.Namespace, batches, names) {
				g.Repelling = append(g.Repelling, i)
			}
		}
	}
	near := map[*Group]bool{} // a daemon's pod comes too late for others to have affinity to it
	for _, u := range batches {
		for i := range u.All {
			if u.All[i].Effect == Attracts {
				near[u.All[i].Group] = true
			}
		}
	}
	for _, g := range t.Groups {
		for i, d := range sets {
			if !near[g] && g.matches(d.Class.Namespace, d.Class.Labels, names) {
				g.Daemons = append(g.Daemons, i)
			}
		}
		if g.Filter != nil && !g.Host || len(g.Daemons)+len(g.Repelling) > 0 {
			t.Opening = append(t.Opening, g)
		}
	}
}
