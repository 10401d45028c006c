package launch

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
)

const (
	// servedAfter is how long a pod has to be Running, or a node that was launched for no pod initialized, until its instance has served.
	servedAfter = 2 * time.Minute
	// thrownWithin: a pod that is evicted or rejected within this time after the instance was bought counts against its workload.
	thrownWithin = time.Hour
	// unfulfilledFor is how long no capacity is launched ahead for a workload whose anticipated pods have not come.
	unfulfilledFor = time.Hour
	// movedFor is how long it matters that a workload's pods have come or gone: longer than it takes from the purchase of an instance until
	// its pods try it.
	movedFor = time.Hour
	// mostGangs is how many rounds of instances for gangs that could not be placed as a whole are forgiven within an hour.
	mostGangs = 2
	// pluginSpread is the name of the scheduler's filter that counts pods by topology domain (k8s.io/kubernetes, plugins/names).
	pluginSpread = "PodTopologySpread"
)

// Records persists the guard's state on the objects that it is about.
type Records interface {
	GuardRecords(ctx context.Context) (map[guard.Owner]string, error)
	RecordGuard(ctx context.Context, o guard.Owner, text string) error
	// RecordServed records on a claim, once, that its instance has served.
	RecordServed(ctx context.Context, c *capacity.Claim) error
	// TellPool and TellClass record an event on the object that a breaker is about.
	TellPool(pool, eventType, reason, note string)
	TellClass(class, eventType, reason, note string)
	// BudgetReached sets a pool's condition to the budget that keeps it from growing; empty: none does. It returns at once.
	BudgetReached(pool, why string)
}

// SpendingConfig holds the limits of the spending guard.
type SpendingConfig struct {
	// NewImageNodes is how many instances of an image may be bought before the first node of that image has ever been initialized, or a
	// tenth of the plan if that is more; 0: any number.
	NewImageNodes int
	Budget        Budget
}

// Spending is the spending guard: it watches what becomes of every instance that is bought, keeps the breakers, and is asked before any
// purchase, for whatever purpose. The methods of a nil Spending allow everything.
//
// Lock order: mu is taken after all other locks of this package except those of Pending and Classes. Those two are taken under it, and
// nothing is called while they are held. Besides, only informers' stores are read under mu.
type Spending struct {
	cfg     SpendingConfig
	clock   clock.PassiveClock
	records Records
	owners  *pending.Owners
	pending *pending.Pods
	classes *pending.Classes
	// taints returns the NoExecute taints of a Node, podsOn the pods bound to a node name; both from memory.
	taints func(node string) []corev1.Taint
	podsOn func(node string) []*corev1.Pod

	mu       sync.Mutex
	guard    *guard.Guard
	machines map[string]*watched    // by claim
	byNode   map[string]*watched    // by Node name
	byPod    map[types.UID]*watched // by the UIDs of the pods they were bought for, until these are bound
	dirty    map[guard.Owner]bool
	served   map[string]bool // claims whose instance has served and whose condition doesn't say so yet
	refused  map[guard.Key]*corev1.Node
	idle     map[guard.Key]time.Time // breakers that no pod waited for, and when that was seen
	notices  []guard.Notice
	asked    time.Time // when refused Nodes were last retried
	launches []time.Time
	// budgets holds the budgets that are reached, by the pool they keep from growing; reached is the last reported state of these pools.
	budgets map[string]reached
	reached map[string]string
	// workloads holds the last known state of each workload, later those whose retry annotation came too soon.
	workloads map[guard.Workload]workloadState
	later     map[guard.Workload]retryLater
	// moved is when pods of a workload were last bound or deleted.
	moved map[guard.Workload]time.Time
	// unfulfilled is, by workload, when a claim was last ended that had been launched only for anticipated pods of that workload.
	unfulfilled map[guard.Workload]time.Time
	// nodeGone is when a Node last left the cluster, perhaps with its topology domain.
	nodeGone time.Time
	// kept and counted belong to the goroutine of keepSpending.
	kept    map[guard.Owner]string
	counted map[string]bool
}

// watched is an instance while the guard watches it.
type watched struct {
	claim, uid, pool, class string
	node                    string
	at                      time.Time
	price                   float64 // of the dearest offering it may become, in dollars per hour
	workloads               []guard.Workload
	probes                  []guard.Key
	// wanted holds the pods it was bought for, as far as these exist.
	wanted map[types.UID]guard.Workload
	// pods holds its pods except those of DaemonSets; nil: they no longer matter.
	pods map[types.UID]*boundPod
	// thrown holds the faults of pods that were evicted or rejected.
	thrown []guard.Fault
	// unusedSince is since when none of the pods that it was bought for is on it or planned there.
	unusedSince time.Time
	initialized time.Time
	steady      bool
	launched    bool // as far as is known
	// end is why it is being terminated, as reported by the controller that does it; neutral: that is no failure.
	end     *guard.Fault
	neutral bool
	over    bool
}

