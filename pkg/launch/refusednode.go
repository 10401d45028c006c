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

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// refusalPatience is how long a Node is tried again that the API server refuses. The machine is there and paid for its first minute
// anyway, a webhook may be starting or a policy being changed, and the kubelet may be allowed what we are not.
const refusalPatience = 2 * time.Minute

const (
	reasonNodeRefused    = "NodeRefused"
	reasonNodeNotCreated = "NodeNotCreated"
)

// refusesNode says that the API server, or what it asks before it writes, will not have the object as it is. Webhooks answer with whatever
// code they like, most often none, which becomes 400 without a reason; policies with 422 or 403.
func refusesNode(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return false // it hasn't looked at the object
	default:
		return code >= 400 && code < 500
	}
}

// nodeRefused looks after a Node that the API server has refused since then, by err. The first time the claim is told. made: the kubelet has
// created the Node itself. left is how long to go on trying; it is 0 when there is nothing more to do, because the kubelet came under
// another name, which lifecycle learns when it registers, or because the claim has been given up.
func (m *Motor) nodeRefused(ctx context.Context, c *capacity.Claim, node *corev1.Node, since time.Time, first bool, err error) (made bool, left time.Duration) {
	logger := m.log(ctx)
	if first {
		logger.Info("The API server refuses a Node; trying again", "node", node.Name, "nodeClaim", c.Name, "for", refusalPatience, "err", err)
		m.claims.TellClaim(c.Name, corev1.EventTypeWarning, reasonNodeRefused,
			fmt.Sprintf("Node %s can't be created, which is tried for %s before the instance is ended: %v", node.Name, refusalPatience, err))
	}
	have, lookErr := m.cluster.GetNode(ctx, node.Name)
	if lookErr == nil && ownNode(c, node, have) {
		return true, 0
	}
	names := m.nodeOf.ofMachine(node.Spec.ProviderID)
	if now := m.claim(c.Name); now != nil && now.Registered || slices.ContainsFunc(names, func(name string) bool { return name != node.Name }) {
		logger.V(2).Info("The kubelet came under another name than that of the Node which is refused", "node", node.Name, "nodeClaim", c.Name, "nodes", names)
		return false, 0
	}
	if left = refusalPatience - m.clock.Since(since); left <= 0 {
		m.spending.nodeRefused(c, node, err)
		m.fail(ctx, []*capacity.Claim{c}, reasonNodeNotCreated, err.Error(), false)
		return false, 0
	}
	return false, left
}
