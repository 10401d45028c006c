package lifecycle

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/pods"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

const (
	// podEventEvery is the least time between two writes of a claim's lastPodEventTime. A later event is written when it is over.
	podEventEvery = 10 * time.Second
	// podEventRate is how many of them are written per second at most, all claims taken together: where pods come and go all the
	// time on thousands of nodes, each would otherwise cost two writes more.
	podEventRate = 20
)

// podEvent is the node a change of a pod happened on, if anything came, began to end or went there, and whether it counts
// as activity of the node: daemons and static pods belong to it. Going is no other event than the beginning of the end, which was
// one if it was seen; a node isn't empty in between.
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

// recordPodEvents writes when something last came to or left an initialized node, not too often.
func (c *Controller) recordPodEvents(_ context.Context, l *life) (time.Duration, error) {
	if !conditionTrue(l.claim, karpv1.ConditionTypeInitialized) {
		return 0, nil
	}
	last, ok := c.podEvents.last(l.claim.Status.NodeName)
	if !ok || !last.After(l.claim.Status.LastPodEventTime.Time) {
		return 0, nil
	}
	every := max(podEventEvery, time.Second*time.Duration(c.index.size())/podEventRate)
	if wait := l.claim.Status.LastPodEventTime.Add(every).Sub(l.now); wait > 0 {
		return wait, nil
	}
	l.claim.Status.LastPodEventTime = metav1.NewTime(last)
	return 0, nil
}

// podEvents remembers the last activity per node, in whole seconds as the API does. Safe for concurrent use.
type podEvents struct {
	mu sync.Mutex
	at map[string]time.Time
}

func newPodEvents() *podEvents { return &podEvents{at: map[string]time.Time{}} }

func (e *podEvents) note(node string, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.at[node] = at.Truncate(time.Second)
}

func (e *podEvents) last(node string) (time.Time, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t, ok := e.at[node]
	return t, ok
}

func (e *podEvents) forget(node string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.at, node)
}
