package check

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/component-helpers/resource"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/record"
)

// Consolidation is what is known about the time in which used nodes were emptied.
type Consolidation struct {
	// Events are all of the world, Since is the last revision before that time.
	Events []record.Event
	Since  uint64
	// Budget is the disruption budget of each pool.
	Budget string
	// Before and After are what the instances cost, in $/h.
	Before, After float64
	Unsettled     string
}

// JudgeConsolidation adds to the report what is wrong with the nodes that were emptied:
//
//   - At each eviction there is capacity for all pods that have to move on nodes that are initialized, Ready and not being disrupted. What is
//     left out is how pods of different sizes share nodes: test/chaos looks at that.
//   - No node ends with pods that have no controller or ask not to be disrupted.
//   - No more nodes of a pool end at a time than the budget allows.
//   - In the end all pods run, where fresh filters accept them, and the instances don't cost more than before.
func JudgeConsolidation(ctx context.Context, c *Consolidation, r *Report) error {
	e := &emptying{Consolidation: c, report: r, pods: map[types.UID]*corev1.Pod{}, nodes: map[string]*corev1.Node{}, claims: map[string]*karpv1.NodeClaim{}, most: map[string]int{}}
	for _, ev := range c.Events {
		e.take(ev)
	}
	if c.After > c.Before*(1+1e-9) {
		e.wrong("the instances cost $%.4f/h before and $%.4f/h afterwards", c.Before, c.After)
	}
	if c.Unsettled != "" {
		e.wrong("afterwards: %s", c.Unsettled)
	}
	h, err := read(c.Events)
	if err != nil {
		return err
	}
	binds := &Report{}
	if err := h.judgeBinds(ctx, binds); err != nil {
		return err
	}
	for _, line := range binds.Wrong {
		if !slices.Contains(r.Wrong, line) {
			e.wrong("wrong bind: %s", line)
		}
	}
	return nil
}

// emptying is the cluster after each write.
type emptying struct {
	*Consolidation
	report *Report
	pods   map[types.UID]*corev1.Pod
	nodes  map[string]*corev1.Node
	claims map[string]*karpv1.NodeClaim
	most   map[string]int // how many nodes each pool has had
}

func (e *emptying) wrong(format string, args ...any) {
	e.report.Disrupted = append(e.report.Disrupted, fmt.Sprintf(format, args...))
}

func (e *emptying) take(ev record.Event) {
	gone := ev.Type == watch.Deleted
	switch o := ev.Object.(type) {
	case *corev1.Node:
		if e.nodes[o.Name] = o; gone {
			delete(e.nodes, o.Name)
		}
	case *karpv1.NodeClaim:
		old := e.claims[o.Name]
		if e.claims[o.Name] = o; gone {
			delete(e.claims, o.Name)
		}
		pool := o.Labels[karpv1.NodePoolLabelKey]
		n, _ := e.count(pool)
		e.most[pool] = max(e.most[pool], n)
		if ev.Revision > e.Since && old != nil && old.DeletionTimestamp == nil && o.DeletionTimestamp != nil && !gone {
			e.ends(ev.Revision, o)
		}
	case *corev1.Pod:
		old := e.pods[o.UID]
		if ev.Revision > e.Since && old != nil && old.DeletionTimestamp == nil && (o.DeletionTimestamp != nil || gone) && evicted(o) {
			e.evicts(ev.Revision, o)
		}
		if e.pods[o.UID] = o; gone {
			delete(e.pods, o.UID)
		}
	}
}

// count counts a pool's initialized nodes, and those of them that end while their instances still run.
func (e *emptying) count(pool string) (all, ending int) {
	for _, c := range e.claims {
		if c.Labels[karpv1.NodePoolLabelKey] != pool || !c.StatusConditions().IsTrue(karpv1.ConditionTypeInitialized) || c.StatusConditions().Get(karpv1.ConditionTypeInstanceTerminating).IsTrue() {
			continue
		}
		if all++; c.DeletionTimestamp != nil {
			ending++
		}
	}
	return all, ending
}

// on returns the node's pods that have not ended, without those of DaemonSets.
func (e *emptying) on(node string) (out []*corev1.Pod) {
	for _, uid := range slices.Sorted(maps.Keys(e.pods)) {
		if p := e.pods[uid]; p.Spec.NodeName == node && !over(p) && !isDaemon(p) {
			out = append(out, p)
		}
	}
	return out
}

