package provisioning

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

// Gatherer collects the demand of a round. It belongs to the planner's goroutine.
type Gatherer struct {
	reservations  *reservations.Ledger
	pending       *pending.Pods
	namespaces    *Namespaces
	gangs         *gangPlans
	nominees      *pending.Nominees
	unprovisioned func(namespace, request string) bool
	named         capacity.LabelsNamed // the labels that the classes of queued pods took into account at the last Gather
}

// OnUnprovisioned sets a func that reports whether a ProvisioningRequest is known and has no capacity yet. Call it before anything runs.
func (g *Gatherer) OnUnprovisioned(f func(namespace, request string) bool) { g.unprovisioned = f }

// requestRetry is how long pods wait before they are planned for again because the ProvisioningRequest that they name has no capacity yet. They get
// its capacity as soon as it is booked, so this is for requests that fail or are deleted.
const requestRetry = 30 * time.Second

// withoutEarly leaves out pods that were created before there is capacity for the ProvisioningRequest that they name: a plan for them would buy
// it a second time.
func (g *Gatherer) withoutEarly(waiting []ledger.Waiting) []ledger.Waiting {
	return slices.DeleteFunc(waiting, func(w ledger.Waiting) bool {
		if w.Class.Request == "" || g.unprovisioned == nil || !g.unprovisioned(w.Class.Namespace, w.Class.Request) {
			return false
		}
		g.reservations.Step(func(l *ledger.Ledger, now time.Time) {
			l.PostponeEarly(w.Ref.UID, fmt.Sprintf("ProvisioningRequest %q, which the pod names, has no capacity yet", w.Class.Request), now.Add(requestRetry), now)
		})
		return true
	})
}

// Gather queues unscheduled siblings of queued pods: they are of the same class, so they fit nowhere either, and one plan for all of them
// buys better nodes than plans for each as the scheduler tries it. Members of their groups are queued, too.
func (g *Gatherer) Gather(ctx context.Context) ([]ledger.Waiting, map[pending.Group]*Gang) {
	if named := g.pending.Classes.Named(); named != g.named {
		g.named = named
		g.reservations.Step(func(l *ledger.Ledger, _ time.Time) { l.Outdate() })
	}
	waiting := g.queued()
	if g.renew(ctx, waiting) {
		waiting = g.queued()
	}
	classes := map[capacity.ClassKey]bool{}
	for _, w := range waiting {
		classes[w.Class.Key] = true
	}
	if len(classes) == 0 {
		return nil, nil
	}
	for _, pod := range g.pending.All() {
		if !g.reservations.Free(pod.UID) {
			continue
		}
		if c, err := g.pending.Classes.Class(pod); err == nil && classes[c.Key] {
			g.reservations.SubmitUnknown(capacity.RefOf(pod), c)
		}
	}
	waiting = g.queued()
	gangs := g.gangs.gangsOf(ctx, g.withoutNominees(g.withoutEarly(g.namespaces.withoutOthers(ctx, waiting))))
	return g.queued(), gangs
}

// queued returns the pods that wait for a plan, in order. With many pods, reading all of them and sorting takes too long to hold the ledger's lock
// meanwhile. Those that come in between are planned for in the next round.
func (g *Gatherer) queued() (out []ledger.Waiting) {
	var all ledger.Queue
	g.reservations.Read(func(l ledger.Reader) { all = l.Queue() })
	for some := range slices.Chunk(all, 2_000) {
		g.reservations.Read(func(l ledger.Reader) { out = append(out, l.QueuedPods(some)...) })
	}
	return ledger.InOrder(out)
}

// renew computes the classes of stale pods anew: a pod's node was lost, and without a scheduling cycle since it may need something else now, such
// as the zone in which its volume was bound meanwhile; or what a class is has changed (Outdate). It reports whether it changed the ledger.
func (g *Gatherer) renew(ctx context.Context, waiting []ledger.Waiting) bool {
	fresh := map[types.UID]*capacity.Class{}
	var lost []types.UID
	changed := false
	flush := func() {
		changed = true
		g.reservations.Step(func(l *ledger.Ledger, _ time.Time) {
			l.Renew(fresh)
			l.Dismiss(lost)
		})
		clear(fresh)
		lost = lost[:0]
	}
	for _, w := range waiting {
		pod := g.pending.Get(w.Ref.UID)
		if !w.Stale || pod == nil {
			continue
		}
		if c, err := g.pending.Classes.Class(pod); err != nil {
			klog.FromContext(ctx).V(2).Info("A pod can't be planned for any more", "pod", w.Ref.Namespace+"/"+w.Ref.Name, "err", err)
			lost = append(lost, w.Ref.UID)
		} else {
			fresh[w.Ref.UID] = c
		}
		if len(fresh)+len(lost) == renewAtOnce {
			flush()
		}
	}
	if len(fresh)+len(lost) > 0 {
		flush()
	}
	return changed
}

// renewAtOnce bounds for how many pods the ledger's lock is held: the classes of all of them may have changed (see ledger.Ledger.Outdate).
const renewAtOnce = 2000

// withoutNominees leaves out pods that wait for victims of preemption. Their capacity is not free yet, so a plan would buy it a second time.
func (g *Gatherer) withoutNominees(waiting []ledger.Waiting) []ledger.Waiting {
	g.nominees.Tidy()
	now := g.reservations.Now()
	return slices.DeleteFunc(waiting, func(w ledger.Waiting) bool {
		node, until := g.nominees.Waits(w.Ref.UID, now)
		if node == "" {
			return false
		}
		g.reservations.Step(func(l *ledger.Ledger, now time.Time) {
			l.Postpone(w.Ref.UID, "preemption is making room for the pod on node "+node, until, now)
		})
		return true
	})
}

// UIDsOf returns the UIDs of waiting pods.
func UIDsOf(waiting []ledger.Waiting) []types.UID {
	out := make([]types.UID, 0, len(waiting))
	for _, w := range waiting {
		out = append(out, w.Ref.UID)
	}
	return out
}
