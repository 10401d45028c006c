package lifecycle

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/pods"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

const (
	// initializationTimeout is how long after its registration a node may stay unfit for what it was bought for. Karpenter waits for ever;
	// the planned pods would wait with it, and the node is paid for.
	initializationTimeout = 15 * time.Minute
	// awaitedEvery is how often to check whether pods still wait for such a node.
	awaitedEvery = time.Minute
)

// lateInitialization gives up a node that doesn't become fit for what it was bought for. A Ready node with pods is of use and stays.
type lateInitialization struct {
	pods           *boundPods
	waits          *waits
	reports        *reports
	recorder       recorder
	requirements   requirements
	surrender      *surrender
	startupTimeout time.Duration           // from the registration; how long an otherwise fit node that pods wait for may have startup taints
	awaited        func(claim string) bool // reports whether pods wait for the claim's node
}

func (i *lateInitialization) check(ctx context.Context, l *life) (time.Duration, error) {
	node := l.match.node
	since := condition(l.claim, karpv1.ConditionTypeRegistered).LastTransitionTime.Time
	if wait := i.waits.left(l.claim.Name, "initialization", since, initializationTimeout, l.now); wait > 0 {
		return wait, nil
	}
	why := i.requirements.missing(node, l.claim)
	if why == nil || node.DeletionTimestamp != nil {
		return 0, nil // initialization is being written
	}
	bound, err := i.pods.cached(node.Name)
	if err != nil {
		return 0, err
	}
	if objects.Ready(node) && slices.ContainsFunc(bound, func(p *corev1.Pod) bool { return pods.Occupies(p, l.now) }) {
		i.recorder.event(l.claim, node, corev1.EventTypeWarning, reasonInitTimeout, "Check", "not initialized within %s: %v; the node is kept, because pods run there", initializationTimeout, why)
		return initializationTimeout, nil
	}
	limit := initializationTimeout
	if i.requirements.onlyStartupTaints(node, l.claim) && i.awaited(l.claim.Name) {
		limit = i.startupTimeout
		if wait := i.waits.left(l.claim.Name, "startup taints", since, limit, l.now); wait > 0 {
			i.delayed(l, why, since.Add(limit))
			return min(wait, awaitedEvery), nil
		}
	}
	return 0, i.surrender.giveUp(ctx, l, reasonInitTimeout, fmt.Sprintf("not initialized within %s of its registration: %v", limit, why))
}

// delayed records that a node is late and why it is not given up yet.
func (i *lateInitialization) delayed(l *life, why error, until time.Time) {
	message := fmt.Sprintf("not initialized within %s: %v; pods wait for the node, and it is given up at %s if that stays so", initializationTimeout, why, until.UTC().Format(time.RFC3339))
	l.conditions().SetTrueWithReason(objects.ConditionInitializationDelayed, "StartupTaintsExist", message)
	if i.reports.first(l.claim.Name, nodeDelayed) {
		i.recorder.event(l.claim, l.match.node, corev1.EventTypeWarning, reasonInitDelayed, "Check", "%s", message)
	}
}