// boundPod is a pod on an instance.
type boundPod struct {
	workload guard.Workload
	running  time.Time // since when it is Running; zero: it isn't
	counted  bool      // it has been counted as served
	left     bool      // it has ended or is being deleted, and no longer uses the instance
}

// NewSpending returns a guard without any state.
func NewSpending(cfg SpendingConfig, c clock.PassiveClock, records Records, owners *pending.Owners, pods *pending.Pods, taints func(node string) []corev1.Taint, podsOn func(node string) []*corev1.Pod) *Spending {
	return &Spending{
		cfg: cfg, clock: c, records: records, owners: owners, pending: pods, classes: pods.Classes, taints: taints, podsOn: podsOn, guard: guard.New(),
		machines: map[string]*watched{}, byNode: map[string]*watched{}, byPod: map[types.UID]*watched{}, dirty: map[guard.Owner]bool{}, served: map[string]bool{},
		refused: map[guard.Key]*corev1.Node{}, idle: map[guard.Key]time.Time{}, budgets: map[string]reached{}, reached: map[string]string{},
		workloads: map[guard.Workload]workloadState{}, later: map[guard.Workload]retryLater{}, moved: map[guard.Workload]time.Time{}, unfulfilled: map[guard.Workload]time.Time{}, kept: map[guard.Owner]string{}, counted: map[string]bool{},
	}
}

// restore reads the records of an earlier process, and adds the instances that exist.
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
	s.nodeGone = now // some may have left before this process started, after the instances were bought
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
		if c.Purchase == nil || !c.Launched && c.LaunchBatch == nil {
			continue
		}
		b := s.buyLocked(c, boughtAt(c), nil, nil)
		s.wantLocked(b, s.reservedLocked(c))
		s.launchedLocked(b.at)
		if c.Served {
			s.guard.Serve(c.Name, guard.NoPod, c.ServedAt) // for which workload is not on record, so it closes no breaker
		}
		if c.NodeName != "" {
			s.nameLocked(b, c.NodeName)
		}
		s.observeLocked(b, c, now)
		if c.Deleting { // the reason for its deletion was reported to an earlier process
			b.neutral = true
		}
	}
	s.guard.Recovered(now)
	return nil
}

// buy records an instance that is about to be bought, and on the claim when it was bought.
func (s *Spending) buy(c *capacity.Claim, offers []capacity.NodeOffer, wanted map[types.UID]guard.Workload) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// A standalone NodeClaim may have been paused for hours: its life begins now.
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
	b := &watched{claim: c.Name, uid: c.UID, pool: c.Pool, class: c.NodeClass, at: at, workloads: c.Purchase.Workloads, probes: c.Purchase.Probes, pods: map[types.UID]*boundPod{}}
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

// boughtAt returns when a claim's instance was bought.
func boughtAt(c *capacity.Claim) time.Time {
	if c.Purchase != nil && c.Purchase.When != 0 {
		return time.Unix(c.Purchase.When, 0)
	}
	return c.CreatedAt
}

// reservedLocked returns the waiting pods that the claim's recorded reservations name.
func (s *Spending) reservedLocked(c *capacity.Claim) map[types.UID]guard.Workload {
	out := map[types.UID]guard.Workload{}
	for _, slot := range c.Slots {
		if pod := s.pending.Get(slot.Pod.UID); pod != nil {
			out[slot.Pod.UID] = s.workloadOf(pod)
		}
	}
	return out
}

// observe updates what the guard knows about a claim.
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

// initializedAfterAllLocked makes breakers be probed that are open because nodes of the same pool or node class did not become initialized:
// the cause may be over.
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

// named records which Node is the claim's.
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

// nodeLeft records that a Node has left the cluster.
func (s *Spending) nodeLeft() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodeGone = s.clock.Now()
}

// ready records that a Node is Ready.
func (s *Spending) ready(node string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.byNode[node]; b != nil {
		s.guard.Ready(b.claim)
	}
}

func (s *Spending) nameLocked(b *watched, node string) {
	if s.byNode[b.node] == b {
		delete(s.byNode, b.node)
	}
	b.node = node
	s.byNode[node] = b
	for _, pod := range s.podsOn(node) {
		s.addPodLocked(b, pod)
	}
}

// noticeLocked collects what has happened to breakers, and marks their records to be written.
func (s *Spending) noticeLocked() {
	for _, n := range s.guard.Take() {
		s.dirty[guard.OwnerOf(n.Key)] = true
		s.notices = append(s.notices, n)
	}
}
