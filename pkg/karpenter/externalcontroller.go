package karpenter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/wait"
	coordinformers "k8s.io/client-go/informers/coordination/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/observe"
)

const (
	// ExternalLease is the name of the lease by which a Karpenter controller is elected leader, in any namespace (its
	// LEADER_ELECTION_NAME).
	ExternalLease = "karpenter-leader-election"
	// leastLease is the shortest time that a renewed or released lease counts as held: a rollout hands the lease on to the next
	// replica, and a release sets its duration to one second.
	leastLease = 15 * time.Second
	// leaseRetry is how often we retry when the API server can't tell us whether a lease was really not renewed.
	leaseRetry = 2 * time.Second
)

// ExternalController watches for a Karpenter controller that leads in this cluster. As long as there is one, it owns nodes and claims:
// two owners would launch and terminate each other's.
//
//	unread --leases read--> free <--no renewal for a lease duration, confirmed by a live read-- held
//	                          \-----------------------a renewal is seen----------------------->/
//
// A clock that differs from Karpenter's does no harm: a renewal counts from the moment we see it.
type ExternalController struct {
	kube     kubernetes.Interface
	clock    clock.WithTicker
	changed  chan struct{} // signals that something was observed
	onChange []func()      // set before Run

	mu     sync.Mutex
	leases map[string]*leaseState // by namespace
	why    error                  // why nothing may be launched, changed or terminated now; nil: no Karpenter leads
	last   error                  // the error of the last list or watch of leases; nil: it worked
}

// leaseState is what is known of one lease.
type leaseState struct {
	lease *coordinationv1.Lease
	// until is when the lease expires unless it is renewed.
	until time.Time
}

// NewExternalController returns a watcher whose Hold answers capacity.ErrOwnerUnknown until Run has read the leases.
func NewExternalController(kube kubernetes.Interface, clk clock.WithTicker) *ExternalController {
	return &ExternalController{kube: kube, clock: clk, changed: make(chan struct{}, 1), leases: map[string]*leaseState{}, why: capacity.ErrOwnerUnknown}
}

// OnChange registers f to be called when Hold's answer changes. Call it before Run; f must not block.
func (i *ExternalController) OnChange(f func()) { i.onChange = append(i.onChange, f) }

// Hold returns why nothing may be launched, changed or terminated now; nil when there is no other owner.
func (i *ExternalController) Hold() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.why
}

// Run watches until ctx ends. It writes nothing.
func (i *ExternalController) Run(ctx context.Context) error {
	informer := coordinformers.NewFilteredLeaseInformer(i.kube, metav1.NamespaceAll, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, ExternalLease).String()
	})
	if err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) { i.failed(err) }); err != nil {
		return fmt.Errorf("watching leases: %w", err)
	}
	handled, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { i.observe(o.(*coordinationv1.Lease)) },
		UpdateFunc: func(_, o any) { i.observe(o.(*coordinationv1.Lease)) },
		DeleteFunc: observe.Deletion(i.gone),
	})
	if err != nil {
		return fmt.Errorf("watching leases: %w", err)
	}
	var watching wait.Group
	watching.StartWithContext(ctx, informer.RunWithContext)
	watching.StartWithContext(ctx, func(ctx context.Context) {
		if cache.WaitForCacheSync(ctx.Done(), handled.HasSynced) {
			i.poke()
		}
	})
	for ctx.Err() == nil {
		next := i.clock.NewTimer(i.judge(ctx, handled.HasSynced()))
		select {
		case <-ctx.Done():
		case <-i.changed:
		case <-next.C():
		}
		next.Stop()
	}
	watching.Wait()
	return nil
}

func (i *ExternalController) poke() {
	select {
	case i.changed <- struct{}{}:
	default:
	}
}

