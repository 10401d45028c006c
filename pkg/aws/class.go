package aws

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/panics"
)

// resolved is a node class with its references looked up and its settings read. It is immutable.
type resolved struct {
	class    *ec2nc.EC2NodeClass
	family   *family
	settings *nodeSettings
	subnets  []subnet
	groups   []ec2nc.SecurityGroup
	images   []image
	profile  string
	// reservations the class may use; nil: the class selects none.
	reservations []reservation
	placement    placement
	// dedicated: offerings on single-tenant hardware are included.
	dedicated bool
	// unready is why nodes of the class can't be launched, naming object and field; empty when they can.
	unready string
}

// class is a node class and the state of its resolution. Each part of it is looked up again when it is due.
//
//	Set -> Validated -> (each part: asked -> known | nothing matches | not answered, asked again with back-off) -> Ready
type class struct {
	name string
	wake chan struct{} // buffer of one: the class has changed

	mu   sync.Mutex
	spec *ec2nc.EC2NodeClass // as last set

	// recheck: the instance profile is to be looked up again at once.
	recheck atomic.Bool
	// dedicated: a pool asks for instances on single-tenant hardware.
	dedicated atomic.Bool
	// nodeName is the form of the last node name seen; nil: none was seen.
	nodeName atomic.Pointer[nameForm]
	// nameSaid and kept are the object's annotations objects.AnnotationNodeName and objects.AnnotationLearned.
	nameSaid, kept atomic.Pointer[string]
	resolved       atomic.Pointer[resolved]
	built          offerCache
}

func newClass(nc *ec2nc.EC2NodeClass) *class {
	return &class{name: nc.Name, spec: nc, wake: make(chan struct{}, 1)}
}

// set stores a new version of the object and reports whether its spec changed: our own status writes arrive here, too. A changed class
// is not ready until it is resolved again.
func (c *class) set(nc *ec2nc.EC2NodeClass) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.spec.UID == nc.UID && c.spec.Generation == nc.Generation && c.spec.DeletionTimestamp.Equal(nc.DeletionTimestamp) &&
		reflect.DeepEqual(c.spec.Spec, nc.Spec) && c.spec.Annotations[objects.AnnotationNodeName] == nc.Annotations[objects.AnnotationNodeName] {
		return false
	}
	c.spec = nc
	c.resolved.Store(nil)
	c.poke()
	return true
}

// poke makes the resolver run again.
func (c *class) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (p *Provider) wakeClasses() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.classes {
		c.poke()
	}
}

// put stores the resolution of a version of the object, unless there is a newer version.
func (c *class) put(nc *ec2nc.EC2NodeClass, r *resolved) (stored, changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.spec != nc {
		return false, false
	}
	r.dedicated = c.dedicated.Load()
	if have := c.resolved.Load(); have != nil && reflect.DeepEqual(have, r) {
		return true, false
	}
	c.resolved.Store(r)
	return true, true
}

func (c *class) current() *ec2nc.EC2NodeClass {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spec
}

// part is one kind of reference of a class.
type part[T any] struct {
	value T
	// problem is the reason that a definite answer gave for having no value; err is why there is no answer. known: there was an
	// answer.
	problem string
	err     error
	known   bool
	due     time.Time
	retry   backoff
}

// ask looks the part up if it is due and returns the time until it is due again.
func (p *part[T]) ask(now time.Time, every time.Duration, lookUp func() (T, string, error)) time.Duration {
	if p.due.After(now) {
		return p.due.Sub(now)
	}
	value, problem, err := lookUp()
	wait := every
	switch {
	case err != nil:
		p.err, wait = err, p.retry.next() // the last known value is kept
	default:
		p.value, p.problem, p.err, p.known, p.retry = value, problem, nil, true, backoff{}
		if problem != "" {
			// The user will probably fix it soon and should not have to wait for the whole period.
			wait = min(every, problemPeriod)
		}
	}
	p.due = now.Add(wait)
	return wait
}

const problemPeriod = 15 * time.Second

func (p *part[T]) usable() bool { return p.known && p.problem == "" }

// resolution is the state of resolving one generation of a class.
type resolution struct {
	class    *ec2nc.EC2NodeClass
	family   *family
	release  string
	settings *nodeSettings
	invalid  string

	subnets  part[[]subnet]
	groups   part[[]ec2nc.SecurityGroup]
	images   part[[]image]
	profile  part[string]
	reserved part[[]reservation]
	placed   part[placement]
	join     string                    // why user data can't be created yet
	reported *ec2nc.EC2NodeClassStatus // the status last handed out
}

