package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/outside"
)

const (
	// firstHour is for how long a new node is not emptied.
	firstHour = time.Hour
	// restartCost is the annotation of pools that says what moving a pod costs.
	restartCost = "dovetail.sh/restart-cost"
)

// costsNothing reports whether moving pods of a pool costs nothing; then there is no first hour.
func costsNothing(pool *karpv1.NodePool) bool {
	d, err := time.ParseDuration(pool.Annotations[restartCost])
	return err == nil && d == 0
}

func labelSet(l map[string]string) labels.Set { return labels.Set(l) }

// nodeGrace is how long a Node may be Ready after its kubelet was last heard of: kube-controller-manager's --node-monitor-grace-period.
const nodeGrace = 50 * time.Second

// room judges whether all pods that have to move fit, when a claim is deleted (I1).
func (e *emptyings) room(m *moment, r *emptied, behind time.Duration, together bool) {
	r.moving = e.toMove(m, r)
	good := e.receivers(m)
	for _, n := range good {
		r.receivers = append(r.receivers, n.Name)
	}
	var there []*corev1.Pod
	for _, p := range m.pods {
		if p.Spec.NodeName != "" && p.Spec.NodeName != r.node.Name {
			there = append(there, p)
		}
	}
	r.others = there
	names := outside.Resources(r.moving)
	got := outside.Place(r.moving, outside.FreeOn(good, there, names), names)
	// What the product has seen may be a little older: it may count on nodes that have been lost since. A Node stays Ready for a while when
	// its instance is gone.
	before := slices.Clone(good)
	for name, was := range e.asOf {
		unnoticed := behind
		if n := m.nodes[name]; n != nil && outside.Ready(n) {
			unnoticed += nodeGrace
		}
		if name != r.node.Name && !slices.Contains(r.receivers, name) && m.at.Sub(was.at) <= unnoticed && !disruptedNow(m, name) {
			before = append(before, was.node)
		}
	}
	r.lostBefore = len(before) > len(good)
	if got != outside.Fits {
		if late := outside.Place(r.moving, outside.FreeOn(before, there, names), names); late == outside.Fits {
			e.made["consolidation: allowed, a receiving node was lost just before"]++
			return
		}
	}
	switch {
	case got == outside.Fits:
		e.made["consolidation: I1, there is room for all pods when the claim is deleted"]++
	case together:
	case got == outside.Undecided:
		e.made["consolidation: I1, undecided"]++
	default:
		r.wrong = append(r.wrong, fmt.Sprintf("its pods don't fit elsewhere: %s to be moved, on %s", podNames(r.moving), e.describe(before, there)))
	}
}

// disruptedNow reports whether the product ends a node by its own decision. A Node that a user has deleted gets the taint, too.
func disruptedNow(m *moment, name string) bool {
	n := m.nodes[name]
	if n != nil && n.DeletionTimestamp != nil {
		claim := claimOf(m.view, n.Spec.ProviderID)
		if claim == nil || claim.DeletionTimestamp == nil || !n.DeletionTimestamp.After(claim.DeletionTimestamp.Time) { // the Node was deleted first
			return false
		}
	}
	return n != nil && slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == karpv1.DisruptedTaintKey })
}

