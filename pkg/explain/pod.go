package explain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/offline"
	"github.com/dovetail-scheduler/dovetail/pkg/whatif"
)

// Kinds of answers about pods.
const (
	PodBound    = "Bound"          // it has a node
	PodEnded    = "Ended"          // it has finished
	PodEnding   = "Terminating"    // it is being deleted
	PodGated    = "Gated"          // its own scheduling gates hold it back
	PodDaemon   = "DaemonSet"      // no node is launched for a DaemonSet's pod
	PodForeign  = "OtherScheduler" // another scheduler places it, for which nothing is launched
	PodReserved = "Reserved"       // it waits for capacity that is reserved for it
	PodFits     = "Fits"           // it fits on a node that is there
	PodBuys     = "Buys"           // a node would be bought for it
	PodRefused  = "Refused"        // nothing can be bought for it
	PodUnknown  = "Unknown"        // no plan can be made
)

// Kinds returns every kind of answer but those of consolidation.Kind.
func Kinds() []string {
	return []string{PodBound, PodEnded, PodEnding, PodGated, PodDaemon, PodForeign, PodReserved, PodFits, PodBuys, PodRefused, PodUnknown,
		NodeEnding, NodeInterrupted, NodeDisrupted, NodeDrifted, NodeForeign, NodeStarting, NodeUnsaid, NodeOutOfDate,
		PoolReady, PoolEnding, PoolNotReady, PoolPaused, PoolBudget, PoolLimit}
}

// Pod answers why a pod waits. An error means that there is no such pod, or that ctx has ended.
func (c *Cluster) Pod(ctx context.Context, namespace, name string) (*Answer, error) {
	pod, ok := find[*corev1.Pod](c.Set, namespace, name)
	if !ok {
		return nil, missing[*corev1.Pod](c.Set, "pod", namespace, name)
	}
	a := &Answer{Object: "Pod " + namespace + "/" + name}
	settled := c.settled(a, pod)
	messages := c.messages(pod)
	if !settled {
		if err := c.waiting(ctx, a, pod, messages); err != nil {
			return nil, err
		}
	}
	c.reported(a, pod)
	return a, nil
}

// settled answers for pods that need no plan.
func (c *Cluster) settled(a *Answer, pod *corev1.Pod) bool {
	switch {
	case objects.Ended(pod):
		a.Kind, a.Summary = PodEnded, "has ended: "+string(pod.Status.Phase)
	case pod.Spec.NodeName != "":
		a.Kind, a.Summary = PodBound, "has a node: "+pod.Spec.NodeName
		if n, ok := find[*corev1.Node](c.Set, "", pod.Spec.NodeName); ok {
			a.Summary += fmt.Sprintf(" (%s)", c.machine(n.Labels))
			if !objects.Ready(n) {
				a.section("What it waits for", "its node is not Ready yet: the kubelet starts the pod once it has registered (docs/node-unknown.md)")
			}
		} else {
			a.Summary += ", and there is no such node"
			a.section("What that means", "its node is gone, or spec.nodeName was written by hand: no kubelet runs the pod. kube-controller-manager deletes it within a minute or two; if it doesn't, delete the pod")
		}
	case pod.DeletionTimestamp != nil:
		a.Kind, a.Summary = PodEnding, "is being deleted, and gets no node"
	case len(pod.Spec.SchedulingGates) > 0:
		a.Kind, a.Summary = PodGated, fmt.Sprintf("waits for its scheduling gate %s to be removed (spec.schedulingGates)", pod.Spec.SchedulingGates[0].Name)
		a.section("What to do", "another controller has to remove it, such as a queue: nothing is planned before")
	case objects.OfDaemonSet(pod):
		a.Kind, a.Summary = PodDaemon, "waits for capacity on its own node: a new node does not help a DaemonSet's pod"
		a.advise("a new node does not help a DaemonSet's pod")
	case c.foreign(pod):
		a.Kind, a.Summary = PodForeign, fmt.Sprintf("is placed by scheduler %s, for which nothing is launched", pod.Spec.SchedulerName)
		a.section("What to do", "name a scheduler of Dovetail's in spec.schedulerName, or that one in provisionFor (docs/configuration.md)")
	default:
		return false
	}
	return true
}

