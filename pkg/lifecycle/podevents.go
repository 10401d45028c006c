package lifecycle

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/pods"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

const (
	// podEventEvery is the least time between two writes of a claim's lastPodEventTime. An event within that time is written when it is over.
	podEventEvery = 10 * time.Second
	// podEventRate bounds how many such writes are made per second for all claims together: where pods are created and deleted all the time
	// on thousands of nodes, each pod would otherwise cost two more writes.
	podEventRate = 20
)

// podEvent returns the node on which a pod was bound, began to end or was removed, or "". counts reports whether that counts as activity of
// the node: DaemonSet pods and static pods never do, being part of the node. A removal doesn't count if the beginning of the pod's end was
// seen: that was the event, and the node isn't empty in between.
func podEvent(before, after *corev1.Pod) (node string, counts bool) {
	p := after
	if p == nil {
		p = before
	}
	if p == nil || p.Spec.NodeName == "" {
		return "", false
	}
	came := after != nil && (before == nil || before.Spec.NodeName == "")
	went := after == nil
	ending := before != nil && after != nil &&
		(pods.Terminating(before) != pods.Terminating(after) || objects.Ended(before) != objects.Ended(after))
	if !came && !went && !ending {
		return "", false
	}
	over := went && before != nil && (pods.Terminating(before) || objects.Ended(before))
	return p.Spec.NodeName, !over && !pods.Daemon(p) && !pods.Mirror(p)
}

// podActivity writes when a pod was last bound to or left an initialized node, not too often.
type podActivity struct {
	podEvents *podEvents
	index     *claimIndex
}

func (a *podActivity) reconcile(_ context.Context, l *life) (time.Duration, error) {
	if !conditionTrue(l.claim, karpv1.ConditionTypeInitialized) {
		return 0, nil
	}
	last, ok := a.podEvents.get(l.claim.Status.NodeName)
	if !ok || !last.After(l.claim.Status.LastPodEventTime.Time) {
		return 0, nil
	}
	every := max(podEventEvery, time.Second*time.Duration(a.index.size())/podEventRate)
	if wait := l.claim.Status.LastPodEventTime.Add(every).Sub(l.now); wait > 0 {
		return wait, nil
	}
	l.claim.Status.LastPodEventTime = metav1.NewTime(last)
	return 0, nil
}

// podEvents remembers the last activity per node, in whole seconds as the API does.
type podEvents struct{ memory[string, time.Time] }
