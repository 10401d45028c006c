package worlds

import (
	"context"
	"fmt"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// sweep deletes everything that the world has left, without regard to finalizers, because the processes that would remove them have
// stopped. Owners are deleted before what they own.
func (r *run) sweep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	groups := &unstructured.UnstructuredList{}
	groups.SetGroupVersionKind(schema.GroupVersionKind{Group: "scheduling.x-k8s.io", Version: "v1alpha1", Kind: "PodGroupList"})
	left := ""
	err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		left = ""
		for _, kinds := range [][]client.ObjectList{
			{&karpv1.NodePoolList{}, &ec2nc.EC2NodeClassList{}, &appsv1.DeploymentList{}, &appsv1.StatefulSetList{}, &appsv1.DaemonSetList{}, &batchv1.JobList{},
				&autoscalingv1beta1.CapacityBufferList{}, &corev1.PodTemplateList{}, groups},
			{&appsv1.ReplicaSetList{}, &appsv1.ControllerRevisionList{}, &karpv1.NodeClaimList{}},
			{&corev1.PodList{}, &corev1.NodeList{}},
			{&corev1.PersistentVolumeClaimList{}, &corev1.PersistentVolumeList{}, &storagev1.CSINodeList{}, &storagev1.StorageClassList{}, &schedulingv1.PriorityClassList{}},
		} {
			for _, kind := range kinds {
				n, err := r.sweepAll(ctx, kind)
				if err != nil {
					return false, err
				}
				if n > 0 {
					left = fmt.Sprintf("%d objects of a %T", n, kind)
				}
			}
		}
		return left == "", nil
	})
	if err != nil {
		return fmt.Errorf("sweeping up, %s are left: %w", left, err)
	}
	for _, namespace := range []string{corev1.NamespaceNodeLease, metav1.NamespaceDefault} {
		for _, o := range []client.Object{&coordinationv1.Lease{}, &corev1.Event{}} {
			if err := r.api.DeleteAllOf(ctx, o, client.InNamespace(namespace)); err != nil {
				return fmt.Errorf("sweeping up: %w", err)
			}
		}
	}
	return nil
}

// sweepAll deletes the objects of a kind and returns how many there were.
func (r *run) sweepAll(ctx context.Context, list client.ObjectList) (int, error) {
	if err := r.api.List(ctx, list); err != nil {
		return 0, fmt.Errorf("listing %T: %w", list, err)
	}
	group, n := &errgroup.Group{}, 0
	group.SetLimit(16)
	err := meta.EachListItem(list, func(item runtime.Object) error {
		o := item.(client.Object)
		if p, ok := o.(*schedulingv1.PriorityClass); ok && p.Value >= 1_000_000_000 {
			return nil // the system's own
		}
		n++
		group.Go(func() error {
			if len(o.GetFinalizers()) > 0 {
				if err := r.api.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); client.IgnoreNotFound(err) != nil {
					return fmt.Errorf("sweeping up %T %s: %w", o, o.GetName(), err)
				}
			}
			err := r.api.Delete(ctx, o, client.GracePeriodSeconds(0), client.PropagationPolicy(metav1.DeletePropagationBackground))
			return client.IgnoreNotFound(err)
		})
		return nil
	})
	if err != nil {
		return 0, err
	}
	return n, group.Wait()
}
