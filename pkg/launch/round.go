package launch

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/panics"
)

// round serves the demand of one burst.
//
//  1. Gather: queued pods and their unscheduled siblings.
//  2. View: snapshot, nodes in flight, reservations, pools, offerings, DaemonSets.
//  3. Plan.
//  4. Verify with the real filters; plan again without the refused placements as long as that helps, then refuse their pods.
//  5. Reserve what is to be bought from the pools' limits, and write the plan to the ledger: pods for existing nodes may go at
//     once.
//  6. Launch what has to be bought, in the background.
func (m *Launcher) round(ctx context.Context) {
	logger := klog.FromContext(ctx)
	start := m.clock.Now()
	changes := m.changes.Load()
	defer func() {
		// A change that arrived while the plan was made could not reopen pods that are refused only now.
		if m.changes.Load() != changes {
			m.reopen()
		}
	}()
	defer m.relief.begins()()
	m.readopt(ctx)
	m.rejected()
	m.spending.settle(m.reservations)
	waiting, gangs := m.gather(ctx)
	if len(waiting) == 0 {
		return
	}
	if why := m.hold(); why != "" {
		m.refuseHeld(ctx, uidsOf(waiting), why)
		return
	}
	if why := m.claims.Problem(); why != "" {
		m.troubled.Store(true)
		m.refuse(ctx, uidsOf(waiting), "nothing can be launched: "+why, true)
		return
	}
	v, plan, err := m.decide(ctx, waiting, gangs, nil)
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		logger.Error(err, "No plan could be made; nothing is launched, and demand is planned for later")
		m.refuse(ctx, uidsOf(waiting), err.Error(), true)
		return
	}
	if v, plan = m.affordable(ctx, v, plan, waiting, gangs); ctx.Err() != nil {
		return
	}
	claims := m.reserve(plan, len(v.inFlight), buying{})
	m.paused(plan, gangs)
	m.claims.ArchitecturesOpen(capacity.OpenArchitectures(plan))
	batches := m.book(ctx, v, plan, claims)
	logger.V(2).Info("Planned", "pods", len(waiting), "placed", len(plan.Placements), "newNodes", len(plan.Nodes),
		"dollarsPerHour", plan.CostPerHour, "lowerBound", plan.LowerBound, "took", m.clock.Since(start))
	m.relief.refused(v.Pools, plan.Refused)
	for _, r := range plan.Refused {
		m.refusal(ctx, r)
	}
	for _, w := range batches {
		m.wg.Go(func() { m.launch(ctx, w) })
	}
}

// decide takes a view of the cluster and makes a verified plan for the waiting pods. lift holds the breakers of the spending guard that are
// being probed.
func (m *Launcher) decide(ctx context.Context, waiting []ledger.Waiting, gangs map[Group]*gang, lift []guard.Key) (v *view, plan *capacity.Plan, err error) {
	err = panics.Catch(ctx, "planner", func() error {
		v, plan, err = m.decideFor(ctx, waiting, gangs, lift)
		return err
	})
	return v, plan, err
}

func (m *Launcher) decideFor(ctx context.Context, waiting []ledger.Waiting, gangs map[Group]*gang, lift []guard.Key) (*view, *capacity.Plan, error) {
	v, err := m.view(ctx, waiting)
	if err != nil {
		return nil, nil, fmt.Errorf("taking a view of the cluster: %w", err)
	}
	if len(lift) > 0 { // a probe is one instance, for pods that exist
		v.Demand = slices.DeleteFunc(v.Demand, func(d capacity.Demand) bool { return d.Owner != "" })
	}
	opts := m.cfg.Plan
	forbidden, held := m.spending.restrict(v, m.pending.Get, lift)
	opts.Forbidden = append(slices.Clone(opts.Forbidden), forbidden...)
	v.Demand = withGangs(v.Demand, m.pending.Get, gangs)
	d := Decider{Planner: m.planner, World: m.world, Nodes: m.nodes, Pod: m.pending.Get, Patience: DefaultPatience, Clock: m.clock, memory: m.refused}
	plan, err := d.Decide(ctx, &v.Scene, opts)
	if err != nil {
		return nil, nil, fmt.Errorf("the plan could not be verified: %w", err)
	}
	plan.Refused = append(plan.Refused, held...)
	byPriority(plan)
	return v, plan, nil
}

// Propose returns what the next round would decide about the current demand, without any effect: nothing is reserved, written or launched.
// It is for a Launcher that doesn't run.
func (m *Launcher) Propose(ctx context.Context) (*capacity.View, *capacity.Plan, error) {
	waiting, gangs := m.gather(ctx)
	v, plan, err := m.decide(ctx, waiting, gangs, nil)
	if err != nil {
		return nil, nil, err
	}
	return &v.View, plan, nil
}