// foreign reports whether the configuration is known, and no profile launches nodes for the pod's scheduler.
func (c *Cluster) foreign(pod *corev1.Pod) bool {
	return len(c.Settings.Pools) > 0 && !slices.ContainsFunc(c.Settings.Pools, func(p karpenterProfile) bool {
		return p.Scheduler == pod.Spec.SchedulerName || slices.Contains(p.Others, pod.Spec.SchedulerName)
	})
}

// waiting answers for pods that wait for a node.
func (c *Cluster) waiting(ctx context.Context, a *Answer, pod *corev1.Pod, messages []string) error {
	if b, ok := c.bookings[pod.UID]; ok {
		c.reserved(a, b, messages)
		return nil
	}
	s := c.Settings
	s.Explain = pod.Namespace + "/" + pod.Name
	r, err := offline.Plan(ctx, c.withPromises(c.after), s)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, offline.ErrNoPool):
		a.Kind, a.Summary = PodRefused, "waits: no node can be launched for it, there is no node pool"
		a.advise("there is no node pool")
		return nil
	case err != nil:
		a.Kind, a.Summary = PodUnknown, "waits, and no plan can be made that would say for what"
		a.section("Why not", strings.Split(err.Error(), "\n")...)
		a.advise(messages...)
		return nil
	}
	a.Notes = append(a.Notes, r.Warnings...)
	if place, ok := whatif.PlaceOf(r, pod.Namespace, pod.Name); ok {
		c.placed(a, r, place, pod, messages)
		return nil
	}
	return c.refused(ctx, a, r, pod, messages)
}

// reserved describes the node for which a pod waits.
func (c *Cluster) reserved(a *Answer, b whatif.Booking, messages []string) {
	a.Kind = PodReserved
	nc := b.Claim
	a.Summary = fmt.Sprintf("waits for its node: NodeClaim %s of pool %s (%s)", nc.Name, nc.Labels[karpv1.NodePoolLabelKey], c.machine(nc.Labels))
	if b.Node != nil {
		a.Summary = fmt.Sprintf("waits for its node %s: NodeClaim %s of pool %s (%s)", b.Node.Name, nc.Name, nc.Labels[karpv1.NodePoolLabelKey], c.machine(nc.Labels))
	}
	a.section("How far it is", c.progress(nc))
	a.advise(messages...)
}

// progress says how far the launch of a claim is.
func (c *Cluster) progress(nc *karpv1.NodeClaim) string {
	since := "created " + c.ago(nc.CreationTimestamp.Time) + " ago"
	for _, stage := range []struct{ condition, text string }{
		{karpv1.ConditionTypeLaunched, "the instance is not launched yet"},
		{karpv1.ConditionTypeRegistered, "the instance is launched, its kubelet has not registered yet"},
		{karpv1.ConditionTypeInitialized, "its kubelet has registered, the node is not initialized yet"},
	} {
		cond := conditionOf(nc.Status.Conditions, stage.condition)
		if cond != nil && cond.IsTrue() {
			continue
		}
		if cond != nil && saysMore(cond) {
			return fmt.Sprintf("%s: %s (%s)", stage.text, objects.OneLine(cond.Message), since)
		}
		return fmt.Sprintf("%s (%s)", stage.text, since)
	}
	return "the node is initialized (" + since + ")"
}

// ownSchedulers are the names under which kube-scheduler and Dovetail's scheduler usually run.
var ownSchedulers = map[string]bool{"": true, corev1.DefaultSchedulerName: true, "dovetail-scheduler": true}

// unknown reports whether the configuration isn't known, and a scheduler of that name is neither kube-scheduler nor Dovetail's, as far as names tell.
func unknown(s *offline.Settings, scheduler string) bool {
	return len(s.Pools) == 0 && !ownSchedulers[scheduler]
}

