package launch

import (
	"context"
	"fmt"
	"math/rand"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/panics"
)

// logPatience is how long pods wait for the intent log to be read before their events mention it.
const logPatience = 5 * time.Second

// Config holds the settings of a Launcher.
type Config struct {
	Cluster string // part of every launch batch token
	// A burst is planned when no pod has arrived for BatchIdle, or at the latest BatchMax after its first pod.
	BatchIdle, BatchMax time.Duration
	// MaxInFlight caps the claims that are not initialized yet.
	MaxInFlight int
	// NamespaceSelector selects the namespaces whose pods may cause launches; nil: all.
	NamespaceSelector labels.Selector
	// Parallel is how many API and cloud calls of launches run at once. A quarter as many may run besides for cleanup and records.
	Parallel int
	Plan     capacity.Options
}

// Launcher is the launch controller. All of its goroutines run between the start and the return of Run.
type Launcher struct {
	cfg          Config
	clock        clock.WithTicker
	reservations *Reservations
	cloud        Cloud
	claims       Claims
	world        World // the planner goroutine's
	recheck      World // for nodes whose type and zone have become known; under recheckMu
	planner      Planner
	rooms        Planner // for plans without pools; planner would forget its catalog over them
	nodes        NodeBuilder
	cluster      Cluster
	queue        Queue
	events       Recorder
	pending      *Pending
	owners       *Owners
	gangs        Gangs // nil: no plugin handles groups
	daemons      func() []*capacity.DaemonSet
	judge        Judge
	// spending is asked before anything is bought; nil: there is no guard.
	spending *Spending
	// buyMu is held from asking the spending guard until it has recorded what is bought, so that no two goroutines buy the same probe or
	// the same rest of a budget. It is taken before all other locks; no slow call is made under it.
	buyMu   sync.Mutex
	hold    func() string // why nothing may be launched because another controller owns nodes and claims; "" otherwise
	namesMu sync.Mutex
	names   *rand.Rand // guarded by namesMu

	recheckMu sync.Mutex
	slots     chan struct{} // semaphore of Parallel calls that launches wait for
	chores    chan struct{} // semaphore of calls that no launch waits for
	plan      chan struct{} // demand is waiting
	changed   chan struct{} // pools, offers or classes changed
	ordered   chan struct{} // a standalone NodeClaim has appeared or changed
	counted   chan struct{} // static pools may have too few nodes or too many
	changes   atomic.Uint64 // how often pools, offers or classes have changed
	wasHeld   atomic.Bool   // another controller has owned nodes and claims since they were last read
	room      atomic.Bool   // capacity has appeared since it was last offered
	freed     atomic.Bool   // and pods may leave a launched instance for it
	// daemonsMoved: DaemonSets or the requests of their pods have changed since capacity was last reserved for them.
	daemonsMoved atomic.Bool
	// gangsAnew: pools or offerings have changed since gangs were refused. pauses belongs to the planner goroutine.
	gangsAnew atomic.Bool
	pauses    map[Group]pause
	ungrouped map[Group]bool        // groups that no plugin handles, as reported to pods; the planner goroutine's
	nominees  map[types.UID]nominee // the planner goroutine's
	refused   *filterRefusals       // the planner goroutine's
	restored  chan struct{}         // closed when the reservations of an earlier leader are in the ledger
	live      atomic.Bool           // Run has begun: the ledger hears of claims and nodes
	troubled  atomic.Bool           // demand was refused because the intent log is broken
	wg        sync.WaitGroup

	mu        sync.Mutex
	orders    map[string]*order          // standalone NodeClaims
	statics   map[string]*static         // by pool
	ending    map[string]bool            // claims by which static pools exceed their replicas
	dying     map[string]string          // the pools of claims that are being deleted, as already noticed
	givenUp   map[string]string          // claims that liveness gives up, and why
	delays    map[string]string          // by pool: why launches fail that are tried again, as last reported
	local     map[string]*capacity.Claim // claims as this process knows them, where the cache may be behind; never changed, only replaced
	recording map[string]bool            // claims whose slots are being written; true: they have changed since
	moves     map[string]*move           // nodes whose pods get replacement capacity
	nodeOf    nodeStates
	storage   storageLimits
	scarce    scarcity
	relief    relief
	heldFrom  map[guard.Key]int // the planner goroutine's: at which pending pod the next search for a probe begins
}