// gather queues unscheduled siblings of queued pods: they are of the same class, so they fit nowhere either, and one plan for all of them
// buys better nodes than plans for each as the scheduler tries it. Members of their groups are queued, too.
func (m *Launcher) gather(ctx context.Context) ([]ledger.Waiting, map[Group]*gang) {
	var waiting []ledger.Waiting
	m.reservations.read(func(l *ledger.Ledger) { waiting = l.QueuedPods() })
	if m.renew(ctx, waiting) {
		m.reservations.read(func(l *ledger.Ledger) { waiting = l.QueuedPods() })
	}
	classes := map[capacity.ClassKey]bool{}
	for _, w := range waiting {
		classes[w.Class.Key] = true
	}
	if len(classes) == 0 {
		return nil, nil
	}
	for _, pod := range m.pending.all() {
		if !m.reservations.free(pod.UID) {
			continue
		}
		if c, err := m.pending.classes.Class(pod); err == nil && classes[c.Key] {
			m.reservations.submitFree(refOf(pod), c)
		}
	}
	m.reservations.read(func(l *ledger.Ledger) { waiting = l.QueuedPods() })
	gangs := m.gangsOf(ctx, m.withoutNominees(m.withoutOthers(ctx, waiting)))
	m.reservations.read(func(l *ledger.Ledger) { waiting = l.QueuedPods() })
	return waiting, gangs
}

// renew computes the classes of pods anew whose node was lost: without a scheduling cycle of theirs they may need something else now, such
// as the zone in which their volume was bound meanwhile. It reports whether it changed the ledger.
func (m *Launcher) renew(ctx context.Context, waiting []ledger.Waiting) bool {
	fresh := map[types.UID]*capacity.Class{}
	var lost []types.UID
	for _, w := range waiting {
		pod := m.pending.Get(w.Ref.UID)
		if !w.Stale || pod == nil {
			continue
		}
		if c, err := m.pending.classes.Class(pod); err != nil {
			m.log(ctx).V(2).Info("A pod can't be planned for any more", "pod", w.Ref.Namespace+"/"+w.Ref.Name, "err", err)
			lost = append(lost, w.Ref.UID)
		} else {
			fresh[w.Ref.UID] = c
		}
	}
	if len(lost)+len(fresh) == 0 {
		return false
	}
	m.reservations.Step(func(l *ledger.Ledger, _ time.Time) {
		l.Renew(fresh)
		l.Dismiss(lost)
	})
	return true
}

// nomineePatience is how long the victims of a preemption may take to end before a node is launched for the pod after all.
const nomineePatience = 30 * time.Second

// preemptionPatience is how long it may take until the victims begin to end. The pod is nominated before they are deleted, in the
// background, and the API server may throttle that.
const preemptionPatience = 15 * time.Second

// nominee is a pod that waits until the victims of a preemption have ended. since is when it was first seen nominated or, once ending is
// set, when its victims were first seen terminating.
type nominee struct {
	node   string
	since  time.Time
	ending bool
}

// withoutNominees leaves out pods that wait for victims of preemption. Their capacity is not free yet, so a plan would buy it a second
// time. It no longer waits for victims that don't end in time (a dead kubelet, a finalizer), nor once they have ended: if the scheduler
// hasn't used their capacity, it was not enough.
func (m *Launcher) withoutNominees(waiting []ledger.Waiting) []ledger.Waiting {
	for uid := range m.nominees {
		if m.pending.Get(uid) == nil {
			delete(m.nominees, uid)
		}
	}
	now := m.reservations.clock.Now()
	return slices.DeleteFunc(waiting, func(w ledger.Waiting) bool {
		pod := m.pending.Get(w.Ref.UID)
		if pod == nil || pod.Status.NominatedNodeName == "" {
			delete(m.nominees, w.Ref.UID)
			return false
		}
		first, known := m.nominees[w.Ref.UID]
		ending := m.pending.makesRoom(pod.Status.NominatedNodeName)
		if !known || first.node != pod.Status.NominatedNodeName || ending && !first.ending {
			first = nominee{pod.Status.NominatedNodeName, now, ending}
			m.nominees[w.Ref.UID] = first
		}
		until := first.since.Add(nomineePatience)
		if !first.ending {
			until = first.since.Add(preemptionPatience)
		}
		if first.ending && !ending || !now.Before(until) {
			return false
		}
		m.reservations.Step(func(l *ledger.Ledger, now time.Time) {
			l.Postpone(w.Ref.UID, "preemption is making room for the pod on node "+pod.Status.NominatedNodeName, until, now)
		})
		return true
	})
}

func uidsOf(waiting []ledger.Waiting) []types.UID {
	out := make([]types.UID, 0, len(waiting))
	for _, w := range waiting {
		out = append(out, w.Ref.UID)
	}
	return out
}

func (m *Launcher) refuse(ctx context.Context, uids []types.UID, why string, retryable bool) {
	m.refuseFor(ctx, uids, why, retryable, false)
}

func (m *Launcher) refuseFor(ctx context.Context, uids []types.UID, why string, retryable, soon bool) {
	why = oneLine(why) // it becomes the pods' condition, too
	var news []capacity.PodRef
	m.reservations.Step(func(l *ledger.Ledger, now time.Time) {
		if news = l.Refuse(uids, why, retryable, now); soon {
			l.Await(uids)
		}
	})
	for _, ref := range news {
		if m.pending.Get(ref.UID) != nil {
			m.events.Pod(ref, corev1.EventTypeWarning, "FailedProvisioning", why)
		}
	}
	klog.FromContext(ctx).V(2).Info("Refused demand", "pods", len(uids), "news", len(news), "reason", why, "retryable", retryable)
}

func (m *Launcher) refusal(ctx context.Context, r capacity.Refusal) {
	uids := make([]types.UID, 0, len(r.Pods))
	for _, p := range r.Pods {
		uids = append(uids, p.UID)
	}
	m.refuseFor(ctx, uids, r.Message, r.Retryable, r.Soon)
}
