package disruption

import (
	"cmp"
	"errors"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// policies says what pools allow consolidation to do.
type policies struct {
	settings *settings
}

// of returns a pool's policy. left is how many more of its nodes its budgets allow to be disrupted now, by reason. Empty nodes aren't the
// business of consolidation, so the policy allows none.
func (p *policies) of(pool *karpv1.NodePool, left map[consolidation.Reason]int) consolidation.Policy {
	out := consolidation.DefaultPolicy()
	out.Consolidate = cmp.Or(consolidation.ConsolidationPolicy(pool.Spec.Disruption.ConsolidationPolicy), out.Consolidate)
	out.Budgets = left
	if d := p.settings.restartCost("NodePool", pool); d != nil {
		out.RestartCost = *d
	}
	if n := p.settings.spotFlexibility(pool); n > 0 {
		out.SpotFlexibility = n
	}
	return out
}

// settings reads annotations by which users change how their pods and nodes are consolidated. One that can't be read is ignored, and
// reported once.
type settings struct {
	recorder events.EventRecorder
	reported map[string]bool
}

// reportMost is how many malformed annotations are remembered, so that each is reported once.
const reportMost = 10_000

// restartCost returns what an object says that a restart of its pods costs; nil: nothing.
func (s *settings) restartCost(kind string, obj client.Object) *time.Duration {
	text, ok := obj.GetAnnotations()[objects.AnnotationRestartCost]
	if !ok {
		return nil
	}
	d, err := parseRestartCost(text)
	if err != nil {
		s.report(kind, obj, objects.AnnotationRestartCost, text, err)
		return nil
	}
	return &d
}

// spotFlexibility returns how many cheaper instance types a pool needs before a spot node is replaced by a spot node; 0: it doesn't say.
func (s *settings) spotFlexibility(pool *karpv1.NodePool) int {
	text, ok := pool.Annotations[objects.AnnotationSpotFlexibility]
	if !ok {
		return 0
	}
	n, err := parseSpotFlexibility(text)
	if err != nil {
		s.report("NodePool", pool, objects.AnnotationSpotFlexibility, text, err)
	}
	return n
}

func parseRestartCost(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, errors.New(`it must be a duration of zero or more, like "10m"`)
	}
	return d, nil
}

func parseSpotFlexibility(text string) (int, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 1 {
		return 0, errors.New(`it must be a whole number of one or more, like "5"`)
	}
	return int(n), nil
}

// report records an event that an annotation is ignored, once for all pods of a controller.
func (s *settings) report(kind string, obj client.Object, key, text string, err error) {
	about := obj.GetUID()
	if pod, ok := obj.(*corev1.Pod); ok {
		about = cmp.Or(objects.Controller(pod), about)
	}
	once := string(about) + " " + key + "=" + text
	if s.reported[once] {
		return
	}
	if len(s.reported) >= reportMost {
		clear(s.reported)
	}
	s.reported[once] = true
	name := obj.GetName()
	if obj.GetNamespace() != "" {
		name = obj.GetNamespace() + "/" + name
	}
	s.recorder.Eventf(obj, nil, corev1.EventTypeWarning, reasonAnnotation, "Disrupt", "The annotation %s: %q of %s %s is ignored: %v", key, text, kind, name, err)
}

// moveBudgets counts how many nodes the budgets allow to be disrupted by moves.
type moveBudgets struct {
	clock        clock.Clock
	terminations *terminations
	replacements *replacements
	moves        *moves
}

// left returns how many more nodes of a pool may be disrupted now, by reason. Nodes that are being replaced count, and those of moves from their
// reservation on, for whatever reason.
func (b *moveBudgets) left(s *cluster, p *karpv1.NodePool) map[consolidation.Reason]int {
	total, disrupting := b.terminations.count(s, p, func(m *candidate) bool {
		return b.terminations.unavailable(m) || b.replacements.begun[m.uid()] != nil || b.moves.has(m.uid())
	})
	out := map[consolidation.Reason]int{}
	for _, reason := range []consolidation.Reason{consolidation.Underutilized, consolidation.Drifted} {
		out[reason] = max(0, b.allowed(p, total, reason)-disrupting)
	}
	return out
}

// refuse returns why the budgets don't allow a move to begin. never: they wouldn't if nothing else was being disrupted.
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
	return allowed(p.Spec.Disruption.Budgets, b.clock, total, karpv1.DisruptionReason(reason))
}
