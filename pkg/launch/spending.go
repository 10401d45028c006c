package launch

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
)

const (
	// servedAfter is how long a pod has to be Running, or a node that was bought for no pod initialized, for its machine to
	// have done work.
	servedAfter = 2 * time.Minute
	// thrownWithin: a pod that is thrown off a machine so soon after that was bought counts against its workload.
	thrownWithin = time.Hour
	// movedFor is how long it is of interest that a workload's pods have moved: longer than a machine waits to be tried.
	movedFor = time.Hour
	// mostRaces is how many rounds whose pods the filters refused in the end, while pods of the same workload moved, are
	// forgiven within an hour: where these are changes what a spread or an affinity allows.
	mostRaces = 2
)

// Records is where the guard's state outlives the process: on the objects it is about.
type Records interface {
	GuardRecords(ctx context.Context) (map[guard.Owner]string, error)
	RecordGuard(ctx context.Context, o guard.Owner, text string) error
	// RecordServed writes on a claim, once, that its machine has done work.
	RecordServed(ctx context.Context, c *capacity.Claim) error
	// TellPool and TellClass write an event on the object that a breaker is about.
	TellPool(pool, eventType, reason, note string)
	TellClass(class, eventType, reason, note string)
	// BudgetReached says in a condition of a pool which budget keeps it from growing; empty: none any more. It returns at once.
	BudgetReached(pool, why string)
}

// SpendingConfig are the limits of spending.
type SpendingConfig struct {
	// NewImageNodes is how many machines of an image none of which was ever initialized may be bought before the first one is, or a
	// tenth of the plan if that is more; 0: any number.
	NewImageNodes int
	Budget        Budget
}

// Spending is the guard on spending: it watches what becomes of every machine that is bought, keeps the breakers, and is asked
// before anything is bought, whoever buys. A nil Spending has nothing to say.
//
// Lock order: mu is taken after all other locks of this package but those of Pending and Classes, which are taken under it and call
// nobody while they are held. Beside these only informers' stores are read under it.
type Spending struct {
	cfg     SpendingConfig
	clock   clock.PassiveClock
	records Records
	owners  *Owners
	pending *Pending
	classes *Classes
	// taints are the NoExecute taints of a Node, podsOn the pods bound to a name; from memory.
	taints func(node string) []corev1.Taint
	podsOn func(node string) []*corev1.Pod

	mu       sync.Mutex
	guard    *guard.Guard
	machines map[string]*watched    // by claim
	byNode   map[string]*watched    // by Node name
	byPod    map[types.UID]*watched // by the pods they were bought for, until these are bound
	dirty    map[guard.Owner]bool
	served   map[string]bool // claims on which it is still to be written
	refused  map[guard.Key]*corev1.Node
	idle     map[guard.Key]time.Time // breakers that nobody waited for, and when that was seen
	notices  []guard.Notice
	asked    time.Time // when refused Nodes were last tried
	launches []time.Time
	// budgets that are reached, by the pools they keep from growing; reached is what these have been told.
	budgets map[string]reached
	reached map[string]string
	// workloads are what was last seen of each, later those whose retry annotation is to be heard of later.
	workloads map[guard.Workload]workloadState
	later     map[guard.Workload]retryLater
	// moved is when pods of a workload last came to a node or left one.
	moved map[guard.Workload]time.Time
	// kept and counted belong to the goroutine of keepSpending.
	kept    map[guard.Owner]string
	counted map[string]bool
}

// watched is a machine while it is watched.
type watched struct {
	claim, uid, pool, class string
	node                    string
	at                      time.Time
	price                   float64 // of the dearest it may become, in dollars per hour
	workloads               []guard.Workload
	probes                  []guard.Key
	// wanted are the pods it was bought for, as far as they are known by name.
	wanted map[types.UID]guard.Workload
	// pods are those on it that are no daemons; nil: they are of no interest any more.
	pods map[types.UID]*lodger
	// thrown are faults of pods that were thrown off it.
	thrown []guard.Fault
	// deserted is since when no pod that it was bought for is there or is to come.
	deserted    time.Time
	initialized time.Time
	steady      bool
	launched    bool // as far as is known
	// end is why it ends, as those who end it have said; neutral: that is nobody's failure.
	end     *guard.Fault
	neutral bool
	over    bool
}

