package provisioning

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

// gangPlans knows the gangs of waiting pods. It belongs to the planner's goroutine.
type gangPlans struct {
	plugin       Gangs // nil: no plugin handles groups
	reservations *reservations.Ledger
	pending      *pending.Pods
	events       Recorder
	refusals     *Refusals
	triggers     *Triggers
	clock        clock.PassiveClock
	pauses       map[pending.Group]pause // the back-off of gangs that could not be placed
	ungrouped    map[pending.Group]bool  // groups that no plugin handles and for which an event on one of their pods says so
}

// Gangs returns from memory how many pods of a group must be placed for any of them to run. ok is false when no plugin of this scheduler
// handles groups of the kind; min is 0 when the group isn't known.
type Gangs interface {
	Min(group pending.Group) (min int, ok bool)
}

// Gang is a group as a plan needs it.
type Gang struct {
	min     int           // how many of its pods must be placed for any of them to run
	waiting []*corev1.Pod // its pods that are to be planned for
	placed  int           // number of its other pods that have a node or a reservation
}

// gangsOf returns the gangs of the waiting pods. It collects their members, whatever their class and whether or not they were refused
// before: one more may make the group complete. Pods of groups that don't exist are refused.
func (ga *gangPlans) gangsOf(ctx context.Context, waiting []ledger.Waiting) map[pending.Group]*Gang {
	out := map[pending.Group]*Gang{}
	unknown := map[pending.Group][]types.UID{}
	for _, w := range waiting {
		pod := ga.pending.Get(w.Ref.UID)
		if pod == nil {
			continue
		}
		group := pending.GroupOf(pod)
		min, ok := 0, false
		if group != (pending.Group{}) && ga.plugin != nil {
			min, ok = ga.plugin.Min(group)
		}
		switch {
		case !ok:
			ga.tellUngrouped(group, w.Ref)
		case min == 0:
			unknown[group] = append(unknown[group], pod.UID)
		case out[group] == nil:
			out[group] = &Gang{min: min, placed: ga.pending.BoundOf(group)}
		}
	}
	for group, uids := range unknown {
		ga.refusals.Refuse(ctx, uids, fmt.Sprintf("the pod's group %s does not exist", group), true)
	}
	if len(out) == 0 {
		return nil
	}
	for _, pod := range ga.pending.All() {
		if g := out[pending.GroupOf(pod)]; g != nil {
			ga.member(g, pod)
		}
	}
	ga.rest(out)
	return out
}

// EventGroupIgnored is the reason of the event on a pod that asks for a group, where no plugin handles groups.
const EventGroupIgnored = "GroupIgnored"

// maxUngrouped caps how many groups are remembered as reported.
const maxUngrouped = 1000

// tellUngrouped records an event on one pod of each group that is ignored because no plugin handles it.
func (ga *gangPlans) tellUngrouped(group pending.Group, ref capacity.PodRef) {
	if group == (pending.Group{}) || group.InTree || ga.plugin == nil || ga.ungrouped[group] {
		return
	}
	if ga.ungrouped == nil || len(ga.ungrouped) >= maxUngrouped {
		ga.ungrouped = map[pending.Group]bool{}
	}
	ga.ungrouped[group] = true
	ga.events.Pod(ref, corev1.EventTypeWarning, EventGroupIgnored,
		fmt.Sprintf("no profile of the scheduler has the plugin Coscheduling: pods of group %s are planned and started one by one", group))
}

// pause is the back-off of a gang that could not be placed.
type pause struct {
	members int // number of pods that waited or were placed at the last try
	tries   int // number of tries in a row that did not place it
	until   time.Time
}

// The back-off of a gang begins with firstPause and doubles with each try, up to longPause.
const (
	firstPause = time.Second
	longPause  = time.Minute
)

// rest takes out gangs that are in back-off after they were refused. The members of a gang fail one by one, and without back-off each
// failure would have the whole gang planned again. One more member, or a change of pools or offerings, ends the back-off.
func (ga *gangPlans) rest(gangs map[pending.Group]*Gang) {
	if ga.triggers.gangsAnew.Swap(false) {
		clear(ga.pauses)
	}
	now := ga.clock.Now()
	for group, p := range ga.pauses {
		if now.Sub(p.until) > longPause {
			delete(ga.pauses, group)
		}
	}
	for group, g := range gangs {
		p, ok := ga.pauses[group]
		if !ok || !now.Before(p.until) || p.members != len(g.waiting)+g.placed {
			continue
		}
		ga.reservations.Step(func(l *ledger.Ledger, now time.Time) {
			for _, pod := range g.waiting {
				l.Postpone(pod.UID, "the pod's group could not be placed as a whole and is tried again later", p.until, now)
			}
		})
		delete(gangs, group)
	}
}

// paused starts or ends the back-off of gangs, by what the plan refused.
func (ga *gangPlans) paused(plan *capacity.Plan, gangs map[pending.Group]*Gang) {
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
			delete(ga.pauses, group)
			continue
		}
		p := ga.pauses[group]
		p.members, p.until = len(g.waiting)+g.placed, ga.clock.Now().Add(min(firstPause<<min(p.tries, 10), longPause))
		p.tries++
		ga.pauses[group] = p
	}
}

// member adds an unscheduled member to the gang: to those that are planned for, or, if it has a reservation, to those that are placed.
func (ga *gangPlans) member(g *Gang, pod *corev1.Pod) {
	class, err := ga.pending.Classes.Class(pod)
	if err != nil {
		return // it can't be planned for; the others may be enough
	}
	state := ga.reservations.Join(capacity.RefOf(pod), class)
	switch state {
	case ledger.Queued:
		g.waiting = append(g.waiting, pod)
	case ledger.Unknown:
	default:
		g.placed++
	}
}

// withGangs splits demand by gang and says how many pods each gang needs.
func withGangs(demand []capacity.Demand, pod func(types.UID) *corev1.Pod, gangs map[pending.Group]*Gang) []capacity.Demand {
	if len(gangs) == 0 {
		return demand
	}
	var out []capacity.Demand
	for _, d := range demand {
		parts := map[pending.Group]*capacity.Demand{}
		var order []pending.Group
		for _, ref := range d.Pods {
			group := pending.Group{}
			if p := pod(ref.UID); p != nil {
				group = pending.GroupOf(p)
			}
			if gangs[group] == nil {
				group = pending.Group{}
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
