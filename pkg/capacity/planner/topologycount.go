package planner

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
)

// count counts the pods on existing nodes. It also makes the groups of existing pods' own anti-affinity terms, if these select pods of
// the batches.
func (t *topology) count(nodes []*capacity.Node, batches []*batch, names capacity.NamespaceLabels) {
	own := len(t.groups)
	t.countOwners(nodes, batches, names)
	if own == 0 {
		return
	}
	spreads := make([]*group, 0, own)
	index := &groupIndex{byKey: map[string]map[string][]*group{}}
	for _, g := range t.groups[:own] {
		if g.filter != nil {
			spreads = append(spreads, g)
			t.eligible[g] = packing.NewBits(len(nodes))
		}
		index.add(g)
	}
	for i, n := range nodes {
		for _, g := range spreads {
			if d, ok := t.nodeDomain(g, n, i); ok && g.filter.allows(n.Taints, n.Label) {
				t.eligible[g].Set(i)
				g.nodes[d]++
			}
		}
		count := func(g *group) {
			if d, ok := t.nodeDomain(g, n, i); ok {
				g.add(d, 1)
			}
		}
		for _, p := range n.Pods {
			index.each(p, func(g *group) {
				if !g.matches(p.Namespace, p.Labels, names) {
					return
				}
				if g.filter != nil && (p.DeletionTimestamp != nil || !t.eligible[g].Has(i)) {
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

func (t *topology) nodeDomain(g *group, n *capacity.Node, index int) (int, bool) {
	if g.host {
		return index, true
	}
	v, ok := n.Labels[g.key]
	if !ok {
		return 0, false
	}
	return t.domain(g.key, v), true
}

// countOwners counts the pods whose anti-affinity excludes pods of the batches.
func (t *topology) countOwners(nodes []*capacity.Node, batches []*batch, names capacity.NamespaceLabels) {
	type known struct{ groups []*group }
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
					g.owners[d]++
				}
			}
		}
	}
}

// concerning returns the groups of the terms that select pods of any batch. Terms that can't be parsed select nothing, as in
// kube-scheduler.
func (t *topology) concerning(terms []corev1.PodAffinityTerm, namespace string, batches []*batch, names capacity.NamespaceLabels) []*group {
	var out []*group
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
		probe := newGroup(id, term.TopologyKey, &term)
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
	byKey map[string]map[string][]*group
	rest  []*group
}

func (x *groupIndex) add(g *group) {
	switch {
	case g.byKind:
	case g.firstKey == "":
		x.rest = append(x.rest, g)
	default:
		if x.byKey[g.firstKey] == nil {
			x.byKey[g.firstKey] = map[string][]*group{}
		}
		x.byKey[g.firstKey][g.firstValue] = append(x.byKey[g.firstKey][g.firstValue], g)
	}
}

func (x *groupIndex) each(p *corev1.Pod, f func(*group)) {
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
func (t *topology) countDaemons(sets []*capacity.DaemonSet, batches []*batch, names capacity.NamespaceLabels) {
	for i, d := range sets {
		if a := d.Class.Pod.Spec.Affinity; a != nil && a.PodAntiAffinity != nil {
			for _, g := range t.concerning(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, d.Class.Namespace, batches, names) {
				g.repelling = append(g.repelling, i)
			}
		}
	}
	near := map[*group]bool{} // a daemon's pod comes too late for others to have affinity to it
	for _, u := range batches {
		for i := range u.all {
			if u.all[i].effect == attracts {
				near[u.all[i].group] = true
			}
		}
	}
	for _, g := range t.groups {
		for i, d := range sets {
			if !near[g] && g.matches(d.Class.Namespace, d.Class.Labels, names) {
				g.daemons = append(g.daemons, i)
			}
		}
		if g.filter != nil && !g.host || len(g.daemons)+len(g.repelling) > 0 {
			t.opening = append(t.opening, g)
		}
	}
}
