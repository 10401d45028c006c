package surge

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Role is the ClusterRole that gives the right to patch Deployments (manifests/surge).
const Role = "dovetail-surge"

// reviewEvery is how often it is asked whether Dovetail has the right, as long as pods ask for a roll-out.
const reviewEvery = 3 * time.Minute

var (
	errNoRight = errors.New("the role " + Role + " isn't bound, so Dovetail may not patch Deployments")
	errUnknown = errors.New("it isn't known yet whether Dovetail may patch Deployments (role " + Role + ")")
	errReading = errors.New("its Deployment has not been read yet")
)

// Right knows whether Dovetail may patch Deployments, and the Deployments if it may. Nothing is asked and watched before a pod asks for a
// roll-out. Safe for concurrent use.
//
//	unknown -> denied or granted, denied <-> granted: by Run
type Right struct {
	kube  kubernetes.Interface
	clock clock.WithTicker
	asked chan struct{} // holds a value if a pod has asked for a roll-out since Run last looked
	state atomic.Pointer[rightState]
}

// rightState is what is known of the right. err is why Deployments can't be rolled out; nil: they can.
type rightState struct {
	err    error
	lister appslisters.DeploymentLister
	synced cache.InformerSynced
	stop   func() // ends the watch
}

func newRight(kube kubernetes.Interface, clock clock.WithTicker) *Right {
	r := &Right{kube: kube, clock: clock, asked: make(chan struct{}, 1)}
	r.state.Store(&rightState{err: errUnknown})
	return r
}

// deployments returns a lister; the error says why Deployments can't be rolled out.
func (r *Right) deployments() (appslisters.DeploymentLister, error) {
	select {
	case r.asked <- struct{}{}:
	default:
	}
	s := r.state.Load()
	switch {
	case s.err != nil:
		return nil, s.err
	case !s.synced():
		return nil, errReading
	}
	return s.lister, nil
}

// Run finds out whether Dovetail has the right, and again every few minutes, while there are pods that ask for a roll-out. It watches Deployments
// as long as Dovetail has the right, and returns when ctx ends.
func (r *Right) Run(ctx context.Context) {
	var watches sync.WaitGroup
	defer watches.Wait()
	defer func() {
		if stop := r.state.Load().stop; stop != nil {
			stop()
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.asked:
		}
		r.review(ctx, &watches)
		select {
		case <-ctx.Done():
			return
		case <-r.clock.After(reviewEvery):
		}
	}
}

// review takes over what the API server says of the right. If it says nothing, what is known stays.
func (r *Right) review(ctx context.Context, watches *sync.WaitGroup) {
	ask := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "patch", Group: appsv1.GroupName, Resource: "deployments"}}}
	got, err := r.kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, ask, metav1.CreateOptions{})
	before := r.state.Load()
	switch {
	case err != nil:
		if ctx.Err() == nil {
			klog.FromContext(ctx).V(3).Info("Could not find out whether Deployments may be patched, will retry", "err", err)
		}
	case got.Status.Allowed && before.err != nil:
		klog.FromContext(ctx).V(2).Info("Deployments may be patched: pods that ask for it are moved by a roll-out", "role", Role)
		r.state.Store(r.watch(ctx, watches))
	case !got.Status.Allowed && !errors.Is(before.err, errNoRight):
		if before.stop != nil {
			before.stop()
		}
		r.state.Store(&rightState{err: errNoRight})
	}
}

// watch begins to watch Deployments, and keeps of each what matters here.
func (r *Right) watch(ctx context.Context, watches *sync.WaitGroup) *rightState {
	f := informers.NewSharedInformerFactoryWithOptions(r.kube, 0, informers.WithTransform(reduce))
	of := f.Apps().V1().Deployments()
	informer := of.Informer()
	ctx, stop := context.WithCancel(ctx)
	watches.Go(func() { informer.RunWithContext(ctx) })
	return &rightState{lister: of.Lister(), synced: informer.HasSynced, stop: stop}
}

// reduce drops what isn't needed of a Deployment.
func reduce(obj any) (any, error) {
	if d, ok := obj.(*appsv1.Deployment); ok {
		d.ManagedFields, d.Spec.Template.Spec = nil, corev1.PodSpec{}
	}
	return obj, nil
}
