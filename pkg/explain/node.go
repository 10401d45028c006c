package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Kinds of answers about nodes, beside those of consolidation.Kind for nodes that are kept.
const (
	NodeEnding      = "Ending"      // its NodeClaim is being deleted
	NodeInterrupted = "Interrupted" // the cloud takes it back
	NodeDisrupted   = "Disrupted"   // it is going to be drained
	NodeDrifted     = "Drifted"     // it will be replaced
	NodeForeign     = "NoNodeClaim" // nobody here launched it
	NodeStarting    = "Starting"    // it isn't initialized
	NodeUnsaid      = "Unsaid"      // nothing on its objects says why it is kept
)

// keptAdvice is what a user can do about each kind of reason for which a node is kept; empty: nothing has to be done.
var keptAdvice = map[consolidation.Kind]string{
	consolidation.Protected:       "remove the annotation " + karpv1.DoNotDisruptAnnotationKey + " if it isn't needed any more",
	consolidation.NotQuiet:        "wait; or a shorter spec.disruption.consolidateAfter of the pool",
	consolidation.Unmovable:       "give the pod a controller, or let Dovetail's scheduler place it (spec.schedulerName)",
	consolidation.BlockedByPDB:    "a PodDisruptionBudget that allows an eviction, or more replicas; for a single replica the annotation " + objects.AnnotationMove + ": " + objects.MoveRollout,
	consolidation.Surge:           "what the sentence says; the role dovetail-surge is needed, too (docs/disruption.md)",
	consolidation.Paused:          "remove the annotation " + objects.AnnotationPauseDisruption + " of the pool, or what else the sentence names",
	consolidation.Static:          "spec.replicas of the pool",
	consolidation.NotReady:        "kubectl describe node: why isn't it Ready?",
	consolidation.NotRepaired:     "find out why nodes are unhealthy (docs/disruption.md)",
	consolidation.Disrupting:      "nothing: it is under way",
	consolidation.Disabled:        "spec.disruption.consolidateAfter of the pool is Never",
	consolidation.OtherReason:     "what the sentence says",
	consolidation.PolicyWhenEmpty: "spec.disruption.consolidationPolicy: WhenEmptyOrUnderutilized, if used nodes shall be emptied, too",
	consolidation.Young:           "wait; or the annotation " + objects.AnnotationRestartCost + ": \"0s\" on the pool; with a short consolidateAfter its nodes are then replaced soon after their launch",
	consolidation.Received:        "wait",
	consolidation.NoPrice:         "a NodeOverlay can set the price of its instance type",
	consolidation.Full:            "nothing: the node is needed. More types in the pools may help",
	consolidation.Dearer:          "nothing: the node is worth its price",
	consolidation.NotWorth:        "nothing: moving its pods costs more than it saves. A smaller " + objects.AnnotationRestartCost + " makes moves cheaper",
	consolidation.Unbalanced:      "nothing; or spec.disruption.consolidationPolicy: WhenEmptyOrUnderutilized",
	consolidation.Paying:          "wait: the move is due when it has paid",
	consolidation.Budget:          "wait; or larger spec.disruption.budgets of the pool",
	consolidation.Limit:           "a higher limit in spec.limits of that pool",
	consolidation.TotalLimit:      "a higher limit in limits of ProvisionArgs, or wait until nodes end",
	consolidation.Flexibility:     "more instance types in the pool, or a smaller " + objects.AnnotationSpotFlexibility,
	consolidation.RollOut:         "wait for the first new node to prove that it works",
	consolidation.Covered:         "nothing: the commitment is paid whether the node uses it or not",
	consolidation.WantOfSpot:      "wait for spot capacity; more types or zones make it likelier",
}

// Node answers why a node is kept, or what is done with it. An error means that there is no such node.
func (c *Cluster) Node(name string) (*Answer, error) {
	n, ok := find[*corev1.Node](c.Set, "", name)
	if !ok {
		if nc, ok := find[*karpv1.NodeClaim](c.Set, "", name); ok { // people copy that name, too
			if nc.Status.NodeName != "" && nc.Status.NodeName != name {
				return c.Node(nc.Status.NodeName)
			}
			a := &Answer{Object: "NodeClaim " + name, Kind: NodeStarting, Summary: "has no Node yet: " + c.progress(nc)}
			c.nodeReported(a, nil, nc)
			return a, nil
		}
		return nil, missing[*corev1.Node](c.Set, "node", "", name)
	}
	nc := c.claimOf(name)
	a := &Answer{Object: "Node " + name}
	c.nodeState(a, n, nc)
	c.nodeDetails(a, n, nc)
	c.nodeReported(a, n, nc)
	return a, nil
}

