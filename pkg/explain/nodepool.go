package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/offline"
)

// Kinds of answers about pools.
const (
	PoolReady    = "Ready"
	PoolEnding   = "Terminating"
	PoolNotReady = "NotReady"
	PoolPaused   = "LaunchesPaused"
	PoolBudget   = "BudgetReached"
	PoolLimit    = "LimitReached"
)

// poolAdvice is what a user can do about the conditions of a pool.
var poolAdvice = map[string]string{
	objects.ConditionLaunchesPaused:             "mend the cause; then: dovetail retry (docs/guard.md)",
	objects.ConditionBudgetReached:              "raise the budget, or wait until nodes end (docs/guard.md)",
	objects.ConditionRollOutPaused:              "change the pool or the class so that new nodes work (docs/disruption.md)",
	objects.ConditionFieldsHonored:              "the message names the field that has no effect",
	objects.ConditionStartupTaintsDeclared:      "add the taint to spec.template.spec.startupTaints",
	objects.ConditionArchitectureDeclared:       "ask for kubernetes.io/arch: amd64 in the pool or its pods, where an image needs it",
	karpv1.ConditionTypeValidationSucceeded:     "correct the field that the message names",
	karpv1.ConditionTypeNodeClassReady:          "kubectl describe the node class: its conditions say what is missing",
	karpv1.ConditionTypeNodeRegistrationHealthy: "see why nodes don't register: user data, security groups, the access entry of their role",
}

// NodePool answers what a pool does. An error means that there is no such pool.
func (c *Cluster) NodePool(name string) (*Answer, error) {
	np, ok := find[*karpv1.NodePool](c.Set, "", name)
	if !ok {
		if nodes := nodesOf(c.Set, name); len(nodes) > 0 && !karpenter.Derived(name) {
			return nil, fmt.Errorf("there is no NodePool %s any more; %s of it %s still there", name, plural(len(nodes), "node"), map[bool]string{true: "is", false: "are"}[len(nodes) == 1])
		}
		return nil, missing[*karpv1.NodePool](c.Set, "NodePool", "", name)
	}
	a := &Answer{Object: "NodePool " + name}
	class := c.classOf(np)
	nodes, used, perHour, unpriced := c.poolNodes(name)
	launching := launchingIn(c.Set, name)
	c.poolState(a, np, class, used)
	cond := c.unhealthy(a, "", np)
	if class != nil {
		cond = append(cond, c.unhealthy(a, kindOf(class)+" "+class.GetName()+": ", class)...)
	}
	a.section("What isn't as it should be", cond...)
	a.table("Limits", []string{"RESOURCE", "USED", "LIMIT", "LEFT"}, limits(np, used))
	a.table("Limits of all pools together (limits of ProvisionArgs)", []string{"RESOURCE", "USED", "LIMIT", "LEFT"}, totalLimits(offline.TotalOf(c.Set, &c.Settings)))
	line := fmt.Sprintf("%s, %s/h at list price", withClaims(nodes-launching, launching, ""), dollars(perHour))
	if unpriced > 0 {
		line += fmt.Sprintf(" (the prices of %d are unknown)", unpriced)
	}
	lines := append([]string{line}, coveredOf(c.Set, c.coverage(), name)...)
	if most := np.Annotations[objects.AnnotationMaxDollarsPerHour]; most != "" {
		lines = append(lines, "they may cost $"+most+"/h (annotation "+objects.AnnotationMaxDollarsPerHour+")")
	}
	if balance, err := karpenter.ZoneBalance(np); err == nil && balance != nil {
		lines = append(lines, fmt.Sprintf("zones: %s (%s)", zonesOf(c.Set, name).Text(), capacity.BalancedText(*balance)))
	}
	a.section("What it has", lines...)
	a.table("Why its nodes are kept", []string{"REASON", "NODES", "WHAT TO DO"}, keptOf(c, name))
	var rows [][]string
	for _, e := range c.events("NodePool", np) {
		if len(rows) < mostReported {
			rows = append(rows, []string{c.ago(e.at), e.Reason, objects.OneLine(e.Message)})
		}
	}
	a.table("Last reported", []string{"AGO", "REASON", "MESSAGE"}, rows)
	return a, nil
}

