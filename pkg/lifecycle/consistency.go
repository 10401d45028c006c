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
	// checkEvery is how often an initialized node is compared with what its claim promised.
	checkEvery = 10 * time.Minute
	// shortBy is which part of what was promised may be missing.
	shortBy = 0.1
)

// compare says on the claim whether its node has what was bought. It changes nothing else: pods that were planned on more than
// there is were planned anew long ago, and what the type really has is learned by the cloud.
func (c *Controller) compare(_ context.Context, l *life) (time.Duration, error) {
	node := l.match.node
	if node == nil || node.DeletionTimestamp != nil || !conditionTrue(l.claim, karpv1.ConditionTypeInitialized) {
		return 0, nil
	}
	set := c.conditions(l.claim)
	short := shortages(l.claim.Spec.Resources.Requests, l.claim.Status.Capacity, node.Status.Capacity)
	if len(short) == 0 {
		set.SetTrue(karpv1.ConditionTypeConsistentStateFound)
		return checkEvery, nil
	}
	message := "the node has less than was bought: " + strings.Join(short, ", ")
	if set.SetFalse(karpv1.ConditionTypeConsistentStateFound, "ConsistencyCheckFailed", message) {
		c.event(l.claim, node, corev1.EventTypeWarning, reasonInconsistent, "Check", "%s", message)
	}
	return checkEvery, nil
}

// shortages are the resources that were asked for and of which there is clearly less than expected. What a type could have
// besides (network interfaces for pods, in a cluster that doesn't use them) nobody has bought it for.
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