// Parts holds the neighbours of a Launcher.
type Parts struct {
	Clock          clock.WithTicker
	Reservations   *Reservations
	Cloud          Cloud
	Claims         Claims
	World, Recheck World
	Planner        Planner
	// Rooms plans where nothing is bought. It is another Planner because a Planner remembers the catalog of its last plan.
	Rooms   Planner
	Nodes   NodeBuilder
	Cluster Cluster
	Queue   Queue
	Events  Recorder
	Pending *Pending
	Owners  *Owners
	Gangs   Gangs // nil: no plugin handles groups
	Daemons func() []*capacity.DaemonSet
	Judge   Judge
	// Spending is asked before anything is bought; nil: there is no guard.
	Spending *Spending
	// Hold, when set, returns why nothing may be launched now (another controller owns nodes and claims), or "". Changed has to be called
	// when that is over.
	Hold func() string
	// Taints returns the taints of a Node as the API has them, including those hidden from the scheduler; nil: none are hidden.
	Taints func(*corev1.Node) []corev1.Taint
	Seed   int64
}

// New returns a Launcher that does nothing until Run.
func New(cfg Config, p Parts) *Launcher {
	if p.Judge == nil {
		p.Judge = func(*corev1.Pod, time.Time) (float64, bool) { return 1, false }
	}
	if p.Hold == nil {
		p.Hold = func() string { return "" }
	}
	if p.Taints == nil {
		p.Taints = func(n *corev1.Node) []corev1.Taint { return n.Spec.Taints }
	}
	m := &Launcher{
		cfg: cfg, clock: p.Clock, reservations: p.Reservations, cloud: p.Cloud, claims: p.Claims, world: p.World, recheck: p.Recheck,
		planner: p.Planner, rooms: p.Rooms, nodes: p.Nodes, cluster: p.Cluster, queue: p.Queue, events: p.Events, pending: p.Pending, owners: p.Owners, gangs: p.Gangs,
		daemons: p.Daemons, hold: p.Hold, spending: p.Spending, names: rand.New(rand.NewSource(p.Seed)),
		slots: make(chan struct{}, max(cfg.Parallel, 1)), chores: make(chan struct{}, max(cfg.Parallel/choresShare, 1)), plan: make(chan struct{}, 1), restored: make(chan struct{}), changed: make(chan struct{}, 1),
		orders: map[string]*order{}, ordered: make(chan struct{}, 1),
		statics: map[string]*static{}, ending: map[string]bool{}, dying: map[string]string{}, givenUp: map[string]string{}, delays: map[string]string{}, heldFrom: map[guard.Key]int{}, counted: make(chan struct{}, 1), judge: p.Judge,
		local: map[string]*capacity.Claim{}, recording: map[string]bool{}, moves: map[string]*move{}, pauses: map[Group]pause{}, nominees: map[types.UID]nominee{}, refused: newFilterRefusals(p.Clock),
		nodeOf: nodeStates{drivers: map[string]drivers{}, seen: map[string]ledger.NodeStatus{}, objects: map[string]*corev1.Node{}, storage: p.Pending.classes.volumes.storage, taints: p.Taints, expected: p.Claims.ExpectedTaints},
	}
	m.storage.of = p.Pending.classes.volumes.storage
	m.pending.onRoom = m.RoomAppeared
	m.pending.onUnplannable = func(ref capacity.PodRef, why string) {
		m.events.Pod(ref, corev1.EventTypeWarning, "FailedProvisioning", why)
	}
	return m
}

