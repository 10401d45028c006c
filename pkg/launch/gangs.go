package launch

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

// Gangs tells from memory how many pods of a group must be placed for any of them to run. ok is false when nobody in this
// program looks after groups of the kind; min is 0 when the group isn't known.
type Gangs interface {
	Min(group Group) (min int, ok bool)
}

// Group is what a pod says of the group it belongs to.
type Group struct {
	Namespace, Name string
	// InTree: the group is of scheduling.k8s.io (spec.schedulingGroup), otherwise of scheduling.x-k8s.io.
	InTree bool
}

func (g Group) String() string { return g.Namespace + "/" + g.Name }

// labelGroup names a pod's group for scheduler-plugins' Coscheduling.
const labelGroup = "scheduling.x-k8s.io/pod-group"

// groupOf is the pod's group; a zero Group: it stands alone.
func groupOf(pod *corev1.Pod) Group {
	if g := pod.Spec.SchedulingGroup; g != nil && g.PodGroupName != nil {
		return Group{pod.Namespace, *g.PodGroupName, true}
	}
	if name := pod.Labels[labelGroup]; name != "" {
		return Group{pod.Namespace, name, false}
	}
	return Group{}
}

// gang is a group as a plan needs it: its members that wait, and how many others are there or promised room.
type gang struct {
	min     int
	waiting []*corev1.Pod
	placed  int
}

// gangsOf looks at the groups of the waiting pods. Members are gathered, whatever their class and whether or not they were
// refused before: one more may make the group complete. Pods of groups that nobody knows are refused.
func (m *Motor) gangsOf(ctx context.Context, waiting []ledger.Waiting) map[Group]*gang {
	out := map[Group]*gang{}
	unknown := map[Group][]types.UID{}
	for _, w := range waiting {
		pod := m.pending.Get(w.Ref.UID)
		if pod == nil {
			continue
		}
		group := groupOf(pod)
		min, ok := 0, false
		if group != (Group{}) && m.gangs != nil {
			min, ok = m.gangs.Min(group)
		}
		switch {
		case !ok:
			m.tellUngrouped(group, w.Ref)
		case min == 0:
			unknown[group] = append(unknown[group], pod.UID)
		case out[group] == nil:
			out[group] = &gang{min: min, placed: m.pending.boundOf(group)}
		}
	}
	for group, uids := range unknown {
		m.refuse(ctx, uids, fmt.Sprintf("the pod's group %s does not exist", group), true)
	}
	if len(out) == 0 {
		return nil
	}
	for _, pod := range m.pending.all() {
		if g := out[groupOf(pod)]; g != nil {
			m.member(g, pod)
		}
	}
	m.rest(out)
	return out
}

// EventGroupIgnored is the reason of the event on a pod that asks for a group to start with, where nobody looks after groups.
const EventGroupIgnored = "GroupIgnored"

// maxUngrouped caps how many groups are remembered as told.
const maxUngrouped = 1000

// tellUngrouped tells a pod, one of each group, that its group means nothing here.
func (m *Motor) tellUngrouped(group Group, ref capacity.PodRef) {
	if group == (Group{}) || group.InTree || m.gangs == nil || m.ungrouped[group] {
		return
	}
	if m.ungrouped == nil || len(m.ungrouped) >= maxUngrouped {
		m.ungrouped = map[Group]bool{}
	}
	m.ungrouped[group] = true
	m.events.Pod(ref, corev1.EventTypeWarning, EventGroupIgnored,
		fmt.Sprintf("no profile of the scheduler has the plugin Coscheduling: pods of group %s are planned and started one by one", group))
}

// pause keeps a gang that could not be placed from being planned again and again.
type pause struct {
	members int // waiting or placed, when it was tried
	tries   int
	until   time.Time
}

// Pauses of gangs: the first of these, doubled with each try.
const (
	firstPause = time.Second
	longPause  = time.Minute
)

// rest puts off gangs that were refused a moment ago. The members of a gang fail one by one, and each failure would have the whole gang planned
// again. One more member, or a change of pools or offerings, is a reason to plan at once.
func (m *Motor) rest(gangs map[Group]*gang) {
	if m.gangsAnew.Swap(false) {
		clear(m.pauses)
	}
	now := m.clock.Now()
	for group, p := range m.pauses {
		if now.Sub(p.until) > longPause {
			delete(m.pauses, group)
		}
	}
	for group, g := range gangs {
		p, ok := m.pauses[group]
		if !ok || !now.Before(p.until) || p.members != len(g.waiting)+g.placed {
			continue
		}
		m.reservations.Step(func(l *ledger.Ledger, now time.Time) {
			for _, pod := range g.waiting {
				l.Postpone(pod.UID, "the pod's group could not be placed as a whole and is tried again later", p.until, now)
			}
		})
		delete(gangs, group)
	}
}

// paused notes which gangs a plan refused.
func (m *Motor) paused(plan *capacity.Plan, gangs map[Group]*gang) {
	if len(gangs) == 0 {
		return
	}
	refused := map[types.UID]bool{}
	for _, r := range plan.Refused {
		for _, ref := range r.Pods {
			refused[ref.UID] = true
		}
	}
	for group, g := range gangs {
		if !slices.ContainsFunc(g.waiting, func(p *corev1.Pod) bool { return refused[p.UID] }) {
			delete(m.pauses, group)
			continue
		}
		p := m.pauses[group]
		p.members, p.until = len(g.waiting)+g.placed, m.clock.Now().Add(min(firstPause<<min(p.tries, 10), longPause))
		p.tries++
		m.pauses[group] = p
	}
}

// member queues an unscheduled member of a gang, unless it has been promised room.
func (m *Motor) member(g *gang, pod *corev1.Pod) {
	class, err := m.pending.classes.Class(pod)
	if err != nil {
		return // it can't be planned for; the others may be enough
	}
	state := m.reservations.join(refOf(pod), class)
	switch state {
	case ledger.Queued:
		g.waiting = append(g.waiting, pod)
	case ledger.Unknown:
	default:
		g.placed++
	}
}

// withGangs says of demand which of it belongs together.
func withGangs(demand []capacity.Demand, pod func(types.UID) *corev1.Pod, gangs map[Group]*gang) []capacity.Demand {
	if len(gangs) == 0 {
		return demand
	}
	var out []capacity.Demand
	for _, d := range demand {
		parts := map[Group]*capacity.Demand{}
		var order []Group
		for _, ref := range d.Pods {
			group := Group{}
			if p := pod(ref.UID); p != nil {
				group = groupOf(p)
			}
			if gangs[group] == nil {
				group = Group{}
			}
			if parts[group] == nil {
				part := d
				part.Pods = nil
				if g := gangs[group]; g != nil {
					part.Gang = &capacity.Gang{Key: group.String(), Missing: max(0, g.min-g.placed)}
				}
				parts[group] = &part
				order = append(order, group)
			}
			parts[group].Pods = append(parts[group].Pods, ref)
		}
		if len(d.Pods) == 0 {
			out = append(out, d)
		}
		for _, group := range order {
			out = append(out, *parts[group])
		}
	}
	return out
}

// endUnused ends machines that were launched for pods that got other room, or none, before their kubelets came.
func (m *Motor) endUnused(ctx context.Context, claims []string) {
	slices.Sort(claims)
	for _, claim := range claims {
		m.log(ctx).V(2).Info("Ending a machine that was launched for a plan that has fallen through", "nodeClaim", claim)
		m.spending.unused(claim, m.reservations.unplanned)
		m.background(ctx, func() { m.cancel(ctx, claim) })
	}
}
