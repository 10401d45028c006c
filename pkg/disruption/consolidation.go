package disruption

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/annotations"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/nodepods"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/pdb"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/podrules"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/surge"
	"github.com/dovetail-scheduler/dovetail/pkg/karpentermetrics"
)

// Consolidation plans which used nodes to empty, and reserves capacity elsewhere for the pods of those that are due. All methods return at
// once.
type Consolidation interface {
	// Ask asks for a pass, which the planner makes when no demand waits. A newer request replaces one whose pass hasn't begun.
	Ask(r *consolidation.Request)
	// Result returns what the last finished pass has found, once; nil: nothing new.
	Result() *consolidation.Result
	// Ready gets the reschedulable pods that are on each of a move's nodes now. It extends the reservations by a minute, and reports whether
	// there is capacity for all of them on initialized nodes; otherwise the error says why the move can't be made any more (given up for
	// demand, a pod without reservation, capacity lost), or is nil while nodes are being launched.
	Ready(key string, now map[string][]*corev1.Pod) (ready bool, err error)
	// Begin does what Ready does, and begins the move: pending pods can't take its capacity any more. After an error it has not begun.
	Begin(key string, now map[string][]*corev1.Pod) error
	// Surge begins a move for the pods in surging only: roll-outs of their Deployments replace them by pods of other ReplicaSets. Begin follows for
	// the rest. After an error the move has not begun.
	Surge(key string, now map[string][]*corev1.Pod, surging []*corev1.Pod) error
	// Keep extends the reservations of a move that has begun by another minute.
	Keep(key string)
	// Forget releases what is left of a move's reservations and lifts the cordon of its nodes that are not being removed.
	Forget(key string)
	// Leave gives up the moves that empty this node or put pods on it, unless they have begun: the node has to end.
	Leave(node string)
}

const (
	// askEvery is the shortest time between two requests. It is longer if the planner's last pass took long: askShare times as long as that
	// pass, so that passes over large clusters take a tenth of a processor. askAgain is how long the planner has for an answer; after
	// that it is asked again.
	askEvery = 10 * time.Second
	askShare = 10
	askAgain = 5 * time.Minute
)

// consolidations asks for moves, makes them, and says why the other nodes are kept. Only the goroutine that makes the passes uses it. What
// it holds may be lost at any moment, for example by a restart: moves that haven't begun are forgotten then, and the capacity reserved for them is
// released because nothing extends the reservations.
type consolidations struct {
	planner  Consolidation // nil: nothing is consolidated
	clock    clock.Clock
	dryRun   bool
	nodes    *usedNodes
	policies *policies
	moves    *moves
	kept     *keptNodes
	budgets  *moveBudgets
	rollOuts *rollOuts

	terminations *terminations
	asking
}

// asking is when the planner was asked for moves, and with what.
type asking struct {
	// asked is when the request was made that isn't answered yet; zero: there is none. last is when the last request was made, answered or not,
	// and every is how long to wait after that until the next one.
	asked, last time.Time
	every       time.Duration
	// templates identify what nodes were launched from when the last request was made, by pool.
	templates map[string]string
}

func newConsolidations(cfg *Config, bound nodepods.Reader, cordons *cordons, terminations *terminations, replacements *replacements, unhealthy *unhealthy,
	rollOuts *rollOuts, surges *surge.Requests) *consolidations {
	settings := annotations.NewReader(cfg.Recorder)
	c := &consolidations{planner: cfg.Consolidation, clock: cfg.Clock, dryRun: cfg.DryRun, policies: &policies{settings}, terminations: terminations, rollOuts: rollOuts}
	c.kept = &keptNodes{claims: cfg.Claims, recorder: cfg.Recorder, clock: cfg.Clock, nodes: map[string]*keptNode{}, series: map[[2]string]bool{}}
	c.moves = &moves{planner: cfg.Consolidation, price: cfg.Price, cordons: cordons, terminations: terminations, bound: bound, replacements: replacements, kept: c.kept, rollOuts: rollOuts,
		recorder: cfg.Recorder, open: openMoves{byUID: map[string]*move{}}, memory: moveMemory{failed: map[string]failure{}, received: map[string]time.Time{}}}
	c.budgets = &moveBudgets{clock: cfg.Clock, reasons: newMoveReasons(rollOuts, settings, cfg.Clock), terminations: terminations, replacements: replacements, moves: c.moves}
	c.moves.budgets = c.budgets
	if cfg.Consolidation == nil {
		return c
	}
	rules := podrules.New(podrules.Config{Successor: cfg.Class, Ours: cfg.Ours, Namespaces: cfg.Informers.Core().V1().Namespaces().Lister(),
		Budgets: pdb.New(cfg.Informers.Policy().V1().PodDisruptionBudgets().Lister()), Settings: settings, Surges: surges})
	c.moves.rules = rules
	c.nodes = &usedNodes{bound: bound, emptiness: emptiness{bound.Pods, cfg.Nodes, cfg.Needed}, rules: rules, price: cfg.Price, received: c.moves.receivedUntil, ending: replacements.ending, unhealthy: unhealthy, rollOuts: rollOuts, reasons: c.budgets.reasons}
	return c
}