// Restored is closed when the ledger has the reservations that an earlier leader made, or when there are none to restore. A pod whose
// scheduling cycle runs before may take a node that is reserved for another pod, and one node too many would be launched.
func (m *Launcher) Restored() <-chan struct{} { return m.restored }

// Run plans and launches until ctx ends, then waits until everything under way has stopped. Only the leader runs it.
//
//  1. In the background: open gates, cancel claims, tick.
//  2. Read the intent log, and resume what an earlier leader left: claims without instances, instances without nodes,
//     reservations. Until the log can be read, and as long as another controller owns the nodes, nothing is launched, and
//     events on the waiting pods say why.
//  3. When there is demand, or capacity has appeared: wait until the burst has settled.
//  4. Offer capacity that has appeared to pods that wait for instances in flight (offer).
//  5. Take a view of the cluster, plan, have the plan verified, write it to the ledger (round).
//  6. Launch it in the background: the next burst doesn't wait for these instances.
//  7. Buy the probes of the spending guard that are due (probe).
//  8. Do the same for the pods of nodes that are being replaced (relocate).
func (m *Launcher) Run(ctx context.Context) {
	m.live.Store(true)
	m.wg.Go(func() { m.serve(ctx) })
	m.wg.Go(func() { m.keepSpending(ctx) })
	if !m.readLog(ctx) {
		m.wg.Wait()
		return
	}
	restored := sync.OnceFunc(func() { close(m.restored) })
	if m.hold() != "" {
		restored() // another controller leads, and nothing is reserved
	}
	if m.free(ctx) {
		m.recover(ctx, restored)
		m.wg.Go(func() { panics.Again(ctx, m.clock, "orders", m.serveOrders) })
		m.wg.Go(func() { panics.Again(ctx, m.clock, "static pools", m.serveStatic) })
		panics.Again(ctx, m.clock, "planner", m.servePlans)
	}
	m.wg.Wait()
}

// servePlans makes a plan whenever there is something to plan for. A panic that no step has caught leaves demand unchanged.
func (m *Launcher) servePlans(ctx context.Context) {
	m.replan() // for the demand that a panic has left
	for m.settle(ctx) {
		m.keepDaemonRoom(ctx)
		m.offer(ctx)
		m.round(ctx)
		m.probe(ctx)
		m.relocate(ctx)
	}
}

// readLog waits until the claims have been read.
func (m *Launcher) readLog(ctx context.Context) bool {
	read := make(chan bool, 1)
	m.wg.Go(func() { read <- m.claims.WaitForSync(ctx) })
	patience := m.clock.NewTimer(logPatience)
	defer patience.Stop()
	var impatient <-chan struct{}
	for {
		select {
		case ok := <-read:
			// Pods that were gated meanwhile still wait for their plan.
			m.reservations.Step(func(l *ledger.Ledger, now time.Time) { l.Tick(now) })
			m.replan()
			return ok
		case <-patience.C():
			impatient = m.plan
			m.replan()
		case <-impatient:
			m.unread(ctx)
		}
	}
}

// unread refuses the waiting pods because the log can't be read. Nothing may be planned without it, not even when the claims are there and
// only pools or classes are missing: what an earlier leader launched has not been resumed yet.
func (m *Launcher) unread(ctx context.Context) {
	waiting, _ := m.gather(ctx)
	if len(waiting) == 0 {
		return
	}
	why := m.claims.Problem()
	if why == "" {
		why = "not all of the pools, node classes and overlays have been read yet"
	}
	m.refuse(ctx, uidsOf(waiting), "nothing can be launched: "+why, true)
}

// replan wakes the planner to look at queued pods.
func (m *Launcher) replan() {
	select {
	case m.plan <- struct{}{}:
	default:
	}
}

// Changed tells the Launcher that pools, node classes or offerings have changed: refused pods may fit now.
func (m *Launcher) Changed() {
	m.recount()
	m.changes.Add(1)
	m.reopen()
}