// poolState finds the first of what keeps the pool from launching nodes.
func (c *Cluster) poolState(a *Answer, np *karpv1.NodePool, class status.Object, used corev1.ResourceList) {
	isTrue := func(name string) *status.Condition {
		if cond := conditionOf(np.Status.Conditions, name); cond != nil && cond.IsTrue() {
			return cond
		}
		return nil
	}
	paused := isTrue(objects.ConditionLaunchesPaused)
	if paused == nil && class != nil {
		if cond := conditionOf(class.GetConditions(), objects.ConditionLaunchesPaused); cond != nil && cond.IsTrue() {
			paused = cond
		}
	}
	ready := conditionOf(np.Status.Conditions, "Ready")
	for _, row := range totalLimits(offline.TotalOf(c.Set, &c.Settings)) {
		if row[3] == "0" || row[3] == "0.0 GiB" {
			a.Kind, a.Summary = PoolLimit, fmt.Sprintf("launches no more nodes: limit of %s %s of all pools together reached (limits of ProvisionArgs)", row[0], row[2])
		}
	}
	for _, row := range limits(np, used) {
		if row[3] == "0" || row[3] == "0.0 GiB" {
			a.Kind, a.Summary = PoolLimit, fmt.Sprintf("launches no more nodes: limit of %s %s reached (spec.limits)", row[0], row[2])
		}
	}
	unready := unreadyClass(c, np, class)
	switch budget := isTrue(objects.ConditionBudgetReached); {
	case !np.DeletionTimestamp.IsZero():
		a.Kind, a.Summary = PoolEnding, "is being deleted: it launches nothing, and its nodes are drained"
	case ready != nil && ready.IsFalse():
		a.Kind, a.Summary = PoolNotReady, "is not used: "+cmp.Or(objects.OneLine(ready.Message), ready.Reason)
	case unready != "":
		a.Kind, a.Summary = PoolNotReady, "is not used: "+unready
	case paused != nil:
		a.Kind, a.Summary = PoolPaused, "has paused launches: "+objects.OneLine(paused.Message)
	case budget != nil:
		a.Kind, a.Summary = PoolBudget, "launches nothing for now: "+objects.OneLine(budget.Message)
	case a.Kind != "":
	case np.Spec.Replicas != nil:
		a.Kind, a.Summary = PoolReady, fmt.Sprintf("keeps %s, and launches none for pods", plural(int(*np.Spec.Replicas), "node"))
	default:
		a.Kind, a.Summary = PoolReady, "launches nodes for pods"
	}
}

// unreadyClass says why no node can be launched with a pool's class: the pool's own conditions may say it later. Empty: the class is ready, or of a kind that
// isn't read.
func unreadyClass(c *Cluster, np *karpv1.NodePool, class status.Object) string {
	ref := np.Spec.Template.Spec.NodeClassRef
	switch {
	case class == nil && ref != nil && ref.Kind == c.Settings.NodeClass.Kind:
		return fmt.Sprintf("there is no %s %s", ref.Kind, ref.Name)
	case class == nil:
		return ""
	}
	if cond := conditionOf(class.GetConditions(), status.ConditionReady); cond != nil && cond.IsFalse() {
		return fmt.Sprintf("%s %s isn't ready: %s", kindOf(class), class.GetName(), cmp.Or(objects.OneLine(cond.Message), cond.Reason))
	}
	return ""
}

// bad are the statuses of conditions that aren't as they should be.
var bad = map[string]string{objects.ConditionLaunchesPaused: "True", objects.ConditionBudgetReached: "True", objects.ConditionRollOutPaused: "True"}

// unhealthy returns a line for each condition that isn't as it should be, shorter for the one that is the answer's summary.
func (c *Cluster) unhealthy(a *Answer, prefix string, o status.Object) (out []string) {
	all := o.GetConditions()
	for i := range all {
		cond := &all[i]
		if string(cond.Status) != cmp.Or(bad[cond.Type], "False") {
			continue
		}
		line := fmt.Sprintf("%s%s is %s, for %s", prefix, cond.Type, cond.Status, c.ago(cond.LastTransitionTime.Time))
		if text := cmp.Or(objects.OneLine(cond.Message), cond.Reason); !strings.Contains(a.Summary, text) {
			line += ": " + text
		}
		if do := poolAdvice[cond.Type]; do != "" {
			line += ". To do: " + do
		}
		out = append(out, line)
	}
	return out
}

// poolNodes returns how many nodes a pool has, what they take of its limits and what they cost.
func (c *Cluster) poolNodes(pool string) (nodes int, used corev1.ResourceList, perHour float64, unpriced int) {
	used = corev1.ResourceList{}
	for _, n := range nodesOf(c.Set, pool) {
		nodes++
		Add(used, n.has)
		price, ok := c.Price(n.labels)
		if perHour += price; !ok {
			unpriced++
		}
	}
	used[corev1.ResourceName(capacity.ResourceNodes)] = *resource.NewQuantity(int64(nodes), resource.DecimalSI)
	return nodes, used, perHour, unpriced
}

