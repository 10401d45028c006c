package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/pods"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
	"github.com/dovetail-scheduler/dovetail/pkg/simulate"
	"github.com/dovetail-scheduler/dovetail/pkg/spending"
)

// firstCycleWaits is how long the first scheduling cycle waits at most for the reservations of an earlier leader. They are restored within
// milliseconds, unless the NodeClaims or Karpenter's leases can't be read. Pods that fit on existing nodes must not wait longer for that.
const firstCycleWaits = 5 * time.Second

// whenLeading calls f whenever the scheduler asks for a pod. Only the leader's scheduler does so, and only after its informers have synced, so the
// first call means that this process leads. Leader election's callbacks can't be used, because upstream's run loop sets them. The first
// scheduling cycle begins when ready is closed, at the latest after firstCycleWaits.
func whenLeading(ctx context.Context, sched *scheduler.Scheduler, c clock.WithTicker, f func(), ready <-chan struct{}) {
	next := sched.NextPod
	var wait sync.Once
	sched.NextPod = func(logger klog.Logger) (*framework.QueuedPodInfo, error) {
		f()
		wait.Do(func() {
			limit := c.NewTimer(firstCycleWaits)
			defer limit.Stop()
			select {
			case <-ready:
			case <-limit.C():
			case <-ctx.Done():
			}
		})
		return next(logger)
	}
}

// takeDownWithoutNodes tells the ledger of pods that failed because the cluster has no nodes at all: PostFilter, which tells it of other pods, is
// not called for them. profiles are the names of the profiles with our plugins.
func takeDownWithoutNodes(sched *scheduler.Scheduler, profiles []string, reservations *reservations.Ledger, classes *pending.Classes) {
	handle := sched.FailureHandler
	sched.FailureHandler = func(ctx context.Context, f framework.Framework, p *framework.QueuedPodInfo, status *fwk.Status, n *fwk.NominatingInfo, start time.Time) {
		if errors.Is(status.AsError(), scheduler.ErrNoNodesAvailable) && slices.Contains(profiles, f.ProfileName()) {
			takeDown(ctx, p.Pod, reservations, classes)
		}
		handle(ctx, f, p, status, n, start)
	}
}

// tellOfFailures tells package pending of pods whose scheduling cycle has failed. PostFilter, which tells the ledger of those that are demand, is not
// called where a plugin returned an error or the cluster has no nodes.
func tellOfFailures(sched *scheduler.Scheduler, profiles []string, pods *pending.Pods) {
	handle := sched.FailureHandler
	sched.FailureHandler = func(ctx context.Context, f framework.Framework, p *framework.QueuedPodInfo, status *fwk.Status, n *fwk.NominatingInfo, start time.Time) {
		if slices.Contains(profiles, f.ProfileName()) {
			pods.Tried(p.Pod.UID)
		}
		handle(ctx, f, p, status, n, start)
	}
}

func takeDown(ctx context.Context, pod *corev1.Pod, reservations *reservations.Ledger, classes *pending.Classes) {
	if objects.OfDaemonSet(pod) {
		return
	}
	class, err := classes.Class(pod)
	if err != nil {
		reservations.Withdraw(pod.UID)
		klog.FromContext(ctx).V(3).Info("No node can be launched for the pod", "pod", klog.KObj(pod), "reason", err)
		return
	}
	reservations.Submit(capacity.RefOf(pod), class)
}

// judge returns what ending a pod costs, and whether the pod protects its node. Static pools choose by this which nodes to end when they scale down.
func judge(pod *corev1.Pod, now time.Time) (cost float64, protected bool) {
	if pods.Occupies(pod, now) {
		cost = pods.Cost(pod)
	}
	asks, _ := pods.DoNotDisrupt(pod, now)
	return cost, asks && !objects.Ended(pod) && !pods.Terminating(pod)
}

// podsOn returns a func that returns the pods bound to a node name, from the informer, which package lifecycle has indexed.
func podsOn(informer cache.SharedIndexInformer) func(node string) []*corev1.Pod {
	return func(node string) []*corev1.Pod {
		bound, err := pods.OnNode(informer.GetIndexer(), node)
		if err != nil {
			klog.Background().Error(err, "Could not look for the pods of a node", "node", node)
		}
		return bound
	}
}