// reopen makes refused pods be planned for again.
func (m *Launcher) reopen() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// serve carries out the ledger's effects as they arise.
func (m *Launcher) serve(ctx context.Context) {
	tick := m.clock.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.reservations.wake:
		case <-m.changed:
			m.gangsAnew.Store(true)
			m.reservations.Step(func(l *ledger.Ledger, now time.Time) { l.Changed(now) })
		case <-tick.C():
			if m.troubled.Load() && m.claims.Problem() == "" {
				m.troubled.Store(false)
				m.Changed()
			}
			m.reservations.Step(func(l *ledger.Ledger, now time.Time) { l.Tick(now) })
			m.later()
			m.relieve()
			m.pending.reconcile()
			m.tendSpending(ctx)
			if logger := klog.FromContext(ctx).V(6); logger.Enabled() && !m.reservations.Idle() {
				m.reservations.read(func(l *ledger.Ledger) { logger.Info("Ledger", "state", l.String()) })
			}
		}
		m.effects(ctx)
	}
}

func (m *Launcher) effects(ctx context.Context) {
	e := m.reservations.take()
	if len(e.Activate) > 0 {
		pods := make([]*corev1.Pod, 0, len(e.Activate))
		for _, ref := range e.Activate {
			if pod := m.pending.Get(ref.UID); pod != nil {
				pods = append(pods, pod)
			}
		}
		klog.FromContext(ctx).V(3).Info("Opening gates", "pods", len(pods))
		m.queue.Activate(pods)
	}
	for _, w := range e.Words {
		m.events.Pod(w.Ref, corev1.EventTypeWarning, "PlacementFailed", w.Note)
	}
	for _, w := range e.Waits {
		m.events.Pod(w.Ref, corev1.EventTypeNormal, "WaitingForNode", w.Note)
	}
	for _, t := range e.Tainted {
		m.tainted(t)
	}
	for _, claim := range e.Cancel {
		m.background(ctx, func() { m.cancel(ctx, claim) })
	}
	m.endUnused(ctx, e.End)
	if e.Plan {
		m.replan()
	}
}

// later submits pods that were left to preemption first. Those for which preemption has chosen victims are left out of plans as long as the
// victims may take to end (withoutNominees).
func (m *Launcher) later() {
	for _, d := range m.reservations.due() {
		if m.pending.Get(d.ref.UID) != nil {
			m.reservations.submitUntaken(d.ref, d.class)
		}
	}
}

// settle waits for demand and then for the burst to end. It returns false when ctx has ended.
func (m *Launcher) settle(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-m.plan:
	}
	limit := m.clock.NewTimer(m.cfg.BatchMax)
	defer limit.Stop()
	for {
		idle := m.clock.NewTimer(m.cfg.BatchIdle)
		select {
		case <-ctx.Done():
			idle.Stop()
			return false
		case <-m.plan:
			idle.Stop()
		case <-idle.C():
			return true
		case <-limit.C():
			idle.Stop()
			return true
		}
	}
}

// choresShare is how many calls of launches may run for each call that no launch waits for.
const choresShare = 4

// background runs f beside everything else; no launch waits for it: it records a reservation or ends a claim, say. With an API server that
// is slow or throttles, thousands of these may be due, and launches must not queue behind them.
func (m *Launcher) background(ctx context.Context, f func()) {
	m.wg.Go(func() {
		select {
		case <-ctx.Done():
			return
		case m.chores <- struct{}{}:
		}
		defer func() { <-m.chores }()
		_ = panics.Catch(ctx, "launch", func() error { // logged by Catch
			f()
			return nil
		})
	})
}

// sleep waits for d and returns false when ctx ends first.
func (m *Launcher) sleep(ctx context.Context, d time.Duration) bool {
	t := m.clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C():
		return true
	}
}

// cancel deletes a claim that was never launched and that no pod needs.
func (m *Launcher) cancel(ctx context.Context, claim string) {
	if err := m.claims.Delete(ctx, claim); err != nil {
		klog.FromContext(ctx).Error(err, "Could not delete a claim that is not needed any more; it will be collected", "nodeClaim", claim)
	}
	m.forget(claim)
	m.recount()
}