// launchingIn returns how many NodeClaims of a pool have no Node.
func launchingIn(set *manifest.Set, pool string) (n int) {
	there := map[string]bool{}
	for _, node := range manifest.All[*corev1.Node](set) {
		there[node.Name] = true
	}
	for _, nc := range manifest.All[*karpv1.NodeClaim](set) {
		if nc.Labels[karpv1.NodePoolLabelKey] == pool && !there[nc.Status.NodeName] {
			n++
		}
	}
	return n
}

// poolNode is a NodeClaim, or a Node that has none.
type poolNode struct {
	name   string
	labels map[string]string
	has    corev1.ResourceList
	ending bool
}

// nodesOf returns the NodeClaims of a pool, and its nodes that have none.
func nodesOf(set *manifest.Set, pool string) (out []poolNode) {
	claimed := map[string]bool{}
	for _, nc := range manifest.All[*karpv1.NodeClaim](set) {
		if nc.Labels[karpv1.NodePoolLabelKey] == pool {
			claimed[nc.Status.NodeName] = true
			out = append(out, poolNode{nc.Name, nc.Labels, nc.Status.Capacity, !nc.DeletionTimestamp.IsZero()})
		}
	}
	for _, n := range manifest.All[*corev1.Node](set) {
		if n.Labels[karpv1.NodePoolLabelKey] == pool && !claimed[n.Name] {
			out = append(out, poolNode{n.Name, n.Labels, n.Status.Capacity, !n.DeletionTimestamp.IsZero()})
		}
	}
	return out
}

// zonesOf counts a pool's nodes by zone, without those that are ending.
func zonesOf(set *manifest.Set, pool string) capacity.ZoneCounts {
	out := capacity.ZoneCounts{}
	for _, n := range nodesOf(set, pool) {
		if !n.ending {
			out[n.labels[capacity.LabelZone]]++
		}
	}
	return out
}

// coveredOf returns a line for each commitment that pays for some of a pool's nodes.
func coveredOf(set *manifest.Set, coverage *capacity.Coverage, pool string) (lines []string) {
	counts := map[string]int{}
	for _, n := range nodesOf(set, pool) {
		if by := coverage.Of(n.name); by != "" {
			counts[by]++
		}
	}
	for _, by := range slices.Sorted(maps.Keys(counts)) {
		lines = append(lines, fmt.Sprintf("%s covered by commitment %s: replacing them would save nothing", plural(counts[by], "node"), by))
	}
	return lines
}

// limits returns the rows of the table of a pool's limits.
func limits(np *karpv1.NodePool, used corev1.ResourceList) [][]string {
	return limitRows(corev1.ResourceList(np.Spec.Limits), used)
}

// totalLimits returns the rows of the table of the limits of all pools; nil: there are none.
func totalLimits(total *capacity.Total) [][]string {
	if total == nil {
		return nil
	}
	return limitRows(total.Limits.List(), total.Used.List())
}

func limitRows(limits, used corev1.ResourceList) (rows [][]string) {
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		limit := limits[name]
		left := limit.DeepCopy()
		left.Sub(used[name])
		if left.Sign() < 0 {
			left.Set(0)
		}
		rows = append(rows, []string{string(name), Amount(name, used[name]), Amount(name, limit), Amount(name, left)})
	}
	return rows
}

// keptOf counts a pool's nodes by the kind of reason for which they are kept.
func keptOf(c *Cluster, pool string) (rows [][]string) {
	counts := map[string]int{}
	for _, nc := range manifest.All[*karpv1.NodeClaim](c.Set) {
		k, ok := keptReasonOf(nc)
		if !ok || nc.Labels[karpv1.NodePoolLabelKey] != pool {
			continue
		}
		kind := string(k.kind)
		if n, there := find[*corev1.Node](c.Set, "", nc.Status.NodeName); there {
			if why, _ := overtaken(c, n, k); why != "" {
				kind = NodeOutOfDate
			}
		}
		counts[kind]++
	}
	for _, kind := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return cmp.Or(counts[b]-counts[a], cmp.Compare(a, b)) }) {
		do := keptAdvice[consolidation.Kind(kind)]
		if kind == NodeOutOfDate {
			do = overtakenAdvice
		}
		rows = append(rows, []string{kind, fmt.Sprint(counts[kind]), do})
	}
	return rows
}