// keepClass resolves a class until ctx ends.
func (p *Provider) keepClass(ctx context.Context, c *class) {
	logger := klog.FromContext(ctx).WithValues("nodeClass", c.name)
	ctx = klog.NewContext(ctx, logger)
	var r *resolution
	var keepNext time.Time
	for {
		// Everything that was signalled up to here is taken into account below.
		select {
		case <-c.wake:
		default:
		}
		if nc := c.current(); r == nil || r.class != nc {
			r = p.begin(nc)
		}
		wait := p.resolve(ctx, r)
		if ctx.Err() != nil {
			return
		}
		p.publish(ctx, c, r)
		if d := p.keepLearned(ctx, c, &keepNext); d > 0 {
			wait = min(wait, d)
		}
		timer := p.clock.NewTimer(wait)
		select {
		case <-c.wake:
			r.again()
			if c.recheck.Swap(false) {
				r.profile.due = time.Time{}
				if ownTemplate(r.class) != "" {
					r.images.due = time.Time{}
				}
			}
		case <-timer.C():
		case <-ctx.Done():
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// again makes every part without an answer due: what it needs may exist now.
func (r *resolution) again() {
	for _, p := range []interface{ again() }{&r.subnets, &r.groups, &r.images, &r.profile, &r.reserved, &r.placed} {
		p.again()
	}
}

func (p *part[T]) again() {
	if p.err != nil {
		p.due = time.Time{}
	}
}

// begin reads the class's own fields; it makes no request.
func (p *Provider) begin(nc *ec2nc.EC2NodeClass) *resolution {
	r := &resolution{class: nc}
	if ownTemplate(nc) != "" {
		p.beginOwn(r)
		return r
	}
	r.family, r.release, r.invalid = familyOf(&nc.Spec)
	if r.invalid == "" {
		r.invalid = validate(nc, r.family)
	}
	if r.invalid == "" {
		r.settings, r.invalid = settingsOf(&nc.Spec, r.family, &p.cfg)
	}
	return r
}

// resolve looks up what is due and returns the time until something is due again.
func (p *Provider) resolve(ctx context.Context, r *resolution) time.Duration {
	if r.invalid != "" {
		return time.Hour // only a change of the class helps
	}
	spec, now, own := &r.class.Spec, p.clock.Now(), ownTemplate(r.class)
	var wg sync.WaitGroup
	var waits [6]time.Duration
	var errs [len(waits)]error
	for i, f := range []func() time.Duration{
		func() time.Duration {
			return r.subnets.ask(now, p.cfg.SubnetsEvery, func() ([]subnet, string, error) { return p.findSubnets(ctx, spec) })
		},
		func() time.Duration {
			if own != "" {
				return time.Hour
			}
			return r.groups.ask(now, p.cfg.GroupsEvery, func() ([]ec2nc.SecurityGroup, string, error) { return p.findGroups(ctx, spec) })
		},
		func() time.Duration {
			if own != "" {
				return r.images.ask(now, p.cfg.ImagesEvery, func() ([]image, string, error) { return p.findOwn(ctx, own, now) })
			}
			return r.images.ask(now, p.cfg.ImagesEvery, func() ([]image, string, error) { return p.findImages(ctx, spec, now) })
		},
		func() time.Duration {
			if own != "" {
				return time.Hour
			}
			return r.profile.ask(now, p.cfg.ProfilesEvery, func() (string, string, error) { return p.findProfile(ctx, r.class) })
		},
		func() time.Duration {
			if len(spec.CapacityReservationSelectorTerms) == 0 {
				return time.Hour
			}
			return r.reserved.ask(now, p.cfg.ReservedEvery, func() ([]reservation, string, error) { return p.findReservations(ctx, spec) })
		},
		func() time.Duration {
			if spec.PlacementGroupSelector == nil {
				return time.Hour
			}
			return r.placed.ask(now, p.cfg.PlacementsEvery, func() (placement, string, error) { return p.findPlacement(ctx, spec) })
		},
	} {
		wg.Add(1)
		go func() {
			defer wg.Done()
			errs[i] = panics.Catch(ctx, "node class", func() error {
				waits[i] = f()
				return nil
			})
		}()
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			panic(err) // keepClass is restarted
		}
	}
	wait := slices.Min(waits[:])
	if own != "" {
		r.sizedByOwn()
	}
	r.join = ""
	if r.family.join {
		if _, err := p.joinData(); err != nil {
			r.join = err.Error() // joinData's next success wakes the classes
		}
	}
	return max(wait, time.Millisecond)
}