// lodger is a pod on a machine.
type lodger struct {
	workload guard.Workload
	running  time.Time // since when it is Running; zero: it isn't
	counted  bool      // as work done
	left     bool      // it is over, or on its way out: it keeps nothing there any more
}

// NewSpending returns a guard that knows nothing yet.
func NewSpending(cfg SpendingConfig, c clock.PassiveClock, records Records, owners *Owners, pending *Pending, taints func(node string) []corev1.Taint, podsOn func(node string) []*corev1.Pod) *Spending {
	return &Spending{
		cfg: cfg, clock: c, records: records, owners: owners, pending: pending, classes: pending.classes, taints: taints, podsOn: podsOn, guard: guard.New(),
		machines: map[string]*watched{}, byNode: map[string]*watched{}, byPod: map[types.UID]*watched{}, dirty: map[guard.Owner]bool{}, served: map[string]bool{},
		refused: map[guard.Key]*corev1.Node{}, idle: map[guard.Key]time.Time{}, budgets: map[string]reached{}, reached: map[string]string{},
		workloads: map[guard.Workload]workloadState{}, later: map[guard.Workload]retryLater{}, moved: map[guard.Workload]time.Time{}, kept: map[guard.Owner]string{}, counted: map[string]bool{},
	}
}

// restore takes in what an earlier process has kept, and the machines that are there.
func (s *Spending) restore(ctx context.Context, claims []*capacity.Claim) error {
	if s == nil {
		return nil
	}
	records, err := s.records.GuardRecords(ctx)
	if err != nil {
		return err
	}
	now := s.clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for o, text := range records {
		if err := s.guard.Restore(o, text); err != nil {
			klog.FromContext(ctx).Error(err, "The spending guard's record can't be read; it begins anew", "nodePool", o.Pool, "nodeClass", o.Class)
			s.dirty[o] = true
		}
	}
	for _, c := range claims {
		if c.Initialized && c.ImageID != "" {
			s.guard.Know(c.NodeClass, c.ImageID)
		}
		if c.Purchase == nil || !c.Launched && c.Wave == nil {
			continue
		}
		b := s.buyLocked(c, boughtAt(c), nil, nil)
		s.wantLocked(b, s.promisedLocked(c))
		s.launchedLocked(b.at)
		if c.Served {
			s.guard.Serve(c.Name, guard.NoPod, c.ServedAt) // for whom is not on record: it closes nothing
		}
		if c.NodeName != "" {
			s.nameLocked(b, c.NodeName)
		}
		s.observeLocked(b, c, now)
		if c.Deleting { // what ended it was said to a process before this one
			b.neutral = true
		}
	}
	s.guard.Recovered(now)
	return nil
}

// buy takes down a machine that is about to be bought, and records on the claim what for.
func (s *Spending) buy(c *capacity.Claim, offers []capacity.NodeOffer, wanted map[types.UID]guard.Workload) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// A NodeClaim of a user may have been held for hours: its life begins now.
	now := s.clock.Now()
	c.Purchase.When = now.Unix()
	b := s.buyLocked(c, now, imagesOf(offers), zonesOf(offers))
	b.price = dearestOf(offers)
	s.wantLocked(b, wanted)
	s.launchedLocked(b.at)
}

func (s *Spending) wantLocked(b *watched, pods map[types.UID]guard.Workload) {
	b.wanted = pods
	for uid := range pods {
		s.byPod[uid] = b
	}
}

func (s *Spending) buyLocked(c *capacity.Claim, at time.Time, images, zones []string) *watched {
	if b := s.machines[c.Name]; b != nil {
		return b
	}
	b := &watched{claim: c.Name, uid: c.UID, pool: c.Pool, class: c.NodeClass, at: at, workloads: c.Purchase.Workloads, probes: c.Purchase.Probes, pods: map[types.UID]*lodger{}}
	if c.ImageID != "" {
		images = []string{c.ImageID}
	}
	if c.Zone != "" {
		zones = []string{c.Zone}
	}
	s.machines[c.Name] = b
	s.guard.Buy(c.Name, guard.Bought{Purchase: *c.Purchase, Pool: c.Pool, Class: c.NodeClass, Images: images, Zones: zones, At: b.at})
	if c.Launched {
		s.guard.Locate(c.Name, c.ImageID, c.Zone)
	}
	for _, k := range c.Purchase.Probes {
		s.dirty[guard.OwnerOf(k)] = true
	}
	return b
}

