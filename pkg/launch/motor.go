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

// logPatience is how long pods wait without a word for the intent log to be read.
const logPatience = 5 * time.Second

// Config are the motor's settings.
type Config struct {
	Cluster string // part of every launch batch token
	// A burst is planned when no pod has come for BatchIdle, at the latest BatchMax after its first.
	BatchIdle, BatchMax time.Duration
	// MaxInFlight caps claims that are not initialized yet.
	MaxInFlight int
	// NamespaceSelector selects the namespaces whose pods may cause launches; nil: all.
	NamespaceSelector labels.Selector
	// Parallel is how many API and cloud calls of launches run at once. Beside them a quarter as many may tidy up and take notes.
	Parallel int
	Plan     capacity.Options
}

// Motor is the launcher. Everything it does, it does between Run's beginning and end.
type Motor struct {
	cfg          Config
	clock        clock.WithTicker
	reservations *Reservations
	cloud        Cloud
	claims       Claims
	world        World // the planner goroutine's
	recheck      World // for nodes whose type and zone have become known; under recheckMu
	planner      Planner
	rooms        Planner // for plans without pools: the other one would forget its catalogue
	nodes        NodeBuilder
	cluster      Cluster
	queue        Queue
	events       Recorder
	pending      *Pending
	owners       *Owners
	gangs        Gangs // nil: nobody looks after groups
	daemons      func() []*capacity.DaemonSet
	judge        Judge
	// spending is asked before anything is bought; nil: nobody is.
	spending *Spending
	// buyMu is held from asking the spending guard to telling it what is bought, so that no two buy the same probe or the same rest
	// of a budget. Taken before all other locks; nothing is called under it that may take long.
	buyMu   sync.Mutex
	hold    func() string // why nothing may be launched, because somebody else owns nodes and claims
	namesMu sync.Mutex
	names   *rand.Rand // guarded by namesMu

	recheckMu sync.Mutex
	slots     chan struct{} // semaphore of Parallel calls that launches wait for
	chores    chan struct{} // semaphore of calls that nobody waits for
	plan      chan struct{} // demand is waiting
	changed   chan struct{} // pools, offers or classes changed
	ordered   chan struct{} // there is a claim that nobody planned
	counted   chan struct{} // static pools may have too few nodes or too many
	changes   atomic.Uint64 // how often pools, offers or classes have changed
	wasHeld   atomic.Bool   // somebody else has owned nodes and claims since they were looked at
	room      atomic.Bool   // room has appeared somewhere since it was last offered
	freed     atomic.Bool   // and it is worth leaving a machine that is on its way
	// daemonsMoved: DaemonSets or the size of their pods have changed since room was last kept for their pods.
	daemonsMoved atomic.Bool
	// gangsAnew: pools or offers have changed since gangs were refused. pauses are the planner goroutine's.
	gangsAnew atomic.Bool
	pauses    map[Group]pause
	ungrouped map[Group]bool        // groups that nobody looks after, as pods have been told; the planner goroutine's
	nominees  map[types.UID]nominee // the planner goroutine's
	refused   *filterRefusals       // the planner goroutine's
	troubled  atomic.Bool           // demand was refused because the intent log is broken
	wg        sync.WaitGroup

	mu        sync.Mutex
	orders    map[string]*order          // claims that nobody planned
	statics   map[string]*static         // by pool
	ending    map[string]bool            // claims of static pools that are one too many
	dying     map[string]string          // the pools of claims that are on their way out, as has been noted
	givenUp   map[string]string          // claims that are given up, and why
	delays    map[string]string          // why launches of a pool fail that are tried again, as it was told
	local     map[string]*capacity.Claim // claims as this motor knows them: the cache may be behind; never changed, replaced
	recording map[string]bool            // claims whose slots are being written; true: and have changed since
	moves     map[string]*move           // nodes that have to go
	nodeOf    nodeStates
	storage   storageLimits
	scarce    scarcity
	relief    relief
	heldFrom  map[guard.Key]int // of the planner's goroutine: where pods to try a machine for are looked for
}

