package launch

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

// records keeps the spending guard's records, and tells others what the guard decides.
type records struct {
	claims       *claimCache
	cloud        Cloud
	cluster      Cluster
	reservations *reservations.Ledger
	pending      *pending.Pods
	spending     *Spending
	prices       *prices
	ownership    *Ownership
	triggers     *Triggers
	calls        *calls
}

const (
	// keepEvery is how often the guard's records are written, if they have changed.
	keepEvery = time.Second
	// askEvery is how often the API server is asked with a dry run whether it would accept a Node that it has refused.
	askEvery = time.Minute
	// countEvery is how often the cost of nodes is counted.
	countEvery = 15 * time.Second
)

// tendSpending gives verdicts, reports what has happened to breakers, and has the demand planned for that these concern.
func (re *records) tendSpending(ctx context.Context) {
	s := re.spending
	if s == nil {
		return
	}
	re.rejected()
	s.retryNow()
	s.settle(re.reservations)
	s.mu.Lock()
	notices := s.notices
	s.notices = nil
	s.mu.Unlock()
	s.tellBudgets()
	changed := false
	for _, n := range notices {
		re.tellBreaker(ctx, n)
		changed = changed || n.Kind == guard.Paused || n.Kind == guard.Closed || n.Kind == guard.Known
		if n.Kind == guard.Closed {
			re.forgive(n.Key)
		}
	}
	if changed {
		re.triggers.Changed() // refused pods are planned for again, or get the current reason
	}
	if len(s.due()) > 0 {
		re.triggers.replan()
	}
}

// rejected tells the guard which pods the filters have refused on nodes launched for them.
func (re *records) rejected() {
	if re.spending == nil {
		return
	}
	for _, r := range re.reservations.TakeRejected() {
		re.spending.rejectedByFilters(r.Claim, re.pending.Get(r.Pod.UID), r.Plugin, r.Reason, true, r.Beside)
	}
}

// catchUp has the guard give the verdicts that are due, before a plan is made.
func (re *records) catchUp() {
	re.rejected()
	re.spending.settle(re.reservations)
}

// forgive ends the back-off of the pods whose breaker has closed: the cause of their failed launches is over.
func (re *records) forgive(key guard.Key) {
	var uids []types.UID
	for _, pod := range re.pending.All() {
		if key.Machine() || key.PoolWide() || re.spending.workloadOf(pod) == key.Workload {
			uids = append(uids, pod.UID)
		}
	}
	re.reservations.Step(func(l *ledger.Ledger, now time.Time) { l.Forgive(uids, now) })
}

// tellBreaker records an event about a breaker on the object that it is about.
func (re *records) tellBreaker(ctx context.Context, n guard.Notice) {
	reason, kind := "", corev1.EventTypeWarning
	switch n.Kind {
	case guard.Opened:
		reason = "LaunchesPaused"
	case guard.Paused:
		reason = "ProbeFailed"
	case guard.Closed:
		reason, kind = "LaunchesResumed", corev1.EventTypeNormal
	default:
		return
	}
	klog.FromContext(ctx).Info("Spending guard", "event", string(n.Kind), "breaker", n.Key.String(), "message", n.Text)
	breakerEvents.WithLabelValues(string(n.Kind)).Inc()
	if n.Kind == guard.Closed {
		n.Text = "a machine for " + n.Key.String() + " has done work: launches are no longer paused"
	}
	if o := guard.OwnerOf(n.Key); o.Class != "" {
		re.spending.records.TellClass(o.Class, kind, reason, objects.OneLine(n.Text))
	} else {
		re.spending.records.TellPool(o.Pool, kind, reason, objects.OneLine(n.Text))
	}
}

// keepSpending writes the guard's records, retries refused Nodes and counts the cost, until ctx ends.
func (re *records) keepSpending(ctx context.Context) {
	s := re.spending
	if s == nil {
		return
	}
	tick := re.calls.clock.NewTicker(keepEvery)
	defer tick.Stop()
	var counted time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
		}
		if re.ownership.hold() != "" || re.claims.Problem() != "" {
			continue
		}
		re.keepRecords(ctx)
		re.keepServed(ctx)
		re.askAboutNodes(ctx)
		if now := re.calls.clock.Now(); now.Sub(counted) >= countEvery {
			counted = now
			re.countMoney()
		}
	}
}