// boughtAt is when a claim's machine was bought.
func boughtAt(c *capacity.Claim) time.Time {
	if c.Purchase != nil && c.Purchase.When != 0 {
		return time.Unix(c.Purchase.When, 0)
	}
	return c.CreatedAt
}

// promisedLocked are the waiting pods that an earlier process has planned for a claim, as it has recorded them.
func (s *Spending) promisedLocked(c *capacity.Claim) map[types.UID]guard.Workload {
	out := map[types.UID]guard.Workload{}
	for _, slot := range c.Slots {
		if pod := s.pending.Get(slot.Pod.UID); pod != nil {
			out[slot.Pod.UID] = s.workloadOf(pod)
		}
	}
	return out
}

// observe takes in what has become of a claim.
func (s *Spending) observe(c *capacity.Claim) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.machines[c.Name]; b != nil && (b.uid == "" || b.uid == c.UID) {
		b.uid = c.UID
		s.observeLocked(b, c, s.clock.Now())
	}
}

func (s *Spending) observeLocked(b *watched, c *capacity.Claim, now time.Time) {
	if c.Launched {
		b.launched = true
		s.guard.Locate(b.claim, c.ImageID, c.Zone)
	}
	if c.NodeName != "" && b.node != c.NodeName {
		s.nameLocked(b, c.NodeName)
	}
	if c.Initialized && b.initialized.IsZero() {
		b.initialized = c.InitializedAt
		if b.initialized.IsZero() {
			b.initialized = now
		}
		s.guard.Initialized(b.claim, b.initialized)
		s.initializedAfterAllLocked(b, now)
		s.noticeLocked()
	}
}

// initializedAfterAllLocked has breakers probed that are open because nodes like this one did not become initialized: what kept
// them may be over.
func (s *Spending) initializedAfterAllLocked(b *watched, now time.Time) {
	waited := map[guard.Key]bool{}
	for _, o := range s.guard.Breakers() {
		if o.Open() && (o.Key.Pool == b.pool || o.Key.Class == b.class) && guard.Uninitialized(o.Cause) && b.at.Before(o.Next) {
			waited[o.Key] = true
		}
	}
	if len(waited) > 0 {
		s.guard.Changed(func(k guard.Key) bool { return waited[k] }, false, now)
	}
}

// named says which Node is the claim's.
func (s *Spending) named(claim, node string) {
	if s == nil || node == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.machines[claim]; b != nil && b.node != node {
		s.nameLocked(b, node)
	}
}

func (s *Spending) nameLocked(b *watched, node string) {
	if s.byNode[b.node] == b {
		delete(s.byNode, b.node)
	}
	b.node = node
	s.byNode[node] = b
	for _, pod := range s.podsOn(node) {
		s.lodgeLocked(b, pod)
	}
}

// Ending says why a claim is about to be ended. fault nil: for nobody's failure.
func (s *Spending) Ending(claim string, fault *guard.Fault) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.machines[claim]; b != nil && b.end == nil && !b.neutral {
		b.end, b.neutral = fault, fault == nil
	}
}

// Decided says that a claim's machine has had its verdict, or is none that the guard watches.
func (s *Spending) Decided(claim string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.guard.Decided(claim)
}

// Emptied says that a claim is about to be ended because it has no pods. That is a failure if pods that it was bought for still
// wait.
func (s *Spending) Emptied(claim string) {
	if s != nil {
		s.givenBack(claim, func(uid types.UID) bool { return s.pending.Get(uid) != nil }, 0)
	}
}