// nodeState sets the kind and the summary of the answer: of the kinds that apply, the one that says most about what happens to the node next.
func (c *Cluster) nodeState(a *Answer, n *corev1.Node, nc *karpv1.NodeClaim) {
	if nc == nil {
		a.Kind, a.Summary = NodeForeign, "has no NodeClaim: neither Dovetail nor Karpenter launched it, and they leave it alone"
		return
	}
	interrupted := nc.Annotations[objects.AnnotationInterrupted]
	drifted := conditionOf(nc.Status.Conditions, karpv1.ConditionTypeDrifted)
	why, kept := keptReasonOf(nc)
	switch {
	case !nc.DeletionTimestamp.IsZero() || !n.DeletionTimestamp.IsZero():
		a.Kind, a.Summary = NodeEnding, "is being ended: "+c.endStage(n, nc)
		if at := nc.Annotations[karpv1.NodeClaimTerminationTimestampAnnotationKey]; at != "" {
			a.Summary += "; its pods are deleted at " + at + " at the latest"
		}
	case interrupted != "":
		by, why, _ := strings.Cut(interrupted, " ")
		a.Kind, a.Summary = NodeInterrupted, fmt.Sprintf("is taken back by the cloud (%s): its drain begins at %s at the latest", why, by)
	case slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == karpv1.DisruptedTaintKey }):
		a.Kind, a.Summary = NodeDisrupted, "is going to be drained: it has the taint "+karpv1.DisruptedTaintKey
		if why := conditionOf(nc.Status.Conditions, karpv1.ConditionTypeDisruptionReason); why != nil {
			a.Summary += fmt.Sprintf(" (%s)", why.Reason)
		}
	case !conditionTrue(nc, karpv1.ConditionTypeInitialized):
		a.Kind, a.Summary = NodeStarting, "is starting: "+c.progress(nc)
	case drifted != nil && drifted.IsTrue():
		a.Kind, a.Summary = NodeDrifted, fmt.Sprintf("has drifted (%s), and is replaced as its pool's budgets allow", drifted.Reason)
		if outdated, _ := overtaken(c, n, why); kept && outdated == "" {
			a.section("Why it is still there", why.text)
			a.adviseKept(why.kind)
		} else if kept {
			a.section("Why it was still there, which is out of date: "+outdated, why.text)
		}
	case kept:
		c.keptState(a, n, why)
	default:
		if newestEvent(c, a, n, nc) {
			return
		}
		a.Kind, a.Summary = NodeUnsaid, "is kept, and nothing on its objects says why"
		if k := (&objections{c, n, nc}).kept(); k != nil {
			a.Kind, a.Summary = string(k.Kind), "is kept: "+k.Text()
			a.adviseKept(k.Kind)
			return
		}
		a.section("What to do", "dovetail plan "+cmp.Or(c.Source, "--from-cluster")+" --without "+n.Name+" shows what would be bought without it")
	}
}

// eventSays are the reasons of events, Karpenter's for the most part, that say what happens to a node, with the kind of answer, and how it begins.
var eventSays = map[string][2]string{
	"Unconsolidatable":           {string(consolidation.OtherReason), "is kept"},
	"DisruptionBlocked":          {string(consolidation.OtherReason), "is kept"},
	"DisruptionLaunching":        {NodeDisrupted, "is being replaced"},
	"DisruptionWaitingReadiness": {NodeDisrupted, "is being replaced"},
	"DisruptionTerminating":      {NodeDisrupted, "is going to be ended"},
	"SpotInterrupted":            {NodeInterrupted, "is taken back by the cloud"},
	"InstanceStopping":           {NodeInterrupted, "is taken back by the cloud"},
	"InstanceTerminating":        {NodeInterrupted, "is taken back by the cloud"},
}

// newestEvent answers with the newest of these events; false: there is none.
func newestEvent(c *Cluster, a *Answer, n *corev1.Node, nc *karpv1.NodeClaim) bool {
	var last *event
	for _, e := range slices.Concat(c.events("NodeClaim", nc), c.events("Node", n)) {
		if _, ok := eventSays[e.Reason]; ok && (last == nil || e.at.After(last.at)) {
			last = &e
		}
	}
	if last == nil {
		return false
	}
	says := eventSays[last.Reason]
	a.Kind, a.Summary = says[0], fmt.Sprintf("%s, as event %s said %s ago: %s", says[1], last.Reason, c.ago(last.at), objects.OneLine(last.Message))
	return true
}