// keepRecords writes the records that have changed. A failed write is repeated.
func (re *records) keepRecords(ctx context.Context) {
	s := re.spending
	s.mu.Lock()
	texts := map[guard.Owner]string{}
	delete(s.dirty, guard.Owner{}) // breakers of NodeClaims that name no pool: there is no object to write to
	for o := range s.dirty {
		texts[o] = s.guard.Encode(o, s.clock.Now())
	}
	clear(s.dirty)
	s.mu.Unlock()
	for o, text := range texts {
		if before, known := s.kept[o]; known && before == text {
			continue // the record of an earlier process is unknown here, and overwritten
		}
		if err := s.records.RecordGuard(ctx, o, text); err != nil {
			if ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Could not keep the spending guard's record; trying again", "nodePool", o.Pool, "nodeClass", o.Class)
			}
			s.mu.Lock()
			s.dirty[o] = true
			s.mu.Unlock()
			continue
		}
		s.kept[o] = text
	}
}

// keepServed records on claims that their instances have served.
func (re *records) keepServed(ctx context.Context) {
	s := re.spending
	s.mu.Lock()
	var names []string
	for name := range s.served {
		names = append(names, name)
	}
	clear(s.served)
	s.mu.Unlock()
	slices.Sort(names)
	re.calls.each(ctx, len(names), func(i int) {
		c := re.claims.Claim(names[i])
		if c == nil || c.Served || c.Deleting {
			return
		}
		if err := s.records.RecordServed(ctx, c); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("Could not record that a machine has done work; trying again", "nodeClaim", c.Name, "err", err)
			s.mu.Lock()
			s.served[c.Name] = true
			s.mu.Unlock()
		}
	})
}

// nodeRefused remembers a Node that the API server has refused, and gives the verdict on its instance.
func (s *Spending) nodeRefused(c *capacity.Claim, node *corev1.Node, why error) {
	if s == nil {
		return
	}
	s.fail(c.Name, guard.Fault{Machine: true, Refused: true, Cause: "Node refused", Message: "the API server refuses the Node: " + objects.OneLine(why.Error())})
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.guard.HoldsMachine(c.NodeClass, c.ImageID, c.Zone); b != nil && b.Refused {
		s.refused[b.Key] = node.DeepCopy()
	}
}

// askAboutNodes checks with a dry run whether Nodes that were refused would be accepted now. That costs no instance.
func (re *records) askAboutNodes(ctx context.Context) {
	s := re.spending
	now := s.clock.Now()
	s.mu.Lock()
	ask := map[guard.Key]*corev1.Node{}
	if now.Sub(s.asked) >= askEvery {
		s.asked = now
		for _, b := range s.guard.Breakers() {
			if node := s.refused[b.Key]; node != nil && b.Open() && b.Refused {
				ask[b.Key] = node
			}
		}
		maps.DeleteFunc(s.refused, func(k guard.Key, _ *corev1.Node) bool { return ask[k] == nil })
	}
	s.mu.Unlock()
	for k, node := range ask {
		// A Node of that name that is there is met after admission.
		if err := re.cluster.TryNode(ctx, node); err != nil && !apierrors.IsAlreadyExists(err) {
			klog.FromContext(ctx).V(3).Info("A Node like one that was refused is still refused", "node", node.Name, "err", err)
			continue
		}
		s.mu.Lock()
		s.guard.Accepted(k, now)
		delete(s.refused, k)
		delete(s.idle, k)
		s.dirty[guard.OwnerOf(k)] = true
		s.mu.Unlock()
	}
}

// countMoney sets the metrics of what nodes cost.
func (re *records) countMoney() {
	sum := re.prices.money()
	there, counted := map[string]bool{}, re.spending.counted
	for _, p := range re.claims.Pools(re.cloud.InstanceTypes) {
		there[p.Name] = true
	}
	for _, of := range []map[string]float64{sum.running, sum.inFlight} {
		for pool := range of {
			counted[pool] = true
		}
	}
	for pool := range counted {
		running, some := sum.running[pool]
		inFlight, more := sum.inFlight[pool]
		dollarsPerHour.WithLabelValues(pool, "running").Set(running)
		dollarsPerHour.WithLabelValues(pool, "in_flight").Set(inFlight)
		if !some && !more && !there[pool] {
			delete(counted, pool) // package poolmetrics deletes its series
		}
	}
	re.spending.mu.Lock()
	open := 0
	for _, b := range re.spending.guard.Breakers() {
		if b.Open() && !b.Trial {
			open++
		}
	}
	re.spending.mu.Unlock()
	breakersOpen.Set(float64(open))
}

func (s *Spending) hasServed(claim string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.guard.Served(claim)
}
