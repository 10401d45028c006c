package spending

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// idleFor is how long no probe is planned for a breaker after no pod was found for one.
const idleFor = 30 * time.Second

// probing is what is known of breakers that may be probed. The guard's lock protects it.
type probing struct {
	idle    map[guard.Key]time.Time    // breakers for whose probe no pod was found, and when that was
	refused map[guard.Key]*corev1.Node // Nodes that the API server has refused, by the breaker that opened because of that
	asked   time.Time                  // when refused Nodes were last retried
}

// Due returns the breakers for which a probe may be bought now.
func (g *Guard) Due() []guard.Key {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock.Now()
	return g.state.breakers.Due(now, func(k guard.Key) bool { return now.Sub(g.probing.idle[k]) < idleFor })
}

// DueForMoves is Due for pods that run: it also returns breakers for which no pod waits.
func (g *Guard) DueForMoves() []guard.Key {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state.breakers.Due(g.clock.Now(), nil)
}

// Fruitless records that no pod waits for a probe of the breaker, or that no node can be planned for one: the next probe is planned in a while, or
// when a breaker stops pods.
func (g *Guard) Fruitless(key guard.Key) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.probing.idle[key] = g.clock.Now()
}

// Tried returns the zones in which instances of the breaker have failed, the latest last.
func (g *Guard) Tried(key guard.Key) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if b := g.state.breaker(key); b != nil {
		return slices.Clone(b.Tried)
	}
	return nil
}

// Members returns the workloads whose failures opened a pool-wide breaker.
func (g *Guard) Members(key guard.Key) []guard.Workload {
	g.mu.Lock()
	defer g.mu.Unlock()
	if b := g.state.breaker(key); b != nil {
		return slices.Clone(b.Members)
	}
	return nil
}

// change tells the guard that something has changed that the matching breakers may depend on.
func (g *Guard) change(match func(guard.Key) bool, forced bool) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state.breakers.Changed(match, forced, g.clock.Now())
	for _, b := range g.state.breakers.Breakers() {
		if match(b.Key) {
			g.state.dirty[guard.OwnerOf(b.Key)] = true
		}
	}
}

// NodeRefused remembers a Node that the API server has refused, and gives the verdict on its instance.
func (g *Guard) NodeRefused(c *capacity.Claim, node *corev1.Node, why error) {
	if g == nil {
		return
	}
	g.mu.Lock()
	// The cloud's answer to a launch doesn't name the image, so the guard may not know yet which image the claim's instance has.
	g.state.breakers.Locate(c.Name, c.ImageID, c.Zone)
	g.mu.Unlock()
	g.Fail(c.Name, guard.Fault{Machine: true, Refused: true, Cause: "Node refused", Message: "the API server refuses the Node: " + objects.OneLine(why.Error())})
	g.mu.Lock()
	defer g.mu.Unlock()
	if b := g.state.breakers.HoldsMachine(c.NodeClass, c.ImageID, c.Zone); b != nil && b.Refused {
		g.probing.refused[b.Key] = node.DeepCopy()
	}
}

// Probes reports whether buying the node would probe the breaker. For a breaker of machine faults it keeps of the node's offerings only
// those that the breaker stops, and of these those in zones where no instance has failed, or else in the zone whose failure is the oldest
// (tried).
func Probes(key guard.Key, n *capacity.PlannedNode, workloads []guard.Workload, tried []string) bool {
	switch {
	case !key.Machine():
		return n.Pool.Name == key.Pool && (key.PoolWide() || slices.Contains(workloads, key.Workload))
	case n.Pool.NodeClass != key.Class:
		return false
	}
	left := slices.DeleteFunc(slices.Clone(n.Offers), func(o capacity.NodeOffer) bool {
		return !heldBy(key, &o)
	})
	if len(left) == 0 {
		return false
	}
	n.Offers = left
	for len(tried) > 0 {
		if fresh := slices.DeleteFunc(slices.Clone(left), func(o capacity.NodeOffer) bool { return slices.Contains(tried, o.Offer.Zone) }); len(fresh) > 0 {
			n.Offers = fresh
			break
		}
		tried = tried[1:]
	}
	return true
}

// Spares removes from a node the offerings that a breaker of machine faults stops, if others are left. It returns true if it removed any:
// the node then doesn't probe the breaker.
func Spares(key guard.Key, n *capacity.PlannedNode) bool {
	if !key.Machine() || n.Pool.NodeClass != key.Class {
		return false
	}
	free := slices.DeleteFunc(slices.Clone(n.Offers), func(o capacity.NodeOffer) bool { return heldBy(key, &o) })
	if len(free) == 0 || len(free) == len(n.Offers) {
		return false
	}
	n.Offers = free
	return true
}

// heldBy reports whether a breaker of machine faults of the node's class stops an offering.
func heldBy(key guard.Key, o *capacity.NodeOffer) bool {
	return (key.Image == "" || o.Type.Image == key.Image) && (key.Zone == "" || o.Offer.Zone == key.Zone)
}
