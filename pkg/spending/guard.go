package spending

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
)

// Records persists the guard's state on the objects that it is about.
type Records interface {
	GuardRecords(ctx context.Context) (map[guard.Owner]string, error)
	RecordGuard(ctx context.Context, o guard.Owner, text string) error
	// RecordServed records on a claim, once, that its instance has served.
	RecordServed(ctx context.Context, c *capacity.Claim) error
	// TellPool and TellClass record an event on the object that a breaker is about.
	TellPool(pool, eventType, reason, note string)
	TellClass(class, eventType, reason, note string)
	// BudgetReached sets a pool's condition to the budget that keeps it from growing; empty: none does. It returns at once.
	BudgetReached(pool, why string)
}

// Config holds the limits of the spending guard.
type Config struct {
	// NewImageNodes is how many instances of an image may be bought before the first node of that image has ever been initialized, or a
	// tenth of the plan if that is more; 0: any number.
	NewImageNodes int
	Budget        Budget
}

// Nodes tells about Nodes, from memory.
type Nodes struct {
	// Taints returns the taints of a Node, with the one of a cordoned Node even if it has not been added yet. Pods returns the pods bound to a
	// node name.
	Taints func(node string) []corev1.Taint
	Pods   func(node string) []*corev1.Pod
	// Pool returns the node pool of a managed node; "": the node isn't managed, or has none.
	Pool func(node string) string
	// Drained returns the names of the Nodes that Dovetail is emptying.
	Drained func() []string
}

// Parts are the neighbours of a Guard.
type Parts struct {
	Clock   clock.PassiveClock
	Records Records
	Owners  *pending.Owners
	Pending *pending.Pods
	Nodes   Nodes
	// Types returns the instance types of a node class with their prices, from memory.
	Types func(nodeClass string) ([]*capacity.InstanceType, error)
}

// Guard is the spending guard: it watches what becomes of every instance that is bought, keeps the breakers, and is asked before any purchase,
// for whatever purpose. A nil Guard allows every purchase; Tend and questions about its state (Due, Decided) need one that isn't nil.
//
// Informer handlers and controllers call it from any goroutine; it starts none. Lock order: mu is taken after all locks that callers hold, which
// may not be those of pending.Pods and pending.Classes: these two are taken while mu is held, and nothing is called while they are held. Besides,
// only informers' stores are read under mu.
type Guard struct {
	cfg     Config
	clock   clock.PassiveClock
	records Records
	types   func(nodeClass string) ([]*capacity.InstanceType, error)
	// Changes hears of the objects that breakers may depend on.
	Changes *Changes

	known knownPrices
	tends atomic.Bool // Tend was called: this process leads

	mu      sync.Mutex
	state   state
	probing probing
	budgets budgets
}

// New returns a guard without any state.
func New(cfg Config, p Parts) *Guard {
	g := &Guard{cfg: cfg, clock: p.Clock, records: p.Records, types: p.Types,
		state: state{breakers: guard.New(), instances: newInstances(), workloads: workloads{p.Owners, p.Pending}, nodes: p.Nodes,
			recent: recent{moved: map[guard.Workload]time.Time{}, unfulfilled: map[guard.Workload]time.Time{}},
			dirty:  map[guard.Owner]bool{}, served: map[string]bool{}},
		probing: probing{idle: map[guard.Key]time.Time{}, refused: map[guard.Key]*corev1.Node{}},
		budgets: budgets{limit: cfg.Budget, hit: map[string]reached{}, told: map[string]string{}},
	}
	g.Changes = newChanges(g)
	return g
}

// Restore reads the records of an earlier process, and adds the instances that exist.
func (g *Guard) Restore(ctx context.Context, claims []*capacity.Claim) error {
	if g == nil {
		return nil
	}
	records, err := g.records.GuardRecords(ctx)
	if err != nil {
		return err
	}
	now := g.clock.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	s := &g.state
	s.recent.nodeGone = now // Nodes may have left before this process started, after the instances were bought
	for o, text := range records {
		if err := s.breakers.Restore(o, text); err != nil {
			klog.FromContext(ctx).Error(err, "The spending guard's record can't be read; it begins anew", "nodePool", o.Pool, "nodeClass", o.Class)
			s.dirty[o] = true
		}
	}
	for _, c := range claims {
		if c.Initialized && c.ImageID != "" {
			s.breakers.Know(c.NodeClass, c.ImageID)
		}
		if c.Purchase == nil || !c.Launched && c.LaunchBatch == nil {
			continue
		}
		b := s.buy(c, boughtAt(c), nil, nil)
		s.instances.want(b, s.reserved(c))
		g.budgets.launched(b.at, now)
		if c.Served {
			s.breakers.Serve(c.Name, guard.NoPod, c.ServedAt) // which workload it has served is not on record, so this closes no breaker
		}
		if c.NodeName != "" {
			s.name(b, c.NodeName, now)
		}
		s.observe(b, c, now)
		if c.Deleting { // the reason for its deletion was reported to an earlier process
			b.neutral = true
		}
	}
	s.breakers.Recovered(now)
	return nil
}

// Buy records an instance that is about to be bought, and sets the time of the purchase in c. wanted holds the pods that it is bought for.
func (g *Guard) Buy(c *capacity.Claim, offers []capacity.NodeOffer, wanted map[types.UID]guard.Workload) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	// A standalone NodeClaim may have been paused for hours: its life begins now.
	now := g.clock.Now()
	c.Purchase.When = now.Unix()
	b := g.state.buy(c, now, imagesOf(offers), zonesOf(offers))
	b.price = dearestOf(offers)
	g.state.instances.want(b, wanted)
	g.budgets.launched(b.at, now)
}

// boughtAt returns when a claim's instance was bought.
func boughtAt(c *capacity.Claim) time.Time {
	if c.Purchase != nil && c.Purchase.When != 0 {
		return time.Unix(c.Purchase.When, 0)
	}
	return c.CreatedAt
}

// reserved returns the waiting pods that the claim's recorded reservations name.
func (s *state) reserved(c *capacity.Claim) map[types.UID]guard.Workload {
	out := map[types.UID]guard.Workload{}
	for _, slot := range c.Slots {
		if pod := s.workloads.pods.Get(slot.Pod.UID); pod != nil {
			out[slot.Pod.UID] = s.workloads.of(pod)
		}
	}
	return out
}

// Observe updates what the guard knows about a claim.
func (g *Guard) Observe(c *capacity.Claim) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if b := g.state.instances.byClaim[c.Name]; b != nil && (b.uid == "" || b.uid == c.UID) {
		b.uid = c.UID
		g.state.observe(b, c, g.clock.Now())
	}
}

// Named records which Node is the claim's.
func (g *Guard) Named(claim, node string) {
	if g == nil || node == "" {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if b := g.state.instances.byClaim[claim]; b != nil && b.node != node {
		g.state.name(b, node, g.clock.Now())
	}
}

// NodeLeft records that a Node has left the cluster.
func (g *Guard) NodeLeft() {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state.recent.nodeGone = g.clock.Now()
}

// NodeReady records that a Node is Ready.
func (g *Guard) NodeReady(node string) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if b := g.state.instances.byNode[node]; b != nil {
		g.state.breakers.Ready(b.claim)
	}
}
