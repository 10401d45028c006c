package launch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
)

// refusalPatience is how long a Node that the API server refuses is retried. The instance exists and is paid for its first minute anyway, a
// webhook may be starting or a policy being changed, and the kubelet may be allowed what we are not.
const refusalPatience = 2 * time.Minute

const (
	reasonNodeRefused    = "NodeRefused"
	reasonNodeNotCreated = "NodeNotCreated"
)

// refusesNode reports whether the API server, or a webhook or policy that it asks before it writes, rejects the object as it is. Webhooks
// answer with any code, most often with none, which becomes 400 without a reason; policies with 422 or 403.
func refusesNode(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return false // the API server has answered before it judged the object
	default:
		return code >= 400 && code < 500
	}
}

// nodeRefused handles a Node whose creation the API server refuses with err, since the time since. On the first refusal it records an event on
// the claim. made is true if the kubelet has created the Node itself. left is how long to go on trying; it is 0 when there is nothing more to
// do, because the kubelet registered under another name, which the lifecycle controller reports, or because the claim has been given up.
func (f *finisher) nodeRefused(ctx context.Context, by provisioning.Requester, c *capacity.Claim, node *corev1.Node, since time.Time, first bool, err error) (made bool, left time.Duration) {
	logger := klog.FromContext(ctx)
	if first {
		logger.Info("The API server refuses a Node; trying again", "node", node.Name, "nodeClaim", c.Name, "for", refusalPatience, "err", err)
		f.claims.TellClaim(c.Name, corev1.EventTypeWarning, reasonNodeRefused,
			fmt.Sprintf("Node %s can't be created; retrying for %s before the instance is terminated: %v", node.Name, refusalPatience, err))
	}
	have, lookErr := f.cluster.GetNode(ctx, node.Name)
	if lookErr == nil && ownNode(c, node, have) {
		return true, 0
	}
	names := f.tracker.states.ofMachine(node.Spec.ProviderID)
	if now := f.claims.Current(c.Name); now != nil && now.Registered || slices.ContainsFunc(names, func(name string) bool { return name != node.Name }) {
		logger.V(2).Info("The kubelet registered under another name than that of the refused Node", "node", node.Name, "nodeClaim", c.Name, "nodes", names)
		return false, 0
	}
	if left = refusalPatience - f.calls.clock.Since(since); left <= 0 {
		f.spending.NodeRefused(c, node, err)
		f.cleanup.fail(ctx, by, []*capacity.Claim{c}, reasonNodeNotCreated, err.Error(), false)
		return false, 0
	}
	return false, left
}