// receivers returns the nodes that can be counted on.
func (e *emptyings) receivers(m *moment) (out []*corev1.Node) {
	for _, claim := range m.claims {
		if n := m.nodes[claim.Status.NodeName]; n != nil && outside.Receives(n, claim) && m.live[claim.Status.ProviderID] {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// toMove returns the pods of the node, and those of other nodes that are being emptied, that need another one. Successors of pods that were
// evicted and have no node yet are among them.
func (e *emptyings) toMove(m *moment, r *emptied) (out []*corev1.Pod) {
	on := map[string]bool{r.node.Name: true}
	evicted := map[types.UID]int{}
	since := m.at
	for _, other := range e.nodes {
		claim := m.claims[other.claim]
		if claim == nil || claim.DeletionTimestamp == nil || other.leader != e.leader || other.forced || len(other.wrong) > 0 {
			continue
		}
		on[other.node.Name] = true
		if other.at.Before(since) {
			since = other.at
		}
		for _, p := range other.moving {
			if is := m.pods[p.UID]; (is == nil || is.DeletionTimestamp != nil) && p.Spec.NodeName == other.node.Name {
				evicted[metav1.GetControllerOfNoCopy(p).UID]++
			}
		}
	}
	var waiting []*corev1.Pod
	for _, p := range m.podsInOrder() {
		owner := metav1.GetControllerOfNoCopy(p)
		switch {
		case owner == nil:
		case on[p.Spec.NodeName] && reschedulable(p):
			out = append(out, p)
		case p.Spec.NodeName == "" && lives(p) && p.DeletionTimestamp == nil:
			waiting = append(waiting, p)
		case p.CreationTimestamp.After(since) && lives(p):
			evicted[owner.UID]--
		}
	}
	for _, p := range waiting {
		if owner := metav1.GetControllerOfNoCopy(p).UID; evicted[owner] > 0 {
			evicted[owner]--
			out = append(out, p)
		}
	}
	return out
}

// evicts judges an eviction: the pods that had to move when the claim was deleted still fit beside those that were there then.
func (e *emptyings) evicts(m *moment, namespace, name string) {
	var pod *corev1.Pod
	for _, p := range m.pods {
		if p.Namespace == namespace && p.Name == name {
			pod = p
		}
	}
	if pod == nil || daemonic(pod) || pod.DeletionTimestamp != nil || !lives(pod) { // an eviction of a pod that goes already does nothing
		return
	}
	var r *emptied
	for _, other := range e.nodes {
		if other.node.Name == pod.Spec.NodeName && m.claims[other.claim] != nil {
			r = other
		}
	}
	if r == nil || len(r.wrong) > 0 {
		return
	}
	r.evictions++
	e.evicted++
	if !reschedulable(pod) {
		if boundFor(pod, r.at) > 0 { // it was there when the claim was deleted
			r.wrong = append(r.wrong, fmt.Sprintf("pod %s was evicted, and no controller makes another one", name))
		}
		return
	}
	good := e.receivers(m)
	var there []*corev1.Pod
	for _, p := range r.others {
		if m.pods[p.UID] != nil {
			there = append(there, p)
		}
	}
	names := outside.Resources(r.moving)
	if outside.Place(r.moving, outside.FreeOn(good, there, names), names) != outside.FitsNot {
		e.made["consolidation: I1, there is still room at an eviction"]++
		return
	}
	switch {
	case r.leader != e.leader:
		e.made["consolidation: allowed, another leader since"]++
	case r.lostBefore || e.lost(m, r):
		e.made["consolidation: allowed, a receiving node was lost since"]++
	default:
		r.wrong = append(r.wrong, fmt.Sprintf("when pod %s was evicted, there was no room any more: %s to be moved, on %s", name, podNames(r.moving), e.describe(good, there)))
	}
}

// lost reports whether a node that could receive pods is gone or ended, and not because the product chose to empty it.
func (e *emptyings) lost(m *moment, r *emptied) bool {
	for _, name := range r.receivers {
		n := m.nodes[name]
		if n == nil || !m.live[n.Spec.ProviderID] && !disruptedNow(m, name) {
			return true
		}
		claim := claimOf(m.view, n.Spec.ProviderID)
		if claim != nil && e.ended[claim.Name] {
			return true
		}
		if !outside.Receives(n, claim) && (claim == nil || e.nodes[claim.Name] == nil) && !disruptedNow(m, name) {
			return true
		}
	}
	return false
}

// describe lists nodes with what is free.
func (e *emptyings) describe(nodes []*corev1.Node, there []*corev1.Pod) string {
	var out []string
	names := outside.Resources(nil)
	for _, f := range outside.FreeOn(nodes, there, names) {
		out = append(out, fmt.Sprintf("%s with %dm, %dMi, %d pods free", f.Node.Name, f.Left[0], f.Left[1]>>20, f.Left[2]))
	}
	if len(out) == 0 {
		return "no node"
	}
	return strings.Join(out[:min(len(out), 12)], ", ")
}

func podNames(list []*corev1.Pod) string {
	var out []string
	names := outside.Resources(nil)
	for _, p := range list {
		a := outside.Requests(p, names)
		out = append(out, fmt.Sprintf("%s (%dm, %dMi)", p.Name, a[0], a[1]>>20))
	}
	return strings.Join(out, " ")
}