// placed describes where a plan puts the pod.
func (c *Cluster) placed(a *Answer, r *offline.Report, place whatif.Place, pod *corev1.Pod, messages []string) {
	if place.New != nil {
		a.Kind, a.Summary = PodBuys, "waits for a node that would be bought: "+c.placeText(place)
		if why := c.heldBack(place.New.Pool); why != "" {
			a.Summary = "waits: a node would be bought, and launches of its pool are held back: " + c.placeText(place)
			a.section("Why they are held back", why)
			messages = append([]string{why}, messages...)
		}
	} else {
		a.Kind, a.Summary = PodFits, fmt.Sprintf("waits, and fits on node %s: kube-scheduler has not bound it there yet", place.Existing)
		if _, ok := find[*corev1.Node](c.Set, "", place.Existing); !ok {
			a.Summary = "waits, and fits on " + c.placeText(place)
		}
		if name := pod.Spec.SchedulerName; unknown(&c.Settings, name) {
			a.Summary = fmt.Sprintf("waits for scheduler %s, which places it: by kube-scheduler's filters it fits on %s", name, place.Existing)
		}
	}
	schedulerRuns(c, a, pod)
	if r.Explanation != nil {
		a.section("Why there", r.Explanation.Lines...)
	}
	a.advise(messages...)
}

// placeText describes a place of a plan.
func (c *Cluster) placeText(p whatif.Place) string {
	if p.New == nil {
		if _, ok := find[*corev1.Node](c.Set, "", p.Existing); !ok {
			return "NodeClaim " + p.Existing + ", whose instance is starting"
		}
		return "node " + p.Existing + ", which is there"
	}
	zone := p.New.Zone
	if len(p.New.Zones) > 1 {
		zone = fmt.Sprintf("any of %d zones", len(p.New.Zones))
	}
	pool := "pool " + p.New.Pool
	if c.heldBack(p.New.Pool) != "" {
		pool += ", whose launches are held back"
	}
	return fmt.Sprintf("%s, %s, %s, %s/h (%s)", p.New.InstanceType, p.New.CapacityType, zone, dollars(p.New.PricePerHour), pool)
}

// refused says why each pool refuses the pod, and what alone would help.
func (c *Cluster) refused(ctx context.Context, a *Answer, r *offline.Report, pod *corev1.Pod, messages []string) error {
	a.Kind, a.Summary = PodRefused, "waits: no node can be launched for it"
	var why offline.Refused
	for _, one := range r.Refused {
		if one.Namespace == pod.Namespace && one.Name == pod.Name {
			why = one
		}
	}
	rows, reasons := byReason(why.Pools)
	if len(rows) == 0 {
		a.section("Why", why.Reason)
		reasons = []string{why.Reason}
	}
	a.table("Why each pool refuses it", []string{"POOL", "REASON"}, rows)
	if r.Explanation != nil {
		for _, line := range r.Explanation.Lines {
			if strings.Contains(line, "don't take it") {
				if len(manifest.All[*corev1.Node](c.after)) > len(manifest.All[*corev1.Node](c.Set)) { // NodeClaims without a Node count as nodes there
					line = strings.Replace(line, "of the nodes that are there", "of the nodes that are there or starting", 1)
				}
				a.section("And the nodes that are there", line)
			}
		}
	}
	fixes, all, err := whatif.Fixes(ctx, c.withPromises(c.after), c.Settings, pod, c.Patience)
	if err != nil {
		return err
	}
	var lines []string
	tolerated := !all // not every change was tried
	for _, f := range fixes {
		what := f.What
		if name, ok := strings.CutPrefix(what, "the pod requests less "); ok && f.Place.New != nil {
			name, _, _ = strings.Cut(name, " ")
			if most := atMost(why.Pools, f.Place.New.Pool, name); most != "" {
				what += ", " + most + " at most"
			}
		}
		tolerated = tolerated || strings.HasPrefix(f.What, "the pod tolerates ")
		lines = append(lines, what+": "+c.placeText(f.Place))
	}
	title := "Any one of these alone would do"
	if len(lines) == 1 {
		title = "This alone would do"
	}
	a.section(title, lines...)
	if len(lines) == 0 && all {
		a.section("What alone would do", "nothing: no single change of the pod or of a pool gets it a node")
	}
	c.heldBackPools(a)
	if !all {
		a.Notes = append(a.Notes, fmt.Sprintf("not all changes were tried within %s", c.Patience))
	}
	messages = slices.DeleteFunc(slices.Clone(messages), func(m string) bool { return strings.Contains(m, beingPlanned) }) // it has been planned, and refused
	advice := adviceFor(append(reasons, messages...)...)
	if !tolerated { // another refusal of that pool would remain
		advice = withoutTaints(advice)
	}
	a.adviseAll(advice)
	return nil
}