// adviseKept adds the advice for a kind.
func (a *Answer) adviseKept(kind consolidation.Kind) {
	if do := keptAdvice[kind]; do != "" {
		a.section("What to do", do)
	}
}

func conditionTrue(nc *karpv1.NodeClaim, name string) bool {
	cond := conditionOf(nc.Status.Conditions, name)
	return cond != nil && cond.IsTrue()
}

// endStage says how far the end of a node is.
func (c *Cluster) endStage(n *corev1.Node, nc *karpv1.NodeClaim) string {
	switch {
	case conditionTrue(nc, karpv1.ConditionTypeInstanceTerminating):
		return "its instance is terminating"
	case conditionTrue(nc, karpv1.ConditionTypeDrained):
		return "its pods are gone, its volumes are being detached"
	}
	left := 0
	for _, pod := range c.podsOn(n.Name) {
		if !objects.OfDaemonSet(pod) && pod.Annotations[corev1.MirrorPodAnnotationKey] == "" {
			left++
		}
	}
	return fmt.Sprintf("it is drained, %s left", plural(left, "pod"))
}

// nodeDetails adds what the node is, costs and holds.
func (c *Cluster) nodeDetails(a *Answer, n *corev1.Node, nc *karpv1.NodeClaim) {
	what := c.machine(n.Labels)
	if pool := n.Labels[karpv1.NodePoolLabelKey]; pool != "" {
		what += ", pool " + pool
	}
	if nc != nil {
		what += ", NodeClaim " + nc.Name
	}
	lines := []string{what + ", " + c.ago(n.CreationTimestamp.Time) + " old"}
	asked := corev1.ResourceList{}
	daemons, others, alone := 0, 0, 0
	for _, pod := range c.podsOn(n.Name) {
		switch {
		case objects.OfDaemonSet(pod) || pod.Annotations[corev1.MirrorPodAnnotationKey] != "":
			daemons++
		case metav1.GetControllerOfNoCopy(pod) == nil:
			alone++
			others++
		default:
			others++
		}
		Add(asked, resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}))
	}
	line := fmt.Sprintf("%s, and %d of DaemonSets or static", plural(others, "pod"), daemons)
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		line += fmt.Sprintf("; %s %s of %s", name, Amount(name, asked[name]), Amount(name, n.Status.Allocatable[name]))
	}
	lines = append(lines, line)
	if by := c.coverage().Of(n.Name); by != "" {
		lines = append(lines, "covered by commitment "+by+": replacing it would save nothing")
	}
	if alone > 0 {
		lines = append(lines, plural(alone, "pod")+" without a controller, which nothing would create again")
	}
	if !objects.Ready(n) {
		lines = append(lines, "it is not Ready")
	}
	if n.Spec.Unschedulable {
		lines = append(lines, "it is cordoned")
	}
	a.section("The node", lines...)
}

// nodeReported adds the last events about a node and its claim.
func (c *Cluster) nodeReported(a *Answer, n *corev1.Node, nc *karpv1.NodeClaim) {
	var all []event
	if nc != nil {
		all = c.events("NodeClaim", nc)
	}
	if n != nil {
		all = append(all, c.events("Node", n)...)
	}
	slices.SortStableFunc(all, func(a, b event) int { return b.at.Compare(a.at) })
	var rows [][]string
	seen := map[string]bool{} // many are on both
	for _, e := range all {
		if text := e.Reason + e.Message; !seen[text] && len(rows) < mostReported {
			seen[text] = true
			rows = append(rows, []string{c.ago(e.at), e.Reason, objects.OneLine(e.Message)})
		}
	}
	a.table("Last reported", []string{"AGO", "REASON", "MESSAGE"}, rows)
}

// Add adds resources to a sum.
func Add(to, more corev1.ResourceList) {
	for name, q := range more {
		sum := to[name]
		sum.Add(q)
		to[name] = sum
	}
}

// cores writes a number of cores with four digits, or all of them where there are more before the point.
func cores(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.4g", v)
}

// Amount writes an amount of a resource for people: memory in GiB, cpu in cores.
func Amount(name corev1.ResourceName, q resource.Quantity) string {
	switch name {
	case corev1.ResourceMemory:
		return fmt.Sprintf("%.1f GiB", q.AsApproximateFloat64()/(1<<30))
	case corev1.ResourceCPU:
		return cores(q.AsApproximateFloat64())
	}
	return q.String()
}
