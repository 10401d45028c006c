package lifecycle

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/pods"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// boundPods reads the pods bound to a node, and deletes those that no kubelet will end.
type boundPods struct {
	kube  kubernetes.Interface
	cache cache.Indexer
}

// cached returns the pods of a node as the informer knows them. They are shared and must not be changed.
func (b *boundPods) cached(node string) ([]*corev1.Pod, error) { return pods.OnNode(b.cache, node) }

// endAll deletes all pods that are bound to a node and haven't ended, whether the cache knows them or not.
func (b *boundPods) endAll(ctx context.Context, node string) error {
	list, err := b.live(ctx, node)
	if err != nil {
		return err
	}
	return b.killThese(ctx, list, node)
}

// deleteOrphaned deletes pods that are still bound to a Node whose instance is gone: a new Node of that name would inherit them. It
// reads the Node after the pods, so that these can't belong to a new Node.
func (b *boundPods) deleteOrphaned(ctx context.Context, node string) error {
	if node == "" {
		return nil
	}
	list, err := b.live(ctx, node)
	if err != nil || len(list) == 0 {
		return err
	}
	switch _, err := b.kube.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{}); {
	case err == nil:
		return nil
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("reading Node %s: %w", node, err)
	}
	return b.killThese(ctx, list, node)
}

func (b *boundPods) killThese(ctx context.Context, list []corev1.Pod, node string) error {
	for i := range list {
		if objects.Ended(&list[i]) {
			continue
		}
		if err := b.killOne(ctx, &list[i], node); err != nil {
			return err
		}
	}
	return nil
}

// live returns the pods of a node as the API has them now.
func (b *boundPods) live(ctx context.Context, node string) ([]corev1.Pod, error) {
	list, err := b.kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of node %s: %w", node, err)
	}
	return list.Items, nil
}

// kill deletes the chosen pods of a node that has no kubelet, not yet or no longer.
func (b *boundPods) kill(ctx context.Context, node string, choose func(*corev1.Pod) bool) error {
	bound, err := b.cached(node)
	if err != nil {
		return err
	}
	for _, p := range bound {
		if !choose(p) {
			continue
		}
		if err := b.killOne(ctx, p, node); err != nil {
			return err
		}
	}
	return nil
}

// killOne deletes a pod without grace period: none of its containers run.
func (b *boundPods) killOne(ctx context.Context, p *corev1.Pod, node string) error {
	var none int64
	err := b.kube.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &none, Preconditions: &metav1.Preconditions{UID: &p.UID},
	})
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		return nil // the pod was gone already; after a conflict another one has its name
	case err != nil:
		return fmt.Errorf("deleting pod %s on node %s, which has no kubelet: %w", klog.KObj(p), node, err)
	}
	klog.FromContext(ctx).V(3).Info("Deleted a pod whose node has no kubelet", "pod", klog.KObj(p), "node", node)
	return nil
}