// queue is the scheduling queue as package launch uses it.
type queue struct{ sched *scheduler.Scheduler }

func (q queue) Activate(pods []*corev1.Pod) {
	byName := make(map[string]*corev1.Pod, len(pods))
	for _, pod := range pods {
		byName[pod.Namespace+"/"+pod.Name] = pod
	}
	q.sched.SchedulingQueue.Activate(klog.Background(), byName)
}

// worldOf is the simulation as package launch uses it.
type worldOf struct{ *simulate.World }

func (w worldOf) Nodes(decorate func(*capacity.Node, *corev1.Node) *capacity.Node) []*capacity.Node {
	return w.World.Nodes(decorate)
}

// nodeBuilder builds Node objects with Karpenter's labels and taints.
type nodeBuilder struct{}

func (nodeBuilder) NodeFor(c *capacity.Claim, inst capacity.Instance, features []string) *corev1.Node {
	return karpenter.NodeFor(c, inst, features)
}

func (nodeBuilder) PlannedNode(p *capacity.PlannedNode, name string) *corev1.Node {
	return karpenter.PlannedNodeObject(p, name)
}

// nodeOfClaim returns a func that builds the Node to create ahead of its kubelet, from the NodeClaim object that package lifecycle has. class is
// the kind of the claim's node class.
func nodeOfClaim(class schema.GroupKind) func(*karpv1.NodeClaim, capacity.Instance) (*corev1.Node, error) {
	return func(claim *karpv1.NodeClaim, inst capacity.Instance) (*corev1.Node, error) {
		return karpenter.NodeFor(karpenter.ClaimOf(claim, class), inst, nil), nil
	}
}

// taintsOf returns a func that returns the taints of a Node. A Node that was cordoned just now counts as tainted already.
func taintsOf(nodes corelisters.NodeLister) func(name string) []corev1.Taint {
	return func(name string) []corev1.Taint {
		node, err := nodes.Get(name)
		if err != nil {
			return nil
		}
		if cordoned := (corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}); node.Spec.Unschedulable {
			return append(slices.Clip(node.Spec.Taints), cordoned)
		}
		return node.Spec.Taints
	}
}

// drained returns a func that returns the names of the Nodes that are being emptied.
func drained(nodes corelisters.NodeLister) func() []string {
	return func() (out []string) {
		all, err := nodes.List(labels.Everything())
		if err != nil {
			return nil
		}
		for _, n := range all {
			if slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == capacity.TaintDisrupted }) {
				out = append(out, n.Name)
			}
		}
		return out
	}
}

// poolOf returns a func that returns the node pool of a Node of ours.
func poolOf(nodes corelisters.NodeLister, ours capacity.NodeClassLabel) func(name string) string {
	return func(name string) string {
		node, err := nodes.Get(name)
		if err != nil || !ours.Managed(node) {
			return ""
		}
		return node.Labels[karpv1.NodePoolLabelKey]
	}
}

// disrupting returns a func that reports claims that package disruption ends to the spending guard.
func disrupting(s *spending.Guard, claim func(string) *capacity.Claim, causes *endCauses) func(ctx context.Context, name, reason string) {
	return func(_ context.Context, name, reason string) {
		switch {
		case reason == string(karpv1.DisruptionReasonEmpty):
			s.Emptied(name)
		case reason == disruption.ReasonUnhealthy:
			pool, launched := "", time.Time{}
			if c := claim(name); c != nil {
				pool, launched = c.Pool, c.CreatedAt
			}
			s.Repaired(name, pool, "its node was unhealthy", launched)
		case reason == disruption.ReasonInstanceEnded && !s.Decided(name) && !causes.taken(name):
			s.Ending(name, &guard.Fault{Machine: true, Cause: "instance ended", Message: "its instance has ended"})
		default:
			s.Ending(name, nil)
		}
	}
}
