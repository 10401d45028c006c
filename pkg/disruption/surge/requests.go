package surge

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

const (
	// annotationRestartedAt of a pod template is what kubectl rollout restart sets.
	annotationRestartedAt = "kubectl.kubernetes.io/restartedAt"
	// restartRest is how long a Deployment isn't restarted after its last restart. After one that was in vain, that doubles each time, up to
	// restartRestMost.
	restartRest     = 15 * time.Minute
	restartRestMost = 4 * time.Hour
)

// Requests knows which pods ask to be moved by a roll-out. Only one goroutine uses it.
type Requests struct {
	*Right
	kube        kubernetes.Interface
	replicaSets appslisters.ReplicaSetLister
	namespaces  corelisters.NamespaceLister
	volumes     corelisters.PersistentVolumeClaimLister
	clock       clock.PassiveClock
	failed      map[types.NamespacedName]failure
}

// failure is how often in a row a Deployment was restarted in vain, and until when it isn't restarted again.
type failure struct {
	times int
	until time.Time
}

// New returns Requests that read from the informers. Call it before they start.
func New(kube kubernetes.Interface, f informers.SharedInformerFactory, clock clock.WithTicker) *Requests {
	return &Requests{Right: newRight(kube, clock), kube: kube, clock: clock, replicaSets: f.Apps().V1().ReplicaSets().Lister(),
		namespaces: f.Core().V1().Namespaces().Lister(), volumes: f.Core().V1().PersistentVolumeClaims().Lister(), failed: map[types.NamespacedName]failure{}}
}

// Request is a Deployment that asks for a roll-out instead of the eviction of a pod.
type Request struct {
	Deployment types.NamespacedName
	// Err is why the roll-out can't be made now; nil: it can.
	Err error
}

// Of returns the request for a pod; nil: the pod is evicted, like others. blocked says that no eviction is allowed now.
func (r *Requests) Of(pod *corev1.Pod, blocked bool) *Request {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil || ref.Kind != "ReplicaSet" {
		return nil
	}
	rs, err := r.replicaSets.ReplicaSets(pod.Namespace).Get(ref.Name)
	if err != nil || rs.UID != ref.UID {
		return nil
	}
	of := metav1.GetControllerOfNoCopy(rs)
	if of == nil || of.Kind != "Deployment" {
		return nil
	}
	// A ReplicaSet has its Deployment's annotations, and keeps those that its Deployment hasn't any more.
	everyone := r.everyone(pod.Namespace)
	if !asks(rs, everyone) && !everyone {
		return nil
	}
	out := &Request{Deployment: types.NamespacedName{Namespace: pod.Namespace, Name: of.Name}}
	replicas := rs.Spec.Replicas
	list, err := r.deployments()
	if err == nil {
		d, getErr := list.Deployments(pod.Namespace).Get(of.Name)
		if getErr != nil || d.UID != of.UID {
			return nil
		}
		if !asks(d, everyone) {
			return nil
		}
		replicas, err = d.Spec.Replicas, r.ready(d)
	} else if !asks(rs, everyone) {
		return nil
	}
	if !blocked && (replicas == nil || *replicas != 1) {
		return nil
	}
	out.Err = cmp.Or(err, r.attached(pod))
	return out
}

// everyone reports whether a namespace asks for all of its Deployments.
func (r *Requests) everyone(namespace string) bool {
	ns, err := r.namespaces.Get(namespace)
	return err == nil && ns.Annotations[objects.AnnotationMove] == objects.MoveRollout
}

// asks reports whether an object asks for a roll-out. Its own annotation counts before its namespace's.
func asks(o metav1.Object, everyone bool) bool {
	if how, ok := o.GetAnnotations()[objects.AnnotationMove]; ok {
		return how == objects.MoveRollout
	}
	return everyone
}

