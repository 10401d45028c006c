package explain

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// promisedFor is how long after a node's initialization a reservation counts that its NodeClaim records: as long as a restarted scheduler restores it
// (pkg/launch/records).
const promisedFor = 5 * time.Minute

// promise is capacity of a node that is reserved for pods which their controller has yet to create: those of a node that is replaced or emptied, for which
// this one was launched. Such a pod has no object, so that no reservation names it.
type promise struct {
	requests corev1.ResourceList // of each pod
	pods     int
}

// promisesOf returns what is reserved so, by the name of the NodeClaim. What an owner's pods request is taken from one that is there. A pod of the owner that is
// on the node, or that waits, has its capacity already.
func promisesOf(c *Cluster) map[string][]promise {
	type count struct {
		waiting  int
		on       map[string]int // by node
		requests corev1.ResourceList
	}
	owners := map[types.UID]*count{}
	for _, pod := range manifest.All[*corev1.Pod](c.Set) {
		owner := objects.Controller(pod)
		if owner == "" || objects.Ended(pod) {
			continue
		}
		o := owners[owner]
		if o == nil {
			o = &count{on: map[string]int{}, requests: resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})}
			owners[owner] = o
		}
		if pod.Spec.NodeName != "" {
			o.on[pod.Spec.NodeName]++
		} else if _, reserved := c.bookings[pod.UID]; !reserved {
			o.waiting++
		}
	}
	out := map[string][]promise{}
	for _, nc := range manifest.All[*karpv1.NodeClaim](c.Set) {
		if karpenter.OfAnotherProvider(nc, c.Settings.NodeClass.GroupKind()) || !nc.DeletionTimestamp.IsZero() || servesFor(nc, c.Now) > promisedFor {
			continue
		}
		slots := map[types.UID]int{}
		var order []types.UID
		claim := karpenter.ClaimOf(nc, c.Settings.NodeClass.GroupKind())
		for i := range claim.Slots {
			if owner := claim.Slots[i].Owner; owner != "" {
				if slots[owner]++; slots[owner] == 1 {
					order = append(order, owner)
				}
			}
		}
		for _, owner := range order {
			o := owners[owner]
			if o == nil {
				continue // it has no pod, so that nothing moves
			}
			left := slots[owner] - o.on[nc.Status.NodeName]
			came := min(max(left, 0), o.waiting)
			o.waiting -= came
			if left -= came; left > 0 {
				out[nc.Name] = append(out[nc.Name], promise{o.requests, left})
			}
		}
	}
	return out
}

// servesFor is for how long the node of a claim has been initialized; 0: it isn't.
func servesFor(nc *karpv1.NodeClaim, now time.Time) time.Duration {
	cond := conditionOf(nc.Status.Conditions, karpv1.ConditionTypeInitialized)
	if cond == nil || !cond.IsTrue() {
		return 0
	}
	return now.Sub(cond.LastTransitionTime.Time)
}

// withPromises returns a set of the cluster in which a pod stands for each promise, so that a plan takes no such capacity for free.
func (c *Cluster) withPromises(set *manifest.Set) *manifest.Set {
	there := map[string]bool{} // not yet: what is being launched, and whose instance isn't known
	for _, n := range manifest.All[*corev1.Node](set) {
		there[n.Name] = true
	}
	var added []client.Object
	for _, nc := range manifest.All[*karpv1.NodeClaim](c.Set) {
		node := nc.Status.NodeName
		if node == "" {
			node = nc.Name // as pkg/whatif calls the node that it adds
		}
		if !there[node] {
			continue
		}
		for i, p := range c.promised[nc.Name] {
			for n := range p.pods {
				name := fmt.Sprintf("reserved-%s-%d-%d", nc.Name, i, n)
				added = append(added, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name, UID: types.UID(name)},
					Spec:   corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "reserved", Image: "reserved", Resources: corev1.ResourceRequirements{Requests: p.requests}}}},
					Status: corev1.PodStatus{Phase: corev1.PodRunning}})
			}
		}
	}
	return set.With(added...)
}
