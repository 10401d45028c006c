package capacity

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
)

// count counts the pods on existing nodes. It also makes the groups of existing pods' own anti-affinity terms, if these select pods of
// the batches.
func (t *topology) count(nodes []*Node, podBatches []*podBatch, names NamespaceLabels) {
	own := len(t.groups)
	t.countOwners(nodes, podBatches, names)
	if own == 0 {
		return
	}
	spreads := make([]*group, 0, own)
	index := &groupIndex{byKey: map[string]map[string][]*group{}}
	ports := false
	for _, g := range t.groups[:own] {
		if g.filter != nil {
			spreads = append(spreads, g)
			t.eligible[g] = packing.NewBits(len(nodes))
		}
		ports = ports || g.port != nil
		index.add(g)
	}
	for i, n := range nodes {
		for _, g := range spreads {
			if d, ok := t.nodeDomain(g, n, i); ok && g.filter.allows(n) {
				t.eligible[g].Set(i)
				g.nodes[d]++
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
				if d, ok := t.nodeDomain(g, n, i); ok {
					g.add(d, 1)
				}
			})
			if ports {
				t.countPorts(p, i, t.groups[:own])
			}
		}
	}
}

func (t *topology) nodeDomain(g *group, n *Node, index int) (int, bool) {
	if g.host {
		return index, true
	}
	v, ok := n.Labels[g.key]
	if !ok {
		return 0, false
	}
	return t.domain(g.key, v), true
}

func (t *topology) countPorts(p *corev1.Pod, node int, groups []*group) {
	taken := hostPorts(p)
	if len(taken) == 0 {
		return
	}
	for _, g := range groups {
		if g.port != nil && portsConflict(taken, []corev1.ContainerPort{*g.port}) {
			g.add(node, 1)
		}
	}
}

// countOwners counts the pods whose anti-affinity excludes pods of the batches.
func (t *topology) countOwners(nodes []*Node, podBatches []*podBatch, names NamespaceLabels) {
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
			k := make(keyBytes, 0, 256)
			k.text(p.Namespace)
			k.message(p.Spec.Affinity.PodAntiAffinity.Size(), p.Spec.Affinity.PodAntiAffinity.MarshalTo)
			found, ok := seen[string(k)]
			if !ok {
				found = known{t.concerning(terms, p.Namespace, podBatches, names)}
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
func (t *topology) concerning(terms []corev1.PodAffinityTerm, namespace string, podBatches []*podBatch, names NamespaceLabels) []*group {
	var out []*group
	for i := range terms {
		term, err := podTerm(&terms[i], namespace, 0)
		if err != nil {
			continue
		}
		id := "term" + termID(&term)
		if g, ok := t.byID[id]; ok {
			out = append(out, g)
			continue
		}
		probe := newGroup(id, term.TopologyKey, &term)
		for _, u := range podBatches {
			if probe.matches(u.Namespace, u.Labels, names) {
				out = append(out, t.group(id, &term))
				break
			}
		}
	}
	return out
}

// allows reports whether the filter counts an existing node.
func (f *nodeFilter) allows(n *Node) bool {
	a := asks{terms: f.terms, tolerations: f.tolerations, preferred: true}
	for _, key := range f.keys {
		if _, ok := n.Labels[key]; !ok && key != labelHostname {
			return false
		}
	}
	// A cordoned node counts until it has the unschedulable taint, as in kube-scheduler.
	if f.taints && a.tolerates(n.Taints) != nil {
		return false
	}
	return a.matches(n.label)
}

var unschedulableTaint = corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}

// label returns a label of an existing node, or its name for the key of matchFields.
func (n *Node) label(key string) (string, bool) {
	v, ok := n.Labels[key]
	if !ok && key == fieldNodeName {
		return n.Name, true
	}
	return v, ok
}

// groupIndex finds the groups that may count a pod without checking every group.
type groupIndex struct {
	byKey map[string]map[string][]*group
	rest  []*group
}

func (x *groupIndex) add(g *group) {
	switch {
	case g.port != nil:
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
