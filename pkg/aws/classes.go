package aws

import (
	"context"
	"fmt"
	"sync"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/reported"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/panics"
)

// blockOver is how long before a capacity block's end its nodes have to be draining: EC2 terminates their instances half an hour
// before it.
const blockOver = 40 * time.Minute

// classes are the node classes. While run runs, each has a goroutine that resolves it.
type classes struct {
	clock    clock.WithTicker
	account  account
	reported *reported.Nodes
	// changed is called when what a class can run may differ from before. It is called without a lock.
	changed func()
	// several: other Dovetails may use the classes, too.
	several bool

	mu     sync.Mutex
	byName map[string]*class
	// dedicated are the names of the classes for which offerings with dedicated tenancy are made.
	dedicated map[string]bool
	// running starts the resolver of a class; nil while Run isn't running.
	running     func(*class)
	stops       map[string]context.CancelFunc
	onLearned   func(nodeClass, value string) error
	onNodeClass []func(resolved status.Object)
}

func newClasses(c clock.WithTicker, a account, changed func()) *classes {
	return &classes{clock: c, account: a, reported: reported.NewNodes(), changed: changed, byName: map[string]*class{}, stops: map[string]context.CancelFunc{}}
}

// run resolves all classes until ctx ends; it returns when all of its goroutines have ended.
func (s *classes) run(ctx context.Context) {
	var wg sync.WaitGroup
	start := func(c *class) { // called under mu
		cctx, stop := context.WithCancel(ctx)
		s.stops[c.name] = stop
		wg.Go(func() {
			defer stop()
			panics.Again(cctx, s.clock, "node class", func(ctx context.Context) { s.keep(ctx, c) })
		})
	}
	s.mu.Lock()
	s.running = start
	for _, c := range s.byName {
		start(c)
	}
	s.mu.Unlock()

	<-ctx.Done()
	s.mu.Lock()
	s.running = nil
	s.mu.Unlock()
	wg.Wait()
}

// SetNodeClass stores a version of the object from the watch. It is resolved in the background; until then the class is not ready.
func (s *classes) SetNodeClass(o status.Object) {
	nc := o.(*ec2nc.EC2NodeClass).DeepCopy()
	s.mu.Lock()
	c, ok := s.byName[nc.Name]
	if !ok {
		c = newClass(nc)
		c.dedicated.Store(s.dedicated[nc.Name])
		s.byName[nc.Name] = c
		if s.running != nil {
			s.running(c)
		}
	}
	s.mu.Unlock()
	s.remember(c, nc)
	if !ok || c.set(nc) {
		s.changed()
	}
}

// DeleteNodeClass forgets a class.
func (s *classes) DeleteNodeClass(name string) {
	s.mu.Lock()
	_, ok := s.byName[name]
	delete(s.byName, name)
	if stop := s.stops[name]; stop != nil {
		stop()
		delete(s.stops, name)
	}
	s.mu.Unlock()
	if ok {
		s.changed()
	}
}

// OnNodeClass registers a function that is called with what a class is resolved to whenever its status changes. Register it before Run. It
// is called from the class's own goroutine and may block.
func (s *classes) OnNodeClass(f func(resolved status.Object)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onNodeClass = append(s.onNodeClass, f)
}

// get returns a class, or nil.
func (s *classes) get(name string) *class {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byName[name]
}

// resolved returns the resolution of a class, or nil: it doesn't exist, or isn't resolved yet.
func (s *classes) resolved(name string) *resolved {
	if c := s.get(name); c != nil {
		return c.resolved.Load()
	}
	return nil
}

// ready returns the resolved class, or why it can't be used.
func (s *classes) ready(name string) (*resolved, error) {
	c := s.get(name)
	if c == nil {
		return nil, fmt.Errorf("EC2NodeClass %s does not exist: %w", name, capacity.ErrNodeClassNotReady)
	}
	r := c.resolved.Load()
	if r == nil {
		return nil, fmt.Errorf("EC2NodeClass %s: not resolved yet: %w", name, capacity.ErrNodeClassNotReady)
	}
	if r.unready != nil {
		return nil, fmt.Errorf("%w: %w", r.unready, capacity.ErrNodeClassNotReady)
	}
	return r, nil
}

// wake makes the resolvers of all classes run again.
func (s *classes) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.byName {
		c.poke()
	}
}

// OfferDedicated sets the node classes for which single-tenant instances are offered beside shared ones: those of pools that ask for
// them (karpenter.k8s.aws/instance-tenancy). For all others they would double the number of offerings without need.
func (s *classes) OfferDedicated(nodeClasses map[string]bool) {
	s.mu.Lock()
	s.dedicated = nodeClasses
	changed := false
	for name, c := range s.byName {
		changed = c.offerDedicated(nodeClasses[name]) || changed
	}
	s.mu.Unlock()
	if changed {
		s.changed()
	}
}

// ReservationOver returns when nodes from a reservation have to be draining, because EC2 will terminate their instances; false: never,
// or the reservation is not known.
func (s *classes) ReservationOver(id string) (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.byName {
		r := c.resolved.Load()
		if r == nil {
			continue
		}
		if v := r.reservation(id); v != nil && v.Type == ec2nc.CapacityReservationTypeCapacityBlock && !v.End.IsZero() {
			return v.End.Add(-blockOver), true
		}
	}
	return time.Time{}, false
}

// ReleaseClass removes the instance profiles that were created for the role of a class that is about to be deleted and that no claim
// uses any more. Its launch templates are removed when they have been unused for a while. ReleaseClass may be called again.
func (s *classes) ReleaseClass(ctx context.Context, o status.Object) error {
	nc := o.(*ec2nc.EC2NodeClass)
	s.DeleteNodeClass(nc.Name) // otherwise the resolver would create a new profile
	return s.account.profiles.RemoveOf(ctx, nc)
}

// removeUnusedProfiles deletes instance profiles that were created for classes and that neither a class nor an instance uses now.
func (s *classes) removeUnusedProfiles(ctx context.Context, inUse func(ctx context.Context, arn string) (bool, error)) error {
	needed := map[string]bool{}
	s.mu.Lock()
	for _, c := range s.byName {
		needed[s.account.profiles.Name(c.current())] = true
	}
	s.mu.Unlock()
	return s.account.profiles.RemoveUnused(ctx, needed, inUse)
}

// keep resolves a class until ctx ends.
func (s *classes) keep(ctx context.Context, c *class) {
	logger := klog.FromContext(ctx).WithValues("nodeClass", c.name)
	ctx = klog.NewContext(ctx, logger)
	var r *resolution
	var keepNext time.Time
	for woken := false; ; {
		// Everything that was signalled up to here is taken into account below.
		select {
		case <-c.wake:
			woken = true
		default:
		}
		if nc := c.current(); r == nil || r.class != nc {
			r = s.account.begin(nc)
		} else if woken {
			r.again()
		}
		rechecked := c.startRecheck(r)
		wait := s.account.resolve(ctx, r, s.clock.Now())
		if ctx.Err() != nil {
			return
		}
		s.publish(ctx, c, r)
		rechecked()
		if d := s.keepLearned(ctx, c, &keepNext); d > 0 {
			wait = min(wait, d)
		}
		timer := s.clock.NewTimer(wait)
		woken = false
		select {
		case <-c.wake:
			woken = true
		case <-timer.C():
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}
