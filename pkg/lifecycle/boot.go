package lifecycle

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/pods"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// endBootingPods deletes, without grace period, pods that were deleted while their node boots: there is no kubelet yet that would end them.
// The Node is read live, because once its kubelet has posted its status, ending pods is the kubelet's task.
func (c *Controller) endBootingPods(ctx context.Context, l *life) (time.Duration, error) {
	node := l.match.node
	if node == nil || Posted(node) {
		return 0, nil
	}
	waiting := func(p *corev1.Pod) bool {
		return pods.Terminating(p) && (p.DeletionGracePeriodSeconds == nil || *p.DeletionGracePeriodSeconds > 0)
	}
	bound, err := pods.OnNode(c.pods.GetIndexer(), node.Name)
	if err != nil {
		return 0, err
	}
	for _, p := range bound {
		if !waiting(p) {
			continue
		}
		now, err := c.kube.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return 0, nil
		} else if err != nil {
			return 0, fmt.Errorf("reading Node %s: %w", node.Name, err)
		}
		if Posted(now) {
			return 0, nil
		}
		return 0, c.killPods(ctx, node.Name, waiting)
	}
	return 0, nil
}

// endPods deletes all pods that are bound to a node and haven't ended, whether the cache knows them or not.
func (c *Controller) endPods(ctx context.Context, node string) error {
	list, err := c.boundTo(ctx, node)
	if err != nil {
		return err
	}
	return c.killThese(ctx, list, node)
}

// deleteOrphanedPods deletes pods that are still bound to a Node whose instance is gone: a new Node of that name would inherit them. It
// reads the Node after the pods, so that these can't belong to a new Node.
func (c *Controller) deleteOrphanedPods(ctx context.Context, node string) error {
	if node == "" {
		return nil
	}
	list, err := c.boundTo(ctx, node)
	if err != nil || len(list) == 0 {
		return err
	}
	switch _, err := c.kube.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{}); {
	case err == nil:
		return nil
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("reading Node %s: %w", node, err)
	}
	return c.killThese(ctx, list, node)
}

func (c *Controller) killThese(ctx context.Context, list []corev1.Pod, node string) error {
	for i := range list {
		if objects.Ended(&list[i]) {
			continue
		}
		if err := c.killPod(ctx, &list[i], node); err != nil {
			return err
		}
	}
	return nil
}

// boundTo returns the pods of a node as the API has them now.
func (c *Controller) boundTo(ctx context.Context, node string) ([]corev1.Pod, error) {
	list, err := c.kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of node %s: %w", node, err)
	}
	return list.Items, nil
}

// killPods deletes the chosen pods of a node that has no kubelet, not yet or no longer.
func (c *Controller) killPods(ctx context.Context, node string, choose func(*corev1.Pod) bool) error {
	bound, err := pods.OnNode(c.pods.GetIndexer(), node)
	if err != nil {
		return err
	}
	for _, p := range bound {
		if !choose(p) {
			continue
		}
		if err := c.killPod(ctx, p, node); err != nil {
			return err
		}
	}
	return nil
}

// killPod deletes a pod without grace period: none of its containers run.
func (c *Controller) killPod(ctx context.Context, p *corev1.Pod, node string) error {
	var none int64
	err := c.kube.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &none, Preconditions: &metav1.Preconditions{UID: &p.UID},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting pod %s on node %s, which has no kubelet: %w", klog.KObj(p), node, err)
	}
	klog.FromContext(ctx).V(3).Info("Deleted a pod whose node has no kubelet", "pod", klog.KObj(p), "node", node)
	return nil
}