// collect takes the result of the last request: moves with reserved capacity, and reasons why nodes are kept.
func (c *consolidations) collect(ctx context.Context, s *cluster) (errs []error) {
	if c.planner == nil {
		return nil
	}
	now := c.clock.Now()
	c.moves.prune(s, now)
	result := c.planner.Result()
	if result == nil {
		return nil
	}
	c.asked, c.every = time.Time{}, askShare*result.Took
	karpentermetrics.Evaluated(string(consolidation.Underutilized), result.Took)
	for i := range result.Moves {
		due := &result.Moves[i]
		if due.Key == "" {
			c.report(ctx, s, due)
			continue
		}
		if err := c.moves.reserve(ctx, s, due, c.templates, now); err != nil {
			errs = append(errs, err)
		}
	}
	c.kept.record(s, result, c.moves)
	return errs
}

// report says in a dry run that a move would be made.
func (c *consolidations) report(ctx context.Context, s *cluster, due *consolidation.Due) {
	if !c.dryRun {
		klog.FromContext(ctx).Error(errors.New("a move without reserved capacity"), "A move is not made", "nodes", due.Nodes)
		return
	}
	for _, node := range due.Nodes {
		if m := s.byNode[node]; m != nil {
			c.terminations.dry(ctx, decisionOf(c.budgets.reasons.of(due.Reason), m, due))
		}
	}
}

// pass takes each move a step further, writes why nodes are kept, and asks for the next moves. It returns how long to wait until the next run
// (0: none of this needs one).
func (c *consolidations) pass(ctx context.Context, s *cluster) (soon time.Duration, errs []error) {
	if c.planner == nil {
		return 0, nil
	}
	now := c.clock.Now()
	soon, errs = c.moves.pass(ctx, s, now)
	c.kept.write(ctx, s)
	wait, err := c.ask(s, now)
	return nearer(soon, wait), append(errs, err)
}

// ask asks for moves, and returns when to ask again (0: when the planner has answered).
func (c *consolidations) ask(s *cluster, now time.Time) (time.Duration, error) {
	switch {
	case !c.asked.IsZero() && now.Sub(c.asked) < askAgain:
		return 0, nil
	case c.moves.takeEnded(): // the capacity that the ended moves used is free again
	case now.Sub(c.last) < max(askEvery, c.every):
		return max(askEvery, c.every) - now.Sub(c.last), nil
	}
	r := &consolidation.Request{ProposeOnly: c.dryRun, Pools: map[string]consolidation.Policy{}}
	for _, p := range s.pools {
		left := c.budgets.left(s, p)
		for reason, n := range left {
			karpentermetrics.Allowed(p.Name, string(reason), n)
		}
		policy := c.policies.of(p, left)
		c.rollOuts.policy(p.Name, &policy, now)
		r.Pools[p.Name] = policy
	}
	r.Probe = c.rollOuts.probes(r.Pools)
	var err error
	if r.Candidates, err = c.nodes.all(s, c.moves.occupied, now); err != nil {
		return 0, err
	}
	karpentermetrics.Eligible(string(consolidation.Underutilized), len(r.Candidates))
	c.asked, c.last, c.templates = now, now, c.rollOuts.templates()
	c.planner.Ask(r)
	return 0, nil
}

// decisionOf returns the decision to terminate a node of a move.
func decisionOf(r moveReason, m *candidate, due *consolidation.Due) *decision {
	return &decision{candidate: m, reason: string(due.Reason), message: dueText(r, due, m), replaced: len(due.Claims) > 0}
}
