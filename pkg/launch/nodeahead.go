package launch

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
)

// nameReuseCheck is how often a Node name that is taken is checked again.
const nameReuseCheck = 2 * time.Second

// createNode creates the Node. It never adopts a Node of that name that belongs to another instance, but waits until that Node is gone, and
// the pods that it left behind, too. A Node without a provider ID, because a kubelet without cloud provider created it, must be younger
// than the claim and have the instance's address. A Node that the API server refuses is retried for a while (nodeRefused).
func (f *finisher) createNode(ctx context.Context, by provisioning.Requester, c *capacity.Claim, node *corev1.Node) bool {
	logger := klog.FromContext(ctx)
	begun := f.calls.clock.Now()
	var refusedSince time.Time
	for wait := firstRetry; ; wait = min(2*wait, maxRetry) {
		vacant, problem := f.vacant(ctx, c, node.Name, begun)
		var err error
		if vacant && problem == nil {
			err = f.cluster.CreateNode(ctx, node)
		}
		switch {
		case problem != nil: // also if we may not delete: the kubelet may create the Node, and the instance is fine
			logger.Info("Pods of a deleted Node could not be deleted; trying again", "node", node.Name, "err", problem)
		case !vacant:
			wait = nameReuseCheck
		case err == nil:
			return true
		case apierrors.IsAlreadyExists(err):
			have, gerr := f.cluster.GetNode(ctx, node.Name)
			if gerr == nil && ownNode(c, node, have) {
				return true // created before a restart, or by a faster kubelet
			}
			if gerr == nil {
				logger.Info("A Node of that name belongs to another instance; waiting until it is gone", "node", node.Name,
					"has", have.Spec.ProviderID, "want", node.Spec.ProviderID)
			}
			wait = nameReuseCheck
		case refusesNode(err):
			first := refusedSince.IsZero()
			if first {
				refusedSince = f.calls.clock.Now()
			}
			made, left := f.nodeRefused(ctx, by, c, node, refusedSince, first, err)
			if made || left == 0 {
				return made
			}
			wait = min(wait, left)
		default:
			logger.V(2).Info("Creating the Node failed; trying again", "node", node.Name, "err", err)
		}
		if !f.calls.sleep(ctx, wait) {
			return false
		}
		if !f.claims.lives(c) {
			return false
		}
	}
}

// leftoverPatience is how long pods that a deleted Node left behind may take to go by themselves: longer than the pod garbage collector
// takes. They may be pods of this very instance, whose Node was deleted and is to be created again.
const leftoverPatience = time.Minute

// vacant reports whether no pods are bound to a name that has no Node: an instance that gets the name of an earlier one would inherit them
// all, whatever its size. No kubelet runs these pods. Those bound before the claim was created, or that have run, are deleted at once, all
// others after leftoverPatience.
func (f *finisher) vacant(ctx context.Context, c *capacity.Claim, name string, begun time.Time) (bool, error) {
	left := f.cluster.PodsOn(name)
	if len(left) == 0 {
		return true, nil
	}
	if _, err := f.cluster.GetNode(ctx, name); err == nil {
		return true, nil // there is a Node; creating it will show whose it is
	} else if !apierrors.IsNotFound(err) {
		return false, err
	}
	klog.FromContext(ctx).V(2).Info("Pods are still bound to a deleted Node; waiting until they are gone", "node", name, "nodeClaim", c.Name, "pods", len(left))
	for _, pod := range left {
		if pod.Status.StartTime == nil && !boundAt(pod).Before(c.CreatedAt) && f.calls.clock.Since(begun) < leftoverPatience {
			continue
		}
		if err := f.cluster.EndPod(ctx, pod); err != nil {
			return false, err
		}
	}
	return false, nil
}

// boundAt returns when the pod was bound, or its creation if that is not recorded.
func boundAt(pod *corev1.Pod) time.Time {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	return pod.CreationTimestamp.Time
}

// ownNode reports whether an existing Node is the one that was to be created.
func ownNode(c *capacity.Claim, want, have *corev1.Node) bool {
	if have.Spec.ProviderID != "" {
		return have.Spec.ProviderID == want.Spec.ProviderID
	}
	address := objects.InternalIP(want)
	return address != "" && address == objects.InternalIP(have) && !have.CreationTimestamp.Time.Before(c.CreatedAt)
}