// byReason returns a row for each reason, with the pools that have it.
func byReason(pools []offline.PoolReason) (rows [][]string, reasons []string) {
	for _, p := range pools {
		i := slices.Index(reasons, p.Reason)
		if i < 0 {
			rows, reasons = append(rows, []string{p.Pool, p.Reason}), append(reasons, p.Reason)
			continue
		}
		rows[i][0] += ", " + p.Pool
	}
	return rows, reasons
}

// messages returns what Dovetail and kube-scheduler last said about a pod, the newest first.
func (c *Cluster) messages(pod *corev1.Pod) (out []string) {
	for _, e := range c.events("Pod", pod) {
		out = append(out, e.Message)
	}
	if cond := unscheduled(pod); cond != nil {
		out = append(out, cond.Message)
	}
	return out
}

func unscheduled(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if cond := &pod.Status.Conditions[i]; cond.Type == corev1.PodScheduled && cond.Status == corev1.ConditionFalse {
			return cond
		}
	}
	return nil
}

// mostReported is how many events are shown.
const mostReported = 5

// longMessage is how long a message is at least that isn't repeated.
const longMessage = 40

// shortened shortens a message by what messages above it have said: events and the condition of a pod often carry the same sentence.
func shortened(message string, above []string) string {
	for _, a := range above {
		switch {
		case len(message) >= longMessage && strings.Contains(a, message):
			return "the same"
		case len(a) >= longMessage && strings.Contains(message, a):
			return strings.Replace(message, a, "(the same as above)", 1)
		}
	}
	return message
}

// reported shows the last events and the condition of a pod.
func (c *Cluster) reported(a *Answer, pod *corev1.Pod) {
	var rows [][]string
	var said []string
	report := func(at time.Time, reason, message string) {
		message = objects.OneLine(message)
		rows = append(rows, []string{c.ago(at), reason, shortened(message, said)})
		said = append(said, message)
	}
	for _, e := range c.events("Pod", pod) {
		if len(rows) < mostReported {
			report(e.at, e.Reason, e.Message)
		}
	}
	if cond := unscheduled(pod); cond != nil && cond.Message != "" {
		report(cond.LastTransitionTime.Time, cond.Reason, cond.Message)
	}
	a.table("Last reported", []string{"AGO", "REASON", "MESSAGE"}, rows)
}

// heldBack returns what keeps a pool from launching nodes now, which a plan doesn't know: its own conditions and those of its class. Empty:
// nothing does.
func (c *Cluster) heldBack(pool string) string {
	np, ok := find[*karpv1.NodePool](c.Set, "", pool)
	if !ok {
		return ""
	}
	for _, all := range [][]status.Condition{np.Status.Conditions, conditionsOf(c.classOf(np))} {
		for i := range all {
			if cond := &all[i]; cond.IsTrue() && (cond.Type == objects.ConditionLaunchesPaused || cond.Type == objects.ConditionBudgetReached) {
				return objects.OneLine(cond.Message)
			}
		}
	}
	return ""
}

// heldBackPools adds what keeps any of the pools from launching nodes.
func (c *Cluster) heldBackPools(a *Answer) {
	var lines []string
	for _, np := range manifest.All[*karpv1.NodePool](c.Set) {
		if why := c.heldBack(np.Name); why != "" {
			lines = append(lines, "pool "+np.Name+": "+why)
		}
	}
	a.section("Launches are held back, whatever a plan says", lines...)
}
