package outside

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/record"
)

// Judge judges a recording of pods, nodes, claims and pools:
//
//   - When a pod is evicted, all pods that have to move at that revision fit on other nodes that are Ready and initialized.
//   - When a claim is deleted, no more claims of its pool are being deleted than the pool's budgets allow. Those whose instances terminate already
//     no longer count.
//   - No claim is gone that was not deleted first, or while its node has pods.
//
// A pod counts as evicted if it is deleted while its node's claim is being deleted.
type Judge struct {
	// Reason is why nodes are ended, for the budgets.
	Reason karpv1.DisruptionReason
	// Wrong is what must not have happened.
	Wrong []string
	// Evicted and Ended count pods that were evicted and claims that were deleted; Undecided are evictions for whose pods no places were found,
	// although nothing shows that there are none.
	Evicted, Undecided, Ended int

	apps   map[string]map[types.UID]bool
	pods   map[types.UID]*corev1.Pod
	nodes  map[string]*corev1.Node
	claims map[string]*karpv1.NodeClaim
	pools  map[string]*karpv1.NodePool
	// drifted are the pools of claims that had the condition Drifted, by claim.
	drifted map[string]string
}

// NewJudge returns a judge of nodes that are ended for a reason.
func NewJudge(reason karpv1.DisruptionReason) *Judge {
	return &Judge{Reason: reason, apps: map[string]map[types.UID]bool{}, pods: map[types.UID]*corev1.Pod{}, nodes: map[string]*corev1.Node{},
		claims: map[string]*karpv1.NodeClaim{}, pools: map[string]*karpv1.NodePool{}, drifted: map[string]string{}}
}

// Pods returns how many pods an app has had.
func (j *Judge) Pods(app string) int { return len(j.apps[app]) }

func (j *Judge) wrong(event record.Event, format string, args ...any) {
	j.Wrong = append(j.Wrong, fmt.Sprintf("at revision %d (%s) ", event.Revision, event.At.Format("15:04:05"))+fmt.Sprintf(format, args...))
}

// Take takes the next event.
func (j *Judge) Take(event record.Event) {
	gone := event.Type == watch.Deleted
	switch o := event.Object.(type) {
	case *corev1.Pod:
		app := o.Labels[appLabel]
		if j.apps[app] == nil {
			j.apps[app] = map[types.UID]bool{}
		}
		j.apps[app][o.UID] = true
		if was := j.pods[o.UID]; was != nil && was.DeletionTimestamp == nil && (gone || o.DeletionTimestamp != nil) && j.ends(was.Spec.NodeName) {
			j.evicts(event, was)
		}
		put(j.pods, o.UID, o, gone)
	case *corev1.Node:
		put(j.nodes, o.Name, o, gone)
	case *karpv1.NodePool:
		put(j.pools, o.Name, o, gone)
	case *karpv1.NodeClaim:
		j.claim(event, o)
	}
}

func put[K comparable, V any](m map[K]V, key K, v V, gone bool) {
	if m[key] = v; gone {
		delete(m, key)
	}
}

func (j *Judge) claim(event record.Event, o *karpv1.NodeClaim) {
	gone := event.Type == watch.Deleted
	was := j.claims[o.Name]
	put(j.claims, o.Name, o, gone)
	if condition(o, karpv1.ConditionTypeDrifted) {
		j.drifted[o.Name] = o.Labels[karpv1.NodePoolLabelKey]
	}
	switch {
	case was != nil && was.DeletionTimestamp == nil && o.DeletionTimestamp != nil && condition(was, karpv1.ConditionTypeInitialized):
		j.Ended++
		j.budget(event, o)
	case gone && (was == nil || was.DeletionTimestamp == nil):
		j.wrong(event, "claim %s is gone without having been deleted", o.Name)
	}
	if !gone || !condition(o, karpv1.ConditionTypeRegistered) {
		return
	}
	for _, p := range j.pods {
		if p.Spec.NodeName == o.Status.NodeName && p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			j.wrong(event, "claim %s is gone while pod %s runs on its node", o.Name, p.Name)
		}
	}
}

// budget checks a claim that is being deleted. As in Karpenter (BuildDisruptionBudgetMapping) a budget's percentage is of the initialized nodes,
// rounded up. Those that are going already are among them, until their instances terminate.
func (j *Judge) budget(event record.Event, claim *karpv1.NodeClaim) {
	name := claim.Labels[karpv1.NodePoolLabelKey]
	pool := j.pools[name]
	if pool == nil {
		j.wrong(event, "claim %s is deleted, whose pool %s isn't there", claim.Name, name)
		return
	}
	nodes, going := 0, 0
	for _, c := range j.claims {
		if c.Labels[karpv1.NodePoolLabelKey] != name || !condition(c, karpv1.ConditionTypeInitialized) || condition(c, karpv1.ConditionTypeInstanceTerminating) {
			continue
		}
		nodes++
		if c.DeletionTimestamp != nil {
			going++
		}
	}
	if allowed := Allowed(pool.Spec.Disruption.Budgets, nodes, j.Reason); going > allowed {
		j.wrong(event, "claim %s is deleted: %d of the %d nodes of pool %s are going, its budgets allow %d", claim.Name, going, nodes, name, allowed)
	}
}

func (j *Judge) ends(node string) bool {
	c := j.claimOf(node)
	return c != nil && c.DeletionTimestamp != nil
}

func (j *Judge) claimOf(node string) *karpv1.NodeClaim {
	if n := j.nodes[node]; n != nil {
		for _, c := range j.claims {
			if c.Status.ProviderID != "" && c.Status.ProviderID == n.Spec.ProviderID {
				return c
			}
		}
	}
	return nil
}

// evicts checks an eviction.
func (j *Judge) evicts(event record.Event, pod *corev1.Pod) {
	j.Evicted++
	claims := map[string]*karpv1.NodeClaim{}
	for _, c := range j.claims {
		if c.Status.ProviderID != "" {
			claims[c.Status.ProviderID] = c
		}
	}
	var good []*corev1.Node
	going := map[string]bool{}
	for _, n := range j.nodes {
		c := claims[n.Spec.ProviderID]
		if Receives(n, c) {
			good = append(good, n)
		}
		going[n.Name] = c != nil && c.DeletionTimestamp != nil
	}
	var moving, there []*corev1.Pod
	for _, p := range j.pods {
		switch {
		case p.DeletionTimestamp == nil && (p.Spec.NodeName == "" || going[p.Spec.NodeName]):
			moving = append(moving, p)
		case p.Spec.NodeName != "":
			there = append(there, p)
		}
	}
	slices.SortFunc(good, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(moving, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	names := Resources(moving)
	switch Place(moving, FreeOn(good, there, names), names) {
	case Undecided:
		j.Undecided++
	case FitsNot:
		j.wrong(event, "pod %s is evicted from node %s: not all of the %d pods that have to move fit on the %d nodes that are Ready", pod.Name, pod.Spec.NodeName, len(moving), len(good))
	}
}

// Drifted returns the claims of a pool that have had the condition Drifted, sorted.
func (j *Judge) Drifted(pool string) (out []string) {
	for claim, of := range j.drifted {
		if of == pool {
			out = append(out, claim)
		}
	}
	slices.Sort(out)
	return out
}

func condition(c *karpv1.NodeClaim, kind string) bool {
	got := c.StatusConditions(status.WithObservedOnly()).Get(kind)
	return got != nil && got.IsTrue()
}