func (e *emptying) ends(revision uint64, c *karpv1.NodeClaim) {
	if !c.StatusConditions().IsTrue(karpv1.ConditionTypeInitialized) {
		return // a launch that was given back
	}
	e.report.Ended++
	for _, p := range e.on(c.Status.NodeName) {
		switch {
		case p.DeletionTimestamp != nil:
		case metav1.GetControllerOf(p) == nil:
			e.wrong("revision %d: node %s ends with pod %s, which has no controller", revision, c.Status.NodeName, p.Name)
		case p.Annotations[karpv1.DoNotDisruptAnnotationKey] == "true":
			e.wrong("revision %d: node %s ends with pod %s, which asks not to be disrupted", revision, c.Status.NodeName, p.Name)
		}
	}
	pool := c.Labels[karpv1.NodePoolLabelKey]
	if _, ending := e.count(pool); ending > allowed(e.Budget, e.most[pool]) {
		e.wrong("revision %d: %d nodes of pool %s end, the budget %s of %d allows fewer", revision, ending, pool, e.Budget, e.most[pool])
	}
}

// allowed returns how many of n nodes a budget allows to end; percentages are rounded up.
func allowed(budget string, n int) int {
	number, percent := strings.CutSuffix(budget, "%")
	out, err := strconv.Atoi(number)
	if err != nil {
		return 0
	}
	if percent {
		return (n*out + 99) / 100
	}
	return out
}

// evicted reports whether the Eviction API has deleted the pod.
func evicted(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == "EvictionByEvictionAPI"
	})
}

func (e *emptying) evicts(revision uint64, evicted *corev1.Pod) {
	e.report.Evicted++
	ending := map[string]bool{}
	for _, c := range e.claims {
		ending[c.Status.NodeName] = c.DeletionTimestamp != nil
	}
	free := map[string]corev1.ResourceList{}
	for name, n := range e.nodes {
		if !ending[name] && receives(n) {
			free[name] = n.Status.Allocatable.DeepCopy()
		}
	}
	var moving []*corev1.Pod
	for _, uid := range slices.Sorted(maps.Keys(e.pods)) {
		p := e.pods[uid]
		if over(p) {
			continue
		}
		if left, ok := free[p.Spec.NodeName]; ok {
			subtract(left, p)
		} else if ending[p.Spec.NodeName] && p.DeletionTimestamp == nil && !isDaemon(p) {
			moving = append(moving, p)
		}
	}
	sum := corev1.ResourceList{}
	for _, left := range free {
		for name, q := range left {
			if q.Sign() > 0 {
				have := sum[name]
				have.Add(q)
				sum[name] = have
			}
		}
	}
	for _, p := range moving {
		if !slices.ContainsFunc(slices.Collect(maps.Values(free)), func(left corev1.ResourceList) bool { return fitsIn(left, p) }) || !fitsIn(sum, p) {
			e.wrong("revision %d: pod %s is evicted from %s, and there is no capacity for pod %s among the %d that have to move", revision, evicted.Name, evicted.Spec.NodeName, p.Name, len(moving))
			return
		}
		subtract(sum, p)
	}
}

// receives reports whether pods may move to the node.
func receives(n *corev1.Node) bool {
	ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	cordoned := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == karpv1.DisruptedTaintKey })
	return ready && !cordoned && n.DeletionTimestamp == nil && !n.Spec.Unschedulable && n.Labels[karpv1.NodeInitializedLabelKey] == "true"
}

// onePod is what each pod takes of the number of pods that a node can have.
var onePod = apiresource.MustParse("1")

// requests returns what a pod takes of a node.
func requests(p *corev1.Pod) corev1.ResourceList {
	out := resource.PodRequests(p, resource.PodResourcesOptions{}).DeepCopy()
	out[corev1.ResourcePods] = onePod
	return out
}

func subtract(from corev1.ResourceList, p *corev1.Pod) {
	for name, q := range requests(p) {
		left := from[name]
		left.Sub(q)
		from[name] = left
	}
}

func fitsIn(in corev1.ResourceList, p *corev1.Pod) bool {
	for name, q := range requests(p) {
		left := in[name]
		if q.Sign() > 0 && left.Cmp(q) < 0 {
			return false
		}
	}
	return true
}
