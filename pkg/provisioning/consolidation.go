package provisioning

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/moves"
	"github.com/dovetail-scheduler/dovetail/pkg/panics"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning/filterrefusals"
)

// Consolidation makes the passes of the consolidation that the disruption controller asks for, and reserves capacity for the moves that are
// due. Demand comes first: neither is done while pods wait for a plan. Views are taken and capacity is reserved on the planner's goroutine;
// the proposal, which may take seconds, is made beside it from the view.
type Consolidation struct {
	*moves.Moves
	claims     Claims
	namespaces *Namespaces
	planning   *planning
	committer  Committer
	ownership  Ownership
	triggers   *Triggers
	background func(func())
	clock      clock.PassiveClock
	passes     *passes
	// refused is what the filters or the guard have refused for moves. Only the planner's goroutine uses it.
	refused *filterrefusals.Moves
}

// passes hands requests and results over between goroutines.
type passes struct {
	changed func()

	mu       sync.Mutex
	asked    *consolidation.Request
	busy     bool // a proposal is being made
	proposed *proposed
	result   *consolidation.Result
	// planner, accrual and number are used by one goroutine at a time: that which has set busy.
	planner *consolidation.Planner
	accrual consolidation.Accrual
	number  int // of passes begun so far
}

// proposed is a proposal whose moves have not been reserved yet.
type proposed struct {
	*consolidation.Proposal
	only bool // its moves are only reported: no capacity is reserved for them
	// lift are the breakers of the spending guard that one of its moves may probe.
	lift []guard.Key
	// known are the pods that were on the candidates' nodes when the pass was requested.
	known map[types.UID]bool
	at    time.Time     // when the pass began
	took  time.Duration // how long the proposal took to make
}

const (
	// proposalHolds is how long after it was made a proposal may be carried out. It gets older than that if demand comes first, and is dropped then.
	proposalHolds = 2 * time.Minute
	// typicalBoot is how long a new node is assumed to boot when a move's cost is computed.
	typicalBoot = time.Minute
)

// Ask asks for a pass, in place of an earlier request for a pass that has not begun. It returns at once.
func (c *Consolidation) Ask(r *consolidation.Request) {
	c.passes.mu.Lock()
	c.passes.asked = r
	c.passes.mu.Unlock()
	c.triggers.Replan()
}

// Result returns what the last finished pass has found, once; nil: nothing new.
func (c *Consolidation) Result() *consolidation.Result {
	c.passes.mu.Lock()
	defer c.passes.mu.Unlock()
	out := c.passes.result
	c.passes.result = nil
	return out
}

// OnResult has a func called when there is a new result. Call it before anything runs.
func (c *Consolidation) OnResult(f func()) { c.passes.changed = f }

// waiting reports whether the planner's goroutine has something to do for a pass.
func (p *passes) waiting() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.proposed != nil || p.asked != nil && !p.busy
}

// takeProposed returns a proposal whose moves are to be reserved; nil: there is none.
func (p *passes) takeProposed() *proposed {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.proposed
	p.proposed = nil
	return out
}

// begin returns the request for the next pass, and marks that a proposal is being made; nil: there is no request, or the last pass has not ended.
func (p *passes) begin() *consolidation.Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy || p.proposed != nil || p.asked == nil {
		return nil
	}
	out := p.asked
	p.asked, p.busy = nil, true
	return out
}

// end records that the proposal for which begin was called has been made; nil: it could not be made.
func (p *passes) end(made *proposed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy, p.proposed = false, made
}

func (p *passes) finish(r *consolidation.Result) {
	p.mu.Lock()
	p.result = r
	p.mu.Unlock()
	if p.changed != nil {
		p.changed()
	}
}

// Consolidate does the next step of a pass, unless pods wait for a plan. It belongs to the planner's goroutine.
func (c *Consolidation) Consolidate(ctx context.Context) {
	if !c.passes.waiting() || c.ownership.Hold() != nil || c.ownership.TakesOver() || c.claims.Problem() != nil {
		return
	}
	demand := false
	c.planning.viewer.reservations.Read(func(l ledger.Reader) { demand = l.Queued() > 0 })
	if demand {
		return
	}
	if p := c.passes.takeProposed(); p != nil {
		c.conclude(ctx, p)
	} else if r := c.passes.begin(); r != nil {
		c.propose(ctx, r)
	}
}

// propose takes a view and has a proposal made from it in the background.
func (c *Consolidation) propose(ctx context.Context, r *consolidation.Request) {
	start := c.clock.Now()
	lift := c.dueProbes(r.Probe)
	v, err := c.view(ctx, lift)
	if err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "No view could be taken for consolidation; it is tried again")
		}
		c.passes.end(nil)
		return
	}
	o := &consolidation.Options{Now: start, Pools: r.Pools, Accrual: &c.passes.accrual, Prices: c.planning.options, Boot: typicalBoot}
	o.Prices.Forbidden = append(slices.Clone(o.Prices.Forbidden), c.refused.Recall()...)
	before := c.passes.accrual.Totals()
	for _, m := range c.TakeUnpaid() {
		c.passes.accrual.Pay(&m, start)
	}
	c.passes.number++
	o.Pass = c.passes.number
	c.background(func() {
		var made *proposed
		defer func() { c.passes.end(made); c.triggers.Replan() }()
		err := panics.Catch(ctx, "consolidation", func() error {
			out := c.passes.planner.Propose(&v.View, r.Candidates, o)
			c.passes.accrual.Observe(out.Rates, r.Candidates, start)
			count(before, c.passes.accrual.Totals())
			made = &proposed{Proposal: out, only: r.ProposeOnly, lift: lift, known: consolidation.PodsOf(r.Candidates), at: start, took: c.clock.Since(start)}
			return nil
		})
		if err != nil {
			klog.FromContext(ctx).Error(err, "No moves could be proposed")
			c.passes.planner = consolidation.New() // what it remembers may be half changed
		}
	})
}

// dueProbes returns the breakers of which a probe may be launched now, whether pods wait because of them or not; none if no roll-out wants a probe.
func (c *Consolidation) dueProbes(wanted bool) []guard.Key {
	if !wanted {
		return nil
	}
	return c.planning.spending.DueForMoves()
}

// view takes a view for moves: without demand, and with nodes in flight closed, because a move begins only when its capacity is on initialized
// nodes. The open breakers in lift forbid nothing in this view.
func (c *Consolidation) view(ctx context.Context, lift []guard.Key) (*View, error) {
	v, err := c.planning.viewer.view(ctx, nil)
	if err != nil {
		return nil, err
	}
	v.Demand = nil
	v.keepChunks() // if a pod was moved onto the capacity of chunks, it would be bought for them again
	c.planning.spending.Restrict(&v.View, func(types.UID) *corev1.Pod { return nil }, lift)
	for i, n := range v.Nodes {
		if n.InFlight && !n.Closed {
			shut := *n
			shut.Closed = true
			v.Nodes[i] = &shut
		}
	}
	return v, nil
}
