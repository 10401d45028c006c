package aws

import (
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/bootstrap"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/capacityreservation"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/network"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodesize"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/permission"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/placementgroup"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/reported"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// resolved is a node class with its references looked up and its settings read. It is immutable.
type resolved struct {
	class    *ec2nc.EC2NodeClass
	family   *bootstrap.Family
	settings *nodesize.Settings
	subnets  []network.Subnet
	groups   []ec2nc.SecurityGroup
	images   []image
	profile  string
	// reservations the class may use; nil: the class selects none.
	reservations  []capacityreservation.Reservation
	reservedKnown bool
	placement     placementgroup.Group
	// dedicated: offerings on single-tenant hardware are included.
	dedicated bool
	// hash is the hash of the class's spec that its NodeClaims record (Karpenter's drift hash).
	hash string
	// unready is why nodes of the class can't be launched, naming object and field; nil when they can.
	unready error
	// denied is why EC2 would refuse launches from the class, which is then unready; nil: nothing is known that it would refuse.
	denied *permission.Denial
}

// reservation returns the reservation with that id, or nil.
func (r *resolved) reservation(id string) *capacityreservation.Reservation {
	i := slices.IndexFunc(r.reservations, func(v capacityreservation.Reservation) bool { return v.ID == id })
	if i < 0 {
		return nil
	}
	return &r.reservations[i]
}

// version returns the name and hash of the class, under which package reported remembers what its nodes report.
func (r *resolved) version() reported.Class { return reported.Class{Name: r.class.Name, Hash: r.hash} }

// class is a node class and the state of its resolution. Each part of it is looked up again when it is due.
//
//	Set -> Validated -> (each part: asked -> known | nothing matches | not answered, asked again with back-off) -> Ready
type class struct {
	name string
	wake chan struct{} // buffer of one: the class has changed

	mu   sync.Mutex
	spec *ec2nc.EC2NodeClass // the latest version of the object from the watch
	// lookedUp, if not nil, asks for a new look-up of the images at once. The channel is closed when that is done.
	lookedUp chan struct{}

	// recheck: the instance profile is to be looked up again at once.
	recheck atomic.Bool
	// dedicated: a pool asks for instances on single-tenant hardware.
	dedicated atomic.Bool
	// nodeName is the form of the last node name seen; nil: none was seen.
	nodeName atomic.Pointer[bootstrap.NameForm]
	annotations
	resolved atomic.Pointer[resolved]
	// denied is the last answer about the permission to launch from spec.
	denied atomic.Pointer[permission.Denial]
	offers offerCache
}

// annotations are the object's annotations objects.AnnotationNodeName and objects.AnnotationLearned.
type annotations struct{ nameSaid, kept atomic.Pointer[string] }

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
	c.denied.Store(nil)
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

// imagesAgain has the images looked up again at once, because EC2 doesn't know one of them any more. The channel that it returns is closed when
// the resolution says what was found.
func (c *class) imagesAgain() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lookedUp == nil {
		c.lookedUp = make(chan struct{})
	}
	c.poke()
	return c.lookedUp
}

// startRecheck makes the parts due that launches have found to be out of date: instance profile, images. Call finish once the outcome is published.
func (c *class) startRecheck(r *resolution) (finish func()) {
	c.mu.Lock()
	lookedUp := c.lookedUp
	c.lookedUp = nil
	c.mu.Unlock()
	if c.recheck.Swap(false) {
		r.profile.Due = time.Time{}
		if ownTemplate(r.class) != "" {
			r.images.Due = time.Time{} // the template names the profile
		}
	}
	if lookedUp == nil {
		return func() {}
	}
	r.images.Due = time.Time{}
	return func() { close(lookedUp) }
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

// offerDedicated sets dedicated and reports whether it has changed. The rest of the resolution is kept.
func (c *class) offerDedicated(yes bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dedicated.Swap(yes) == yes {
		return false
	}
	if r := c.resolved.Load(); r != nil {
		next := *r
		next.dedicated = yes
		c.resolved.Store(&next)
	}
	return true
}