// unused says that a claim is about to be ended because the plan that it was launched for has fallen through. Where its pods wait for
// others of their gang that can't be had, the same would be bought again and again: that is forgiven as often as a race is. waits says
// of a pod that it has not got other room.
func (s *Spending) unused(claim string, waits func(types.UID) bool) {
	if s != nil {
		s.givenBack(claim, waits, mostRaces)
	}
}

func (s *Spending) givenBack(claim string, waits func(types.UID) bool, chance int) {
	s.mu.Lock()
	var wanted map[types.UID]guard.Workload
	b := s.machines[claim]
	thrown := false
	if b != nil {
		wanted, thrown = b.wanted, len(b.thrown) > 0
	}
	s.mu.Unlock()
	var waiting []guard.Workload
	for uid, w := range wanted {
		if waits(uid) {
			waiting = addWorkload(waiting, w)
		}
	}
	moved := false
	if b != nil {
		s.mu.Lock()
		moved = s.movedLocked(b, waiting)
		s.mu.Unlock()
	}
	switch {
	case moved && len(b.probes) > 0: // it says nothing; three in a row of that count as one that failed
		s.Ending(claim, nil)
	case moved:
		chance = mostRaces
		fallthrough
	case len(waiting) > 0:
		s.Ending(claim, &guard.Fault{Cause: causeGivenBack, Message: "its pods did not get there", Workloads: waiting, Chance: chance})
	case !thrown: // those that were thrown off it say why it has failed
		s.Ending(claim, nil)
	}
}

// over says that a claim has ended or is about to, and gives the verdict. launched: there was a machine.
func (s *Spending) overClaim(claim string, launched bool) {
	if s == nil {
		return
	}
	s.settle(nil)
	now := s.clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.machines[claim]
	if b == nil || b.over {
		return
	}
	b.over = true
	switch {
	case !launched || b.neutral:
	case b.end != nil:
		s.failLocked(b, *b.end, now)
	case len(b.thrown) > 0:
		s.failLocked(b, mergeFaults(b.thrown), now)
	case !b.launched: // it has gone before anybody has seen a machine: of insufficient capacity, say
	default:
		s.failLocked(b, *guard.Deleted("it was deleted before it had done work, as another had been within the hour"), now)
	}
	s.guard.End(claim, now)
	s.forgetLocked(b)
	s.noticeLocked()
}

// fail gives the verdict on a machine that failed.
func (s *Spending) fail(claim string, f guard.Fault) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.machines[claim]; b != nil {
		s.failLocked(b, f, s.clock.Now())
		s.noticeLocked()
	}
}

func (s *Spending) failLocked(b *watched, f guard.Fault, now time.Time) {
	s.guard.Fail(b.claim, f, now)
}

func (s *Spending) serveLocked(b *watched, w guard.Workload, now time.Time, tell bool) {
	if !s.guard.Served(b.claim) && tell {
		s.served[b.claim] = true
	}
	s.guard.Serve(b.claim, w, now)
}

// mergeFaults is one fault of those of several pods. The first says why.
func mergeFaults(all []guard.Fault) guard.Fault {
	f := all[0]
	f.Workloads = slices.Clone(f.Workloads)
	for _, o := range all[1:] {
		f.Chance = min(f.Chance, o.Chance)
		for _, w := range o.Workloads {
			f.Workloads = addWorkload(f.Workloads, w)
		}
	}
	return f
}

// desertedFor is how long no pod that a machine was bought for is there, or is to come, before there will be no verdict on it.
const desertedFor = time.Minute

