package lifecycle

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

const (
	// checkEvery is how often an initialized node is compared with what its claim promises.
	checkEvery = 10 * time.Minute
	// shortBy is the share of each promised resource, from 0 to 1, that may be missing.
	shortBy = 0.1
)

// consistency compares an initialized node with its claim.
type consistency struct{ recorder recorder }

// reconcile sets the condition that says whether the claim's node has what was bought. It changes nothing else: pods that were planned on
// more capacity than exists were planned anew long ago, and package aws learns the true capacity of the instance type.
func (c *consistency) reconcile(_ context.Context, l *life) (time.Duration, error) {
	node := l.match.node
	if node == nil || node.DeletionTimestamp != nil || !conditionTrue(l.claim, karpv1.ConditionTypeInitialized) {
		return 0, nil
	}
	set := l.conditions()
	short := shortages(l.claim.Spec.Resources.Requests, l.claim.Status.Capacity, node.Status.Capacity)
	if len(short) == 0 {
		set.SetTrue(karpv1.ConditionTypeConsistentStateFound)
		return checkEvery, nil
	}
	message := "the node has less than was bought: " + strings.Join(short, ", ")
	if set.SetFalse(karpv1.ConditionTypeConsistentStateFound, "ConsistencyCheckFailed", message) {
		c.recorder.event(l.claim, node, corev1.EventTypeWarning, reasonInconsistent, "Check", "%s", message)
	}
	return checkEvery, nil
}

// shortages returns the requested resources of which the node has clearly less than expected. Resources of the type that were not requested
// (network interfaces for pods, in a cluster that doesn't use them) are ignored.
func shortages(asked, expected, have corev1.ResourceList) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(expected)) {
		if q := asked[name]; q.IsZero() {
			continue
		}
		want, got := expected[name], have[name]
		if float64(got.MilliValue()) < (1-shortBy)*float64(want.MilliValue()) {
			out = append(out, fmt.Sprintf("%s %s instead of %s", name, got.String(), want.String()))
		}
	}
	return out
}
