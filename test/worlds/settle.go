package worlds

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/worlds/draw"
)

// quiet is how long nothing new may happen before a world counts as settled; an extra launch would be made within this time.
const quiet = time.Second

// settle waits until every pod runs and every NodeClaim has a node with all the resources it was launched for. It returns what is
// still missing when patience is over.
func (r *run) settle(ctx context.Context) (missing string) {
	ctx, cancel := context.WithTimeout(ctx, r.options.Patience)
	defer cancel()
	for {
		if _, err := cluster.Until(ctx, r.api, &corev1.PodList{}, r.placed, client.InNamespace(r.w.Namespace)); err != nil {
			return err.Error()
		}
		nodes := -1
		if _, err := cluster.Until(ctx, r.api, &karpv1.NodeClaimList{}, func(claims []*karpv1.NodeClaim) (bool, string, error) {
			nodes = len(claims)
			return initialized(claims)
		}); err != nil {
			return err.Error()
		}
		more, cancel := context.WithTimeout(ctx, quiet)
		_, err := cluster.Until(more, r.api, &karpv1.NodeClaimList{}, func(claims []*karpv1.NodeClaim) (bool, string, error) {
			return len(claims) != nodes, "another claim", nil
		})
		cancel()
		if err != nil { // no further change was seen
			return ""
		}
	}
}

// placed reports whether every application has its pods, and all of them run, including DaemonSet pods.
func (r *run) placed(pods []*corev1.Pod) (bool, string, error) { return r.sized(pods, r.w.Pods()) }

// sized is placed for these numbers of pods.
func (r *run) sized(pods []*corev1.Pod, want map[string]int) (bool, string, error) {
	have, running := map[string]int{}, map[string]int{}
	for _, p := range pods {
		if o := metav1.GetControllerOf(p); o != nil && o.Kind == "DaemonSet" && p.DeletionTimestamp == nil && !cluster.Running(p) && !r.stranded(p) {
			return false, fmt.Sprintf("pod %s of a DaemonSet to run", p.Name), nil
		}
		if app := p.Labels[draw.AppLabel]; p.DeletionTimestamp == nil {
			have[app]++
			if cluster.Running(p) {
				running[app]++
			}
		}
	}
	for app, n := range want {
		if have[app] != n || !r.w.Misfits[app] && running[app] != n {
			return false, fmt.Sprintf("%d pods of %s (%d are there, %d run)", n, app, have[app], running[app]), nil
		}
	}
	return true, "", nil
}

// stranded reports whether the pod was bound to a Node that has gone: a DaemonSet replaces its pod while its node drains, and the pod garbage
// collector takes a minute to delete what is left.
func (r *run) stranded(p *corev1.Pod) bool {
	if p.Spec.NodeName == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return apierrors.IsNotFound(r.api.Get(ctx, client.ObjectKey{Name: p.Spec.NodeName}, &corev1.Node{}))
}

// lacking waits until the world's CapacityBuffer has all its chunks, and returns what it lacks when patience is over.
func (r *run) lacking(ctx context.Context) (string, error) {
	if r.w.Chunks == 0 {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.options.Patience)
	defer cancel()
	_, err := cluster.Until(ctx, r.api, &autoscalingv1beta1.CapacityBufferList{}, func(buffers []*autoscalingv1beta1.CapacityBuffer) (bool, string, error) {
		for _, b := range buffers {
			if c := meta.FindStatusCondition(b.Status.Conditions, autoscalingv1beta1.ProvisioningCondition); c == nil || c.Status != metav1.ConditionTrue {
				return false, fmt.Sprintf("the chunks of buffer %s: %+v", b.Name, c), nil
			}
		}
		return len(buffers) == 1, "the buffer", nil
	}, client.InNamespace(r.w.Namespace))
	if err == nil {
		_, err = cluster.Until(ctx, r.api, &karpv1.NodeClaimList{}, initialized)
	}
	if err != nil {
		return err.Error(), nil
	}
	return "", nil
}

func initialized(claims []*karpv1.NodeClaim) (bool, string, error) {
	for _, c := range claims {
		if !c.StatusConditions().IsTrue(karpv1.ConditionTypeInitialized) {
			return false, fmt.Sprintf("claim %s to be initialized", c.Name), nil
		}
	}
	return true, "", nil
}