// Parts are the motor's neighbours.
type Parts struct {
	Clock          clock.WithTicker
	Reservations   *Reservations
	Cloud          Cloud
	Claims         Claims
	World, Recheck World
	Planner        Planner
	// Rooms plans where nothing is bought. It is another Planner because a Planner remembers the catalogue of its last plan.
	Rooms   Planner
	Nodes   NodeBuilder
	Cluster Cluster
	Queue   Queue
	Events  Recorder
	Pending *Pending
	Owners  *Owners
	Gangs   Gangs // nil: nobody looks after groups
	Daemons func() []*capacity.DaemonSet
	Judge   Judge
	// Spending is the guard that is asked before anything is bought; nil: nobody is.
	Spending *Spending
	// Hold, when set, says why nothing may be launched at the moment (another controller owns nodes and claims); empty: go on.
	// Changed has to be called when it is over.
	Hold func() string
	// Taints are the taints of a Node as the API has them, with those that the scheduler doesn't see; nil: it sees them all.
	Taints func(*corev1.Node) []corev1.Taint
	Seed   int64
}

// New returns a motor that does nothing until Run.
func New(cfg Config, p Parts) *Motor {
	if p.Judge == nil {
		p.Judge = func(*corev1.Pod, time.Time) (float64, bool) { return 1, false }
	}
	if p.Hold == nil {
		p.Hold = func() string { return "" }
	}
	if p.Taints == nil {
		p.Taints = func(n *corev1.Node) []corev1.Taint { return n.Spec.Taints }
	}
	m := &Motor{
		cfg: cfg, clock: p.Clock, reservations: p.Reservations, cloud: p.Cloud, claims: p.Claims, world: p.World, recheck: p.Recheck,
		planner: p.Planner, rooms: p.Rooms, nodes: p.Nodes, cluster: p.Cluster, queue: p.Queue, events: p.Events, pending: p.Pending, owners: p.Owners, gangs: p.Gangs,
		daemons: p.Daemons, hold: p.Hold, spending: p.Spending, names: rand.New(rand.NewSource(p.Seed)),
		slots: make(chan struct{}, max(cfg.Parallel, 1)), chores: make(chan struct{}, max(cfg.Parallel/choresShare, 1)), plan: make(chan struct{}, 1), changed: make(chan struct{}, 1),
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

// Run plans and launches until ctx ends, then waits for what is under way to stop. Only the leader runs it.
//
//  1. Beside everything else: open gates, cancel claims, tick.
//  2. Read the intent log, and pick up what an earlier leader left: claims without instances, instances without nodes,
//     promises. Until it can be read, and as long as another controller owns the nodes, nothing is launched, and pods that
//     wait for it are told so.
//  3. When there is demand, or room: wait until the burst has settled.
//  4. Offer room that has appeared to pods that wait for their machines (offer).
//  5. Look at the cluster, plan, have the plan verified, book it (round).
//  6. Launch it, in the background: the next burst doesn't wait for this one's machines.
//  7. Buy the probes of the spending guard that are due (probe).
//  8. The same for the pods of nodes that have to go (relocate).
func (m *Motor) Run(ctx context.Context) {
	m.wg.Go(func() { m.serve(ctx) })
	m.wg.Go(func() { m.keepSpending(ctx) })
	if m.readLog(ctx) && m.free(ctx) {
		m.recover(ctx)
		m.wg.Go(func() { panics.Again(ctx, m.clock, "orders", m.serveOrders) })
		m.wg.Go(func() { panics.Again(ctx, m.clock, "static pools", m.serveStatic) })
		panics.Again(ctx, m.clock, "planner", m.servePlans)
	}
	m.wg.Wait()
}

// servePlans makes a plan whenever there is something to plan for. A panic that no step has caught leaves demand as it was.
func (m *Motor) servePlans(ctx context.Context) {
	m.replan() // what a panic has left
	for m.settle(ctx) {
		m.keepDaemonRoom(ctx)
		m.offer(ctx)
		m.round(ctx)
		m.probe(ctx)
		m.relocate(ctx)
	}
}

// readLog waits until the claims have been read.
func (m *Motor) readLog(ctx context.Context) bool {
	read := make(chan bool, 1)
	m.wg.Go(func() { read <- m.claims.WaitForSync(ctx) })
	patience := m.clock.NewTimer(logPatience)
	defer patience.Stop()
	var impatient <-chan struct{}
	for {
		select {
		case ok := <-read:
			// What was gated meanwhile still waits for its plan.
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

// unread tells whoever waits that the log can't be read. Nothing may be planned without it, not even when the claims are
// there and only pools or classes are missing: what an earlier leader launched has not been picked up yet.
func (m *Motor) unread(ctx context.Context) {
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

// replan makes sure that queued pods are looked at.
func (m *Motor) replan() {
	select {
	case m.plan <- struct{}{}:
	default:
	}
}

// Changed tells the motor that pools, node classes or offers are not what they were: refused pods may have a chance.
func (m *Motor) Changed() {
	m.recount()
	m.changes.Add(1)
	m.reopen()
}

// reopen has refused pods planned for again.
func (m *Motor) reopen() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// serve runs the ledger's effects as they come.
func (m *Motor) serve(ctx context.Context) {
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

func (m *Motor) effects(ctx context.Context) {
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

// later takes down pods that preemption was to help first. Those it found victims for are left out of plans as long as these
// may take to end (withoutNominees).
func (m *Motor) later() {
	for _, d := range m.reservations.due() {
		if m.pending.Get(d.ref.UID) != nil {
			m.reservations.submitUntaken(d.ref, d.class)
		}
	}
}

// settle waits for demand and then for the burst to end; false when ctx has ended.
func (m *Motor) settle(ctx context.Context) bool {
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

// choresShare is how many calls of launches may run for one of those that nobody waits for.
const choresShare = 4

// background runs f, which nobody waits for, beside everything else: a promise is recorded, a claim ended. With an API server that is slow
// or throttles, thousands of these may be due, and launches must not stand behind them.
func (m *Motor) background(ctx context.Context, f func()) {
	m.wg.Go(func() {
		select {
		case <-ctx.Done():
			return
		case m.chores <- struct{}{}:
		}
		defer func() { <-m.chores }()
		_ = panics.Catch(ctx, "launch", func() error { // logged there
			f()
			return nil
		})
	})
}

// sleep waits and says whether ctx is still alive.
func (m *Motor) sleep(ctx context.Context, d time.Duration) bool {
	t := m.clock.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C():
		return true
	}
}

// cancel ends a claim that was never launched and that nobody needs.
func (m *Motor) cancel(ctx context.Context, claim string) {
	if err := m.claims.Delete(ctx, claim); err != nil {
		klog.FromContext(ctx).Error(err, "Could not delete a claim that is not needed any more; it will be collected", "nodeClaim", claim)
	}
	m.forget(claim)
	m.recount()
}

// fail ends claims whose launch came to nothing and gives their pods back to the planner. Orders stay, for whoever wrote them.
func (m *Motor) fail(ctx context.Context, claims []*capacity.Claim, reason, why string, exhausted bool) {
	logger := klog.FromContext(ctx)
	why = oneLine(why)
	for _, c := range claims {
		name, now := c.Name, m.claim(c.Name)
		if now != nil && now.UID != c.UID && c.UID != "" {
			continue // it has gone, and another one has its name
		}
		became := "was not launched"
		if reason == reasonInstanceLost || reason == reasonNodeNotCreated {
			became = "did not come up"
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

// tellPods warns the pods that are planned on a claim's node, and says how many there are.
func (m *Motor) tellPods(claim, reason, note string) int {
	var refs []capacity.PodRef
	m.reservations.read(func(l *ledger.Ledger) { refs = l.Refs(claim) })
	for _, ref := range refs {
		m.events.Pod(ref, corev1.EventTypeWarning, reason, note)
	}
	return len(refs)
}

// giveUp ends a claim of which no launch is under way, and says why.
func (m *Motor) giveUp(ctx context.Context, name, reason, why string) {
	if err := m.claims.RecordLaunchFailed(ctx, name, reason, why); err != nil {
		klog.FromContext(ctx).V(3).Info("Could not record why the launch failed", "nodeClaim", name, "err", err)
	}
	m.cancel(ctx, name)
}

// GivingUp tells the motor why a NodeClaim is about to be given up, for the pods that wait for its node. ClaimGone follows.
func (m *Motor) GivingUp(claim, why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.givenUp[claim] = why
}

// ClaimGone tells the motor that a NodeClaim has ended or is about to. It is told of a claim that is on its way out again and
// again.
func (m *Motor) ClaimGone(name, why string) {
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
			m.tellPods(name, "LaunchFailed", fmt.Sprintf("node %s did not come up: %s", name, why))
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
