package lifecycle

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/pods"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// bootingPods deletes, without grace period, pods that were deleted while their node boots: there is no kubelet yet that would end them.
// The Node is read live, because once its kubelet has posted its status, ending pods is the kubelet's task.
type bootingPods struct {
	nodes *nodes
	pods  *boundPods
}

func (b *bootingPods) reconcile(ctx context.Context, l *life) (time.Duration, error) {
	node := l.match.node
	if node == nil || objects.Posted(node) {
		return 0, nil
	}
	waiting := func(p *corev1.Pod) bool {
		return pods.Terminating(p) && (p.DeletionGracePeriodSeconds == nil || *p.DeletionGracePeriodSeconds > 0)
	}
	bound, err := b.pods.cached(node.Name)
	if err != nil {
		return 0, err
	}
	for _, p := range bound {
		if !waiting(p) {
			continue
		}
		now, err := b.nodes.get(ctx, node.Name)
		if apierrors.IsNotFound(err) {
			return 0, nil
		} else if err != nil {
			return 0, err
		}
		if objects.Posted(now) {
			return 0, nil
		}
		return 0, b.pods.kill(ctx, node.Name, waiting)
	}
	return 0, nil
}