// ready returns why a Deployment can't be rolled out now; nil: it can.
func (r *Requests) ready(d *appsv1.Deployment) error {
	replicas := int32(1)
	if d.Spec.Replicas != nil {
		replicas = *d.Spec.Replicas
	}
	now, failed := r.clock.Now(), r.failed[types.NamespacedName{Namespace: d.Namespace, Name: d.Name}]
	restarted, _ := time.Parse(time.RFC3339, d.Spec.Template.Annotations[annotationRestartedAt]) // zero: never, or that can't be read
	switch s := &d.Status; {
	case d.DeletionTimestamp != nil:
		return errors.New("the Deployment is being deleted")
	case d.Spec.Paused:
		return errors.New("the Deployment is paused")
	case surplus(d, int(replicas)) < 1:
		return errors.New("the Deployment's strategy creates no pod before another one ends (RollingUpdate with maxSurge of at least 1)")
	case s.ObservedGeneration != d.Generation || s.Replicas != replicas || s.UpdatedReplicas != replicas || s.AvailableReplicas != replicas:
		return errors.New("the Deployment's last roll-out isn't finished, or not all of its pods are available")
	case now.Before(failed.until):
		return fmt.Errorf("the Deployment's last roll-out moved no pod; the next one is made after %s", failed.until.UTC().Format(time.RFC3339))
	case now.Sub(restarted) < restartRest:
		return fmt.Errorf("the Deployment was restarted at %s; the next restart is made after %s", restarted.UTC().Format(time.RFC3339), restarted.Add(restartRest).UTC().Format(time.RFC3339))
	}
	return nil
}

// surplus returns how many pods a roll-out may create beyond the replicas.
func surplus(d *appsv1.Deployment, replicas int) int {
	switch {
	case d.Spec.Strategy.Type != "" && d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType:
		return 0
	case d.Spec.Strategy.RollingUpdate == nil || d.Spec.Strategy.RollingUpdate.MaxSurge == nil:
		return 1 // the default, a quarter rounded up, is at least this
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(d.Spec.Strategy.RollingUpdate.MaxSurge, replicas, true)
	if err != nil {
		return 0
	}
	return n
}

// attached returns why two pods like this can't run on two nodes: a volume can only be attached to one.
func (r *Requests) attached(pod *corev1.Pod) error {
	for i := range pod.Spec.Volumes {
		claim := pod.Spec.Volumes[i].PersistentVolumeClaim
		if claim == nil {
			continue
		}
		pvc, err := r.volumes.PersistentVolumeClaims(pod.Namespace).Get(claim.ClaimName)
		if err != nil {
			return fmt.Errorf("its PersistentVolumeClaim %s isn't known", claim.ClaimName)
		}
		if !slices.Contains(pvc.Spec.AccessModes, corev1.ReadWriteMany) && !slices.Contains(pvc.Spec.AccessModes, corev1.ReadOnlyMany) {
			return fmt.Errorf("the volume of its PersistentVolumeClaim %s can't be used on two nodes at a time", claim.ClaimName)
		}
	}
	return nil
}

// restartTries bounds how often a Deployment is read anew that has changed between its reading and its restart.
const restartTries = 3

// Restart has a Deployment create its pods anew, if that can be made now as the API server knows it. It returns the Deployment.
func (r *Requests) Restart(ctx context.Context, of types.NamespacedName) (d *appsv1.Deployment, err error) {
	for range restartTries {
		if d, err = r.restart(ctx, of); !apierrors.IsConflict(err) {
			break
		}
	}
	return d, err
}

func (r *Requests) restart(ctx context.Context, of types.NamespacedName) (*appsv1.Deployment, error) {
	d, err := r.kube.AppsV1().Deployments(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading Deployment %s: %w", of, err)
	}
	if err := r.ready(d); err != nil {
		return nil, fmt.Errorf("a roll-out of Deployment %s: %w", of, err)
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": d.UID, "resourceVersion": d.ResourceVersion}, // refused if it has changed since it was read
		"spec": map[string]any{"template": map[string]any{"metadata": map[string]any{"annotations": map[string]string{
			annotationRestartedAt: r.clock.Now().UTC().Format(time.RFC3339)}}}},
	})
	if err != nil {
		return nil, fmt.Errorf("restarting Deployment %s: %w", of, err)
	}
	if d, err = r.kube.AppsV1().Deployments(of.Namespace).Patch(ctx, of.Name, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
		return nil, fmt.Errorf("restarting Deployment %s: %w", of, err)
	}
	return d, nil
}

// Ended records whether a restart has moved the pods. If it hasn't, the Deployment isn't restarted for a while.
func (r *Requests) Ended(of types.NamespacedName, moved bool) {
	if moved {
		delete(r.failed, of)
		return
	}
	maps.DeleteFunc(r.failed, func(_ types.NamespacedName, f failure) bool { return r.clock.Now().Sub(f.until) > restartRestMost })
	f := r.failed[of]
	f.until = r.clock.Now().Add(min(restartRest<<min(f.times, 10), restartRestMost))
	f.times++
	r.failed[of] = f
}