// settle gives the verdicts that are due. desk says where room is kept for pods; nil: only work that was done is looked at.
func (s *Spending) settle(desk *Desk) {
	if s == nil {
		return
	}
	now := s.clock.Now()
	var left []string
	s.mu.Lock()
	for name, b := range s.machines {
		s.workedLocked(b, now)
		if desk != nil && !s.guard.Decided(name) && !b.lodges() {
			left = append(left, name)
		}
	}
	s.mu.Unlock()
	keeps := map[string]bool{}
	if len(left) > 0 {
		keeps = desk.keeps(left)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range left {
		if b := s.machines[name]; b != nil && !b.lodges() && !keeps[name] {
			s.leftLocked(b, now)
		} else if b != nil {
			b.deserted = time.Time{}
		}
	}
	maps.DeleteFunc(s.moved, func(_ guard.Workload, at time.Time) bool { return now.Sub(at) >= movedFor })
	s.guard.Tick(now)
	s.noticeLocked()
}

// lodges says that a pod that the machine was bought for is on it, or that it was bought for none.
func (b *watched) lodges() bool {
	if _, none := podless(b.workloads); none {
		return true
	}
	for _, l := range b.pods {
		if !l.left && slices.Contains(b.workloads, l.workload) {
			return true
		}
	}
	return false
}

// workedLocked looks whether the machine has done work.
func (s *Spending) workedLocked(b *watched, now time.Time) {
	if b.pods == nil {
		return
	}
	for _, l := range b.pods {
		s.ranLocked(b, l, now)
	}
	if s.guard.Served(b.claim) && b.steady && now.Sub(b.at) >= thrownWithin {
		b.pods = nil // nothing that happens there is of interest any more
	}
	if b.initialized.IsZero() || b.steady || now.Sub(b.initialized) < servedAfter {
		return
	}
	b.steady = true
	s.guard.Steady(b.claim, now)
	if w, none := podless(b.workloads); none {
		s.serveLocked(b, w, now, true)
	}
}

// ranLocked counts a pod that has been Running for long enough.
func (s *Spending) ranLocked(b *watched, l *lodger, now time.Time) {
	if !l.left && !l.counted && !l.running.IsZero() && now.Sub(l.running) >= servedAfter {
		l.counted = true
		s.serveLocked(b, l.workload, now, true)
	}
}

// leftLocked looks at a machine on which no pod is, or is to come, that it was bought for. If some were thrown off it, it has
// failed. If not there will be no verdict in the end, unless pods that it was bought for still wait, and go elsewhere.
func (s *Spending) leftLocked(b *watched, now time.Time) {
	switch {
	case len(b.thrown) > 0:
		s.failLocked(b, mergeFaults(b.thrown), now)
	case b.deserted.IsZero():
		b.deserted = now
	case now.Sub(b.deserted) < desertedFor || len(b.probes) == 0:
	case s.waitsLocked(b.wanted) && !s.movedLocked(b, b.workloads):
		// Whatever keeps its pods from it would keep them from the next one.
		s.failLocked(b, guard.Fault{Cause: causeGivenBack, Message: "its pods did not get there", Workloads: b.workloads}, now)
	default: // it is no probe any more: another one may be tried when somebody waits
		s.guard.End(b.claim, now)
		s.forgetLocked(b)
	}
}

const causeGivenBack = "given back"

// movedLocked says that pods of one of the workloads have come or gone since the machine was bought: what a spread or an affinity allows
// may be something else by now.
func (s *Spending) movedLocked(b *watched, workloads []guard.Workload) bool {
	return slices.ContainsFunc(workloads, func(w guard.Workload) bool { return s.moved[w].After(b.at) })
}

// waitsLocked says that one of these very pods still waits. Others of its workload may have come instead of pods that somebody deleted.
func (s *Spending) waitsLocked(wanted map[types.UID]guard.Workload) bool {
	for uid := range wanted {
		if s.pending.Get(uid) != nil {
			return true
		}
	}
	return false
}

// forgetLocked ends the watch of a machine.
func (s *Spending) forgetLocked(b *watched) {
	for _, k := range b.probes {
		s.dirty[guard.OwnerOf(k)] = true
	}
	delete(s.machines, b.claim)
	if s.byNode[b.node] == b {
		delete(s.byNode, b.node)
	}
	for uid := range b.wanted {
		if s.byPod[uid] == b {
			delete(s.byPod, uid)
		}
	}
}

// podless says that a machine was bought for no pod, and what for.
func podless(all []guard.Workload) (w guard.Workload, yes bool) {
	if len(all) > 0 {
		w = all[0]
	}
	return w, w.Namespace == ""
}

// noticeLocked takes down what has happened to breakers: their records have to be written.
func (s *Spending) noticeLocked() {
	for _, n := range s.guard.Take() {
		s.dirty[guard.OwnerOf(n.Key)] = true
		s.notices = append(s.notices, n)
	}
}
