package spending

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
)

// state is what the guard knows, without its lock: breakers, the instances that are watched, and what is still to be written or told.
type state struct {
	breakers  *guard.Guard
	instances instances
	recent    recent
	workloads workloads
	nodes     Nodes
	// dirty holds the owners of records that have changed, served the claims whose instance has served and whose condition doesn't say so
	// yet.
	dirty   map[guard.Owner]bool
	served  map[string]bool
	notices []guard.Notice // not yet told by events
}

// buy begins to watch an instance.
func (s *state) buy(c *capacity.Claim, at time.Time, images, zones []string) *instance {
	if b := s.instances.byClaim[c.Name]; b != nil {
		return b
	}
	b := &instance{uid: c.UID, pods: map[types.UID]*boundPod{},
		purchase: purchase{claim: c.Name, pool: c.Pool, class: c.NodeClass, at: at, workloads: c.Purchase.Workloads, probes: c.Purchase.Probes}}
	if c.ImageID != "" {
		images = []string{c.ImageID}
	}
	if c.Zone != "" {
		zones = []string{c.Zone}
	}
	s.instances.byClaim[c.Name] = b
	s.breakers.Buy(c.Name, guard.Bought{Purchase: *c.Purchase, Pool: c.Pool, Class: c.NodeClass, Images: images, Zones: zones, At: b.at})
	if c.Launched {
		s.breakers.Locate(c.Name, c.ImageID, c.Zone)
	}
	s.changed(c.Purchase.Probes)
	return b
}

// changed marks the records of breakers to be written.
func (s *state) changed(keys []guard.Key) {
	for _, k := range keys {
		s.dirty[guard.OwnerOf(k)] = true
	}
}

// observe updates what is known of an instance's claim.
func (s *state) observe(b *instance, c *capacity.Claim, now time.Time) {
	if c.Launched {
		b.launched = true
		s.breakers.Locate(b.claim, c.ImageID, c.Zone)
	}
	if c.NodeName != "" && b.node != c.NodeName {
		s.name(b, c.NodeName, now)
	}
	if c.Initialized && b.initialized.IsZero() {
		b.initialized = c.InitializedAt
		if b.initialized.IsZero() {
			b.initialized = now
		}
		s.breakers.Initialized(b.claim, b.initialized)
		s.initializedAfterAll(b, now)
		s.notice()
	}
}

// initializedAfterAll is called when a node has become initialized. Breakers that are open because nodes of its pool or node class did not
// become initialized may be probed at once: the cause may be over.
func (s *state) initializedAfterAll(b *instance, now time.Time) {
	waited := map[guard.Key]bool{}
	for _, o := range s.breakers.Breakers() {
		if o.Open() && (o.Key.Pool == b.pool || o.Key.Class == b.class) && guard.Uninitialized(o.Cause) && b.at.Before(o.Next) {
			waited[o.Key] = true
		}
	}
	if len(waited) > 0 {
		s.breakers.Changed(func(k guard.Key) bool { return waited[k] }, false, now)
	}
}

// name records which Node is the instance's, with the pods that are on it.
func (s *state) name(b *instance, node string, now time.Time) {
	s.instances.name(b, node)
	for _, pod := range s.nodes.Pods(node) {
		s.observePod(b, pod, now)
	}
}

// notice collects what has happened to breakers, and marks their records to be written.
func (s *state) notice() {
	for _, n := range s.breakers.Take() {
		s.dirty[guard.OwnerOf(n.Key)] = true
		s.notices = append(s.notices, n)
	}
}

// breaker returns the breaker of a key, or nil.
func (s *state) breaker(key guard.Key) *guard.Breaker {
	for _, b := range s.breakers.Breakers() {
		if b.Key == key {
			return b
		}
	}
	return nil
}

// anyOpen reports whether launches are paused for any reason.
func (s *state) anyOpen() bool {
	return slices.ContainsFunc(s.breakers.Breakers(), (*guard.Breaker).Open)
}

// forget ends the watch of an instance.
func (s *state) forget(b *instance) {
	s.changed(b.probes)
	s.instances.forget(b)
}