// fail ends claims whose launch has failed and returns their pods to the planner. Standalone NodeClaims stay: they belong to the users who
// wrote them.
func (m *Launcher) fail(ctx context.Context, claims []*capacity.Claim, reason, why string, exhausted bool) {
	logger := klog.FromContext(ctx)
	why = oneLine(why)
	for _, c := range claims {
		name, now := c.Name, m.claim(c.Name)
		if now != nil && now.UID != c.UID && c.UID != "" {
			continue // it is gone, and another claim has its name
		}
		became := "was not launched"
		if reason == reasonInstanceLost || reason == reasonNodeNotCreated {
			became = "failed to start"
		}
		pods := m.tellPods(name, "LaunchFailed", fmt.Sprintf("node %s %s: %s", name, became, why))
		logger.V(2).Info("Launch failed", "nodeClaim", name, "reason", reason, "message", why, "pods", pods)
		m.reservations.Step(func(l *ledger.Ledger, now time.Time) { l.ClaimGone(name, why, exhausted, now) })
		m.delayOver(c.Pool)
		if now != nil && now.Order != nil && now.ProviderID == "" {
			m.refuseOrder(ctx, now, reason, why, true)
			continue
		}
		if now != nil && now.LaunchBatch != nil && now.LaunchBatch.For == capacity.ForPool {
			m.recordFailure(now.Pool)
			m.shortage(now.Pool, why)
			m.mu.Lock()
			m.ending[name] = true
			m.mu.Unlock()
		}
		m.background(ctx, func() { m.giveUp(ctx, name, reason, why) })
	}
}

// tellPods records a warning on the pods that are planned on a claim's node, and returns how many there are.
func (m *Launcher) tellPods(claim, reason, note string) int {
	var refs []capacity.PodRef
	m.reservations.read(func(l *ledger.Ledger) { refs = l.Refs(claim) })
	for _, ref := range refs {
		m.events.Pod(ref, corev1.EventTypeWarning, reason, note)
	}
	return len(refs)
}

// giveUp records why a claim's launch failed and deletes the claim. No launch of it may be under way.
func (m *Launcher) giveUp(ctx context.Context, name, reason, why string) {
	if err := m.claims.RecordLaunchFailed(ctx, name, reason, why); err != nil {
		klog.FromContext(ctx).V(3).Info("Could not record why the launch failed", "nodeClaim", name, "err", err)
	}
	m.cancel(ctx, name)
}

// GivingUp tells the Launcher why a NodeClaim is about to be given up, for the events of pods that wait for its node. ClaimGone follows.
func (m *Launcher) GivingUp(claim, why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.givenUp[claim] = why
}

// ClaimGone tells the Launcher that a NodeClaim has ended or is about to. It is called repeatedly for a claim that is being deleted.
func (m *Launcher) ClaimGone(name, why string) {
	c := m.claims.Claim(name)
	m.mu.Lock()
	pool, told := m.dying[name]
	if delete(m.dying, name); c != nil && c.Deleting {
		m.dying[name] = c.Pool
	} else if c == nil {
		if known := m.local[name]; known != nil {
			pool = known.Pool
		}
		m.relief.claimEnded(pool)
	}
	given := m.givenUp[name]
	if c == nil {
		delete(m.givenUp, name)
	}
	m.mu.Unlock()
	if given != "" {
		why = given
	}
	if !told {
		m.lostStatic(name)
		if given != "" {
			m.tellPods(name, "LaunchFailed", fmt.Sprintf("node %s failed to start: %s", name, why))
		}
	}
	m.mu.Lock()
	shrunk := m.ending[name]
	m.mu.Unlock()
	if shrunk {
		m.spending.Ending(name, nil)
	}
	if !told {
		m.wasted(c)
	}
	m.spending.overClaim(name, c == nil || c.Launched || c.ProviderID != "")
	m.forget(name)
	m.recount()
	m.reservations.Step(func(l *ledger.Ledger, now time.Time) { l.ClaimGone(name, why, false, now) })
}
