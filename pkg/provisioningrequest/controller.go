package provisioningrequest

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/bookings"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/panics"
	provisioningv1 "github.com/dovetail-scheduler/dovetail/pkg/provisioningrequest/v1"
)

// Store reads ProvisioningRequests from memory and writes their status.
type Store interface {
	// Requests returns all of them, the oldest first; known: the API server has listed them, or can't.
	Requests() (all []*provisioningv1.ProvisioningRequest, known bool)
	SaveRequestStatus(ctx context.Context, base, changed *provisioningv1.ProvisioningRequest) error
}

// Bookings books capacity. Its methods return at once.
type Bookings interface {
	Set(all []bookings.Request)
	Report() map[types.UID]bookings.State
}

// Config holds the parts of a Controller. All are required.
type Config struct {
	// Kube reads pod templates from the API server.
	Kube     kubernetes.Interface
	Store    Store
	Bookings Bookings
	Clock    clock.WithTicker
	// Ours reports whether pods of that scheduler are scheduled here.
	Ours func(scheduler string) bool
	// Several: other Dovetails may schedule pods of other schedulers, and answer requests for them. A request is answered by the one that
	// schedules the pods of its first pod set.
	Several bool
	// Admit changes a pod as the API server's admission does.
	Admit func(*corev1.Pod)
	// Class returns the class of a pod; the error says why none can be planned for.
	Class func(*corev1.Pod) (*capacity.Class, error)
	// Hold returns why nothing may be written because another controller owns the nodes, or nil.
	Hold func() error
}

const (
	// step is how often requests are looked at that wait for capacity, tend how often if all of them have it, idle if there are none.
	step = time.Second
	tend = 10 * time.Second
	idle = time.Minute
	// gather is for how long changes are collected: requests may be created and deleted in numbers.
	gather = 100 * time.Millisecond
	// templateTime is how long after a request its pod templates may be created: Kueue creates the request first, because it owns them.
	templateTime = time.Minute
	// defaultValid is for how long capacity is looked for if the request doesn't say.
	defaultValid = 7 * 24 * time.Hour
)

// Controller answers ProvisioningRequests. One goroutine does all of it.
type Controller struct {
	Config
	changed  chan struct{} // a request has changed, or capacity for one
	resolved map[types.UID]*resolution
	// complete: a pass could read every request whose condition Provisioned was already True when this process began to lead.
	complete bool
}

// New returns a Controller that does nothing before Run.
func New(cfg Config) *Controller {
	return &Controller{Config: cfg, changed: make(chan struct{}, 1), resolved: map[types.UID]*resolution{}}
}

// Changed hears that a request was added, changed or deleted. Safe for concurrent use; returns at once.
func (c *Controller) Changed() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// Looked is called by Bookings each time it has tried to book; news: something has changed for a request. Safe for concurrent use; returns at once.
func (c *Controller) Looked(news bool) {
	if news {
		c.Changed()
	}
}

// Run answers requests until ctx ends. What has become of a request is written in the pass after the one in which it was booked.
func (c *Controller) Run(ctx context.Context) error {
	next := time.Duration(0)
	for {
		timer := c.Clock.NewTimer(next)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C():
		case <-c.changed:
			c.pause(ctx)
		}
		timer.Stop()
		next = step
		_ = panics.Catch(ctx, "provisioning requests", func() error { // logged by Catch
			next = c.pass(ctx)
			return nil
		})
	}
}

func (c *Controller) pause(ctx context.Context) {
	timer := c.Clock.NewTimer(gather)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C():
	}
}

// pass looks at all requests once:
//
//  1. Read what they ask for, and see what has become of them since the last pass.
//  2. Give Bookings those that want capacity or have it. It ends what is booked for any other request.
//  3. Write the conditions. When a condition says that a booking has ended, its capacity is already free.
//
// It returns when to do so again.
func (c *Controller) pass(ctx context.Context) time.Duration {
	all, known := c.Store.Requests()
	if !known || c.Hold() != nil {
		return step
	}
	now, states := c.Clock.Now(), c.Bookings.Report()
	unread := false // a request whose condition Provisioned is True can't be read
	resolved, wanted, next := map[types.UID]*resolution{}, []bookings.Request{}, idle
	changes := map[*provisioningv1.ProvisioningRequest]*provisioningv1.ProvisioningRequest{}
	for _, pr := range all {
		if pr.DeletionTimestamp != nil || !answered(pr) || over(pr) {
			continue
		}
		r := c.resolved[pr.UID]
		if r == nil {
			var err error
			if r, err = c.resolve(ctx, pr); err != nil {
				klog.FromContext(ctx).V(2).Info("A ProvisioningRequest can't be read, trying again", "provisioningRequest", klog.KObj(pr), "err", err)
			}
		}
		if r == nil {
			next, unread = step, unread || now.Before(bookedUntil(pr))
			continue
		}
		if r.problem == "" {
			resolved[pr.UID] = r
		}
		if r.others {
			continue
		}
		state := states[pr.UID]
		changed, keep := r.answer(pr, state, now)
		if keep {
			until := bookedUntil(pr)
			wanted = append(wanted, bookings.Request{UID: pr.UID, Namespace: pr.Namespace, Name: pr.Name, Sets: r.sets, Buys: r.buys, Until: until})
			if next = min(next, tend); until.IsZero() {
				next = step
			} else {
				next = min(next, max(until.Sub(now), step))
			}
		}
		if changed != nil {
			next = step
			changes[pr] = changed
		}
	}
	c.resolved = resolved
	if unread && !c.complete {
		return step // Set would end what an earlier leader has booked for a request that can't be read now, and its nodes could be disrupted
	}
	c.complete = true
	c.Bookings.Set(wanted)
	for _, pr := range all {
		if changed := changes[pr]; changed != nil {
			c.save(ctx, pr, changed)
		}
	}
	return next
}

// save writes a status. A conflict means that the watch delivers a newer version; all else is tried with the next pass.
func (c *Controller) save(ctx context.Context, pr, changed *provisioningv1.ProvisioningRequest) {
	err := c.Store.SaveRequestStatus(ctx, pr, changed)
	if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
		klog.FromContext(ctx).V(2).Info("Could not write a status, trying again", "provisioningRequest", klog.KObj(pr), "err", err)
	}
}