// observe records a version of a lease. The first version seen of a lease may be old, so its duration counts from the renew time in it. Every later
// version was written a moment ago, so its duration counts from now.
func (i *ExternalController) observe(l *coordinationv1.Lease) {
	if l.Name != ExternalLease {
		return
	}
	now := i.clock.Now()
	i.mu.Lock()
	defer i.poke()
	defer i.mu.Unlock()
	i.last = nil
	have := i.leases[l.Namespace]
	since := now
	switch {
	case have != nil && have.lease.ResourceVersion == l.ResourceVersion:
		return
	case have == nil && l.Spec.RenewTime == nil:
		since = time.Time{}
	case have == nil && l.Spec.RenewTime.Time.Before(now):
		since = l.Spec.RenewTime.Time
	}
	lasts := leastLease
	if d := l.Spec.LeaseDurationSeconds; d != nil {
		lasts = max(lasts, time.Duration(*d)*time.Second)
	}
	i.leases[l.Namespace] = &leaseState{lease: l, until: since.Add(lasts)}
}

func (i *ExternalController) gone(l *coordinationv1.Lease) {
	i.mu.Lock()
	defer i.poke()
	defer i.mu.Unlock()
	delete(i.leases, l.Namespace)
}

func (i *ExternalController) failed(err error) {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) || errors.Is(err, io.EOF) {
		return // every watch ends like this now and then; it is no failure
	}
	i.mu.Lock()
	defer i.poke()
	defer i.mu.Unlock()
	i.last = err
}

// judge computes the current answer and returns how soon it may change without a further event.
func (i *ExternalController) judge(ctx context.Context, read bool) time.Duration {
	if !read {
		i.mu.Lock()
		why := capacity.ErrOwnerUnknown
		if i.last != nil {
			why = fmt.Errorf("%w: %w", why, i.last)
		}
		i.mu.Unlock()
		i.say(ctx, why)
		return time.Minute
	}
	next := time.Minute
	held := i.Hold() != nil
	var why error
	for _, p := range i.all() {
		left := p.until.Sub(i.clock.Now())
		if left <= 0 && held {
			// Perhaps our watch has stalled and Karpenter is still renewing: ask the API server.
			fresh, err := i.kube.CoordinationV1().Leases(p.lease.Namespace).Get(ctx, p.lease.Name, metav1.GetOptions{})
			switch {
			case err == nil && fresh.ResourceVersion != p.lease.ResourceVersion:
				i.observe(fresh)
				left = leastLease
			case err != nil && !apierrors.IsNotFound(err):
				why, next = fmt.Errorf("can't read whether Karpenter is still active in this cluster: %w", err), leaseRetry
			}
		}
		if left > 0 {
			why, next = heldBy(p.lease), min(next, left)
		}
	}
	i.say(ctx, why)
	return next
}

func (i *ExternalController) all() []leaseState {
	i.mu.Lock()
	defer i.mu.Unlock()
	out := make([]leaseState, 0, len(i.leases))
	for _, p := range i.leases {
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b leaseState) int { return strings.Compare(b.lease.Namespace, a.lease.Namespace) })
	return out
}

func heldBy(l *coordinationv1.Lease) error {
	holder := ""
	if h := l.Spec.HolderIdentity; h != nil && *h != "" {
		holder = ", held by " + *h
	}
	//lint:ignore ST1005 Karpenter is a name, and the text is an event of its own
	return fmt.Errorf("Karpenter is active in this cluster (lease %s%s): nothing is launched, changed or terminated until it has stopped", klog.KObj(l), holder)
}

// say stores why nothing may be done (nil if no Karpenter is active). If the text has changed, it logs it and calls the OnChange functions.
func (i *ExternalController) say(ctx context.Context, why error) {
	i.mu.Lock()
	before := i.why
	i.why = why
	i.mu.Unlock()
	if fmt.Sprint(before) == fmt.Sprint(why) {
		return
	}
	logger := klog.FromContext(ctx)
	if why != nil {
		logger.Info("Paused", "reason", why)
	} else {
		logger.Info("No Karpenter is active in this cluster: Dovetail manages its nodes and NodeClaims")
	}
	for _, f := range i.onChange {
		f()
	}
}
