package disruption

import (
	"slices"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/annotations"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/disruptionmetrics"
	"github.com/dovetail-scheduler/dovetail/pkg/karpentermetrics"
)

// reason is a reason to terminate nodes. Each has a file of its own; reasons lists them all.
type reason interface {
	// decide returns how to terminate a candidate's node; nil: not for this reason, as far as is known now.
	decide(m *candidate, now time.Time) (*decision, error)
	// budget returns the name by which disruption budgets limit the reason. With a name, a node may be terminated (removals), and decide
	// chooses only nodes without pods of their own. Without one, the node has to end (replacements): no budget, and no pod that asks not to
	// be disrupted, prevents that.
	budget() karpv1.DisruptionReason
}

// reasons returns all reasons. If several apply to a candidate, the first one counts.
func reasons(cfg *Config, pods cache.Indexer, unhealthy *unhealthy, rollOuts *rollOuts) []reason {
	return []reason{
		interruption{},
		unhealthy,
		expiry{},
		blockEnd{cfg.Taken},
		drift{pods, rollOuts},
		emptiness{pods, cfg.Nodes, cfg.Needed},
	}
}

// moveReason is a reason to empty used nodes other than to save money, within disruption budgets: capacity is reserved for their pods before any is
// evicted, whatever that costs. Each has a file of its own; newMoveReasons lists them all. Empty nodes are no matter of a moveReason: for these
// there may be a reason, as drift is.
type moveReason interface {
	// name is the reason as moves, metrics and disruption budgets know it.
	name() consolidation.Reason
	// due returns since when a node is to be emptied for it. The candidate has a Node and a pool.
	due(m *candidate, now time.Time) (since time.Time, yes bool)
	// allowed returns how many of a pool's nodes, of total, may be disrupted at a time; asked is false if the pool doesn't ask for such moves at all.
	allowed(pool *karpv1.NodePool, total int) (n int, asked bool)
	// text says in events why a node is emptied, clause what is the matter with it: "The node, CLAUSE, is not replaced now".
	text(m *candidate) string
	clause() string
	// over returns why a move that has not begun isn't wanted any more, or nil.
	over(mv *move) error
}

// newMoveReasons returns all moveReasons. If several apply to a candidate, the first one counts.
func newMoveReasons(rollOuts *rollOuts, settings *annotations.Reader, now clock.Clock) moveReasons {
	return moveReasons{
		driftMove{rollOuts},
		rebalanceMove{settings, now},
	}
}

type moveReasons []moveReason

// of returns the moveReason with that name; nil: there is none, so a move with that name is to save money.
func (all moveReasons) of(name consolidation.Reason) moveReason {
	if i := slices.IndexFunc(all, func(r moveReason) bool { return r.name() == name }); i >= 0 {
		return all[i]
	}
	return nil
}

// decision is why, when and how a candidate's node is terminated.
type decision struct {
	*candidate
	// reason is for metrics and logs, message for events.
	reason, message string
	// ending is the reason that Config.Ending gets; empty: reason. interruption sets it for instances that are already stopping or being
	// terminated.
	ending string
	// at is when the node is terminated. One that has to end is drained then, whether there is capacity for its pods or not, unless replacements
	// postpone that.
	at time.Time
	// Of a node that has to end: from prepare on, capacity for its pods is prepared elsewhere, and from avoid on it gets no pods of other
	// nodes that are being replaced.
	avoid, prepare time.Time
	// since, of a node that may be terminated, is since when it has been as it is now. The oldest ones are terminated first.
	since time.Time
	// cloud: the cloud ends the instance, so a dry run drains the node, too. forced: the cloud does so soon, so neither the brake nor a paused pool
	// delays the drain.
	cloud, forced bool
	// idle: a node without pods to be moved is terminated before at. deadline is when the drain ends, whatever is left; zero: as the claim says.
	idle     bool
	deadline time.Time
	// replaced: nodes were launched for its pods.
	replaced bool
	// drift: it ends because it has drifted, which annotations against consolidation don't prevent.
	drift bool
}

// count counts a node that Dovetail decided to end.
func (d *decision) count() {
	l := d.claim.Labels
	disruptionmetrics.Decisions.WithLabelValues(l[karpv1.NodePoolLabelKey], d.reason).Inc()
	karpentermetrics.Decided(karpentermetrics.Node{Pool: l[karpv1.NodePoolLabelKey], CapacityType: l[karpv1.CapacityTypeLabelKey]}, d.reason, d.replaced)
}
