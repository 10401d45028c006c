package disruption

import (
	"cmp"
	"errors"
	"strconv"

	"k8s.io/utils/clock"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/annotations"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/budgets"
)

// policies says what pools allow consolidation to do.
type policies struct {
	settings *annotations.Reader
}

// of returns a pool's policy. left is how many more of its nodes its budgets allow to be disrupted now, by reason. It has no entry for empty
// nodes, because consolidation doesn't remove those.
func (p *policies) of(pool *karpv1.NodePool, left map[consolidation.Reason]int) consolidation.Policy {
	out := consolidation.DefaultPolicy()
	out.Consolidate = cmp.Or(consolidation.ConsolidationPolicy(pool.Spec.Disruption.ConsolidationPolicy), out.Consolidate)
	out.Budgets = left
	if d := p.settings.RestartCost("NodePool", pool); d != nil {
		out.RestartCost = *d
	}
	if n := p.settings.SpotFlexibility(pool); n > 0 {
		out.SpotFlexibility = n
	}
	return out
}

// moveBudgets counts how many nodes the budgets allow to be disrupted by moves.
type moveBudgets struct {
	clock        clock.Clock
	reasons      moveReasons
	terminations *terminations
	replacements *replacements
	moves        *moves
}

// left returns how many more nodes of a pool may be disrupted now, by reason. Nodes that are being replaced count as disrupted, and so do the nodes
// of all moves, from their reservation on.
func (b *moveBudgets) left(s *cluster, p *karpv1.NodePool) map[consolidation.Reason]int {
	total, disrupting := b.terminations.count(s, p, func(m *candidate) bool {
		return b.terminations.unavailable(m) || b.replacements.begun[m.uid()] != nil || b.moves.has(m.uid())
	})
	out := map[consolidation.Reason]int{consolidation.Underutilized: max(0, b.allowed(p, total, consolidation.Underutilized)-disrupting)}
	for _, r := range b.reasons {
		if n, asked := r.allowed(p, total); asked {
			out[r.name()] = max(0, n-disrupting)
		}
	}
	return out
}

// refuse returns why the budgets don't allow a move to begin. never: they wouldn't allow it even if no other node was being disrupted.
func (b *moveBudgets) refuse(s *cluster, mv *move) (err error, never bool) {
	own := map[string]bool{}
	need := map[*karpv1.NodePool]int{}
	for _, src := range mv.sources {
		own[src.uid()] = true
		need[src.pool]++
	}
	for p, n := range need {
		total, disrupting := b.terminations.count(s, p, func(m *candidate) bool {
			return !own[m.uid()] && (b.terminations.unavailable(m) || b.replacements.begun[m.uid()] != nil || b.moves.begun(m.uid()))
		})
		if most := b.allowed(p, total, mv.Reason); most-disrupting < n {
			return errors.New("the disruption budgets of pool " + p.Name + " allow " + strconv.Itoa(max(0, most-disrupting)) + " of " + strconv.Itoa(n) + " nodes now"), most < n
		}
	}
	return nil, false
}

func (b *moveBudgets) allowed(p *karpv1.NodePool, total int, reason consolidation.Reason) int {
	if r := b.reasons.of(reason); r != nil {
		n, _ := r.allowed(p, total)
		return n
	}
	return budgets.Allowed(p.Spec.Disruption.Budgets, b.clock, total, karpv1.DisruptionReason(reason))
}
