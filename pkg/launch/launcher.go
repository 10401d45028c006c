package launch

import (
	"context"
	"math/rand"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/panics"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
	"github.com/dovetail-scheduler/dovetail/pkg/spending"
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

// Launcher runs the controllers of this package. All of their goroutines run between the start and the return of Run.
type Launcher struct {
	provisioner *provisioner
	standalone  *standalone
	staticPools *staticPools
	effects     *effects
	writer      *spending.Writer // nil: there is no spending guard
	recovery    *recovery
	tracker     *NodeTracker
	ownership   *Ownership
	calls       *calls
	restored    chan struct{} // closed when the reservations of an earlier leader are in the ledger
}

// Parts holds the neighbours of the controllers.
type Parts struct {
	Clock          clock.WithTicker
	Reservations   *reservations.Ledger
	Cloud          Cloud
	Claims         ClaimLog
	World, Recheck World
	Planner        provisioning.Planner
	// Rooms plans where nothing is bought. It is another Planner because a Planner remembers the catalog of its last plan.
	Rooms   provisioning.Planner
	Nodes   NodeBuilder
	Cluster Cluster
	Queue   Queue
	Events  Recorder
	Pending *pending.Pods
	Owners  *pending.Owners
	Gangs   Gangs // nil: no plugin handles groups
	Daemons func() []*capacity.DaemonSet
	Judge   Judge
	// Spending is asked before anything is bought; nil: there is no guard.
	Spending *spending.Guard
	// Hold, when set, returns why nothing may be launched now (another controller owns nodes and claims), or "". Changed has to be called
	// when that is over.
	Hold func() string
	// Taints returns the taints of a Node as the API has them, including those hidden from the scheduler; nil: none are hidden.
	Taints func(*corev1.Node) []corev1.Taint
	Seed   int64
}

// Controllers are the controllers of this package as New has connected them.
type Controllers struct {
	Launcher     *Launcher
	Nodes        *NodeTracker
	Claims       *ClaimEvents
	Replacements *Replacements
	Namespaces   *Namespaces
	Ownership    *Ownership
	Triggers     *Triggers
	Rounds       *Rounds

	claims      *claimCache
	calls       *calls
	batches     *batchLauncher
	purchases   *purchases
	cleanup     *cleanup
	committer   *committer
	daemonRooms *daemonRooms
	delays      *delays
	effects     *effects
	finisher    *finisher
	gangs       *gangPlans
	gatherer    *gatherer
	namer       *namer
	offers      *offers
	orders      *orderBook
	planning    *planning
	prober      *prober
	provisioner *provisioner
	verdicts    *verdicts
	writer      *spending.Writer
	recovery    *recovery
	refusals    *refusals
	relief      *relief
	relocation  *relocation
	restorer    *restorer
	resumption  *resumption
	slots       *slotWriter
	snapshot    *snapshot
	standalone  *standalone
	statics     *staticState
	staticPools *staticPools
	storage     *storageLimits
	viewer      *viewer
}

// New returns controllers that do nothing until Launcher.Run.
func New(cfg Config, p Parts) *Controllers {
	if p.Judge == nil {
		p.Judge = func(*corev1.Pod, time.Time) (float64, bool) { return 1, false }
	}
	if p.Hold == nil {
		p.Hold = func() string { return "" }
	}
	if p.Taints == nil {
		p.Taints = func(n *corev1.Node) []corev1.Taint { return n.Spec.Taints }
	}
	c := &Controllers{
		calls: newCalls(p.Clock, cfg.Parallel), Triggers: newTriggers(p.Reservations), relief: &relief{most: cfg.MaxInFlight},
		claims:   &claimCache{ClaimLog: p.Claims, local: map[string]*capacity.Claim{}},
		namer:    &namer{clusterName: cfg.Cluster, names: rand.New(rand.NewSource(p.Seed))},
		snapshot: &snapshot{world: p.Recheck},
		refusals: &refusals{reservations: p.Reservations, pending: p.Pending, events: p.Events},
		storage:  &storageLimits{of: p.Pending.Classes.Storage()},
	}
	c.Namespaces = &Namespaces{pending: p.Pending, refusals: c.refusals, triggers: c.Triggers, selector: cfg.NamespaceSelector}
	c.purchases = &purchases{claims: c.claims, reservations: p.Reservations, pending: p.Pending, spending: p.Spending, namer: c.namer,
		clock: p.Clock, relief: c.relief, maxInFlight: cfg.MaxInFlight}
	c.Nodes = &NodeTracker{claims: c.claims, reservations: p.Reservations, spending: p.Spending, triggers: c.Triggers, states: nodeStates{
		drivers: map[string]drivers{}, seen: map[string]ledger.NodeStatus{}, objects: map[string]*corev1.Node{},
		storage: p.Pending.Classes.Storage(), taints: p.Taints, expected: p.Claims.ExpectedTaints}}
	c.ends(p)
	c.plans(cfg, p)
	c.launches(cfg, p)
	c.run(cfg, p)
	p.Pending.OnPodLeft(c.Triggers.RoomAppeared)
	return c
}

// ends builds what ends claims.
func (c *Controllers) ends(p Parts) {
	c.delays = &delays{claims: c.claims, calls: c.calls, refusals: c.refusals, byPool: map[string]string{}}
	c.statics = &staticState{claims: c.claims, clock: p.Clock, pools: map[string]*static{}, ending: map[string]bool{}}
	c.orders = &orderBook{claims: c.claims, spending: p.Spending, calls: c.calls, orders: map[string]*order{}}
	c.cleanup = &cleanup{claims: c.claims, reservations: p.Reservations, spending: p.Spending, statics: c.statics, orders: c.orders, delays: c.delays,
		refusals: c.refusals, triggers: c.Triggers, calls: c.calls, relief: c.relief}
	c.Claims = &ClaimEvents{claims: c.claims, reservations: p.Reservations, spending: p.Spending, statics: c.statics, cleanup: c.cleanup,
		refusals: c.refusals, triggers: c.Triggers, relief: c.relief, dying: map[string]string{}, givenUp: map[string]string{}}
}

// plans builds what the planner's goroutine uses to make plans.
func (c *Controllers) plans(cfg Config, p Parts) {
	c.gangs = &gangPlans{plugin: p.Gangs, reservations: p.Reservations, pending: p.Pending, events: p.Events, refusals: c.refusals, triggers: c.Triggers,
		clock: p.Clock, pauses: map[pending.Group]pause{}, ungrouped: map[pending.Group]bool{}}
	c.gatherer = &gatherer{reservations: p.Reservations, pending: p.Pending, namespaces: c.Namespaces, gangs: c.gangs, nominees: map[types.UID]nominee{}}
	c.viewer = &viewer{claims: c.claims, cloud: p.Cloud, world: p.World, reservations: p.Reservations, pending: p.Pending, owners: p.Owners,
		daemons: p.Daemons, spending: p.Spending, tracker: c.Nodes, storage: c.storage, clock: p.Clock}
	c.planning = &planning{viewer: c.viewer, planner: p.Planner, world: p.World, nodes: p.Nodes, pending: p.Pending, spending: p.Spending,
		clock: p.Clock, options: cfg.Plan, refused: provisioning.NewFilterRefusals(p.Clock)}
	c.daemonRooms = &daemonRooms{reservations: p.Reservations, world: p.World, daemons: p.Daemons, triggers: c.Triggers}
	c.Replacements = &Replacements{reservations: p.Reservations, pending: p.Pending, namespaces: c.Namespaces, triggers: c.Triggers, clock: p.Clock,
		moves: map[string]*move{}}
	c.Ownership = &Ownership{claims: c.claims, reservations: p.Reservations, gatherer: c.gatherer, refusals: c.refusals, cleanup: c.cleanup,
		triggers: c.Triggers, calls: c.calls, hold: p.Hold}
}

// launches builds what carries plans out.
func (c *Controllers) launches(cfg Config, p Parts) {
	c.slots = &slotWriter{claims: c.claims, calls: c.calls, recording: map[string]bool{}}
	c.finisher = &finisher{claims: c.claims, cloud: p.Cloud, cluster: p.Cluster, nodes: p.Nodes, snapshot: c.snapshot, pending: p.Pending,
		reservations: p.Reservations, spending: p.Spending, tracker: c.Nodes, events: c.Claims, cleanup: c.cleanup, calls: c.calls}
	c.batches = &batchLauncher{claims: c.claims, cloud: p.Cloud, reservations: p.Reservations, statics: c.statics, namer: c.namer, delays: c.delays,
		cleanup: c.cleanup, finisher: c.finisher, ownership: c.Ownership, triggers: c.Triggers, calls: c.calls}
	c.committer = &committer{claims: c.claims, reservations: p.Reservations, events: p.Events, slots: c.slots, namer: c.namer, batches: c.batches, calls: c.calls}
	c.restorer = &restorer{claims: c.claims, cloud: p.Cloud, reservations: p.Reservations, pending: p.Pending, tracker: c.Nodes}
	c.resumption = &resumption{claims: c.claims, cloud: p.Cloud, batches: c.batches, delays: c.delays, cleanup: c.cleanup, ownership: c.Ownership, calls: c.calls}
	c.verdicts = &verdicts{reservations: p.Reservations, pending: p.Pending, spending: p.Spending, triggers: c.Triggers}
	if p.Spending != nil {
		c.writer = spending.NewWriter(p.Spending, spending.WriterParts{Clock: p.Clock, Claims: c.claims, All: c.claims.allClaims, TryNode: p.Cluster.TryNode,
			Each: c.calls.each, Paused: func() bool { return p.Hold() != "" || c.claims.Problem() != "" }})
	}
	c.recovery = &recovery{claims: c.claims, reservations: p.Reservations, restorer: c.restorer, resumption: c.resumption, spending: p.Spending,
		daemonRooms: c.daemonRooms, orders: c.orders, finisher: c.finisher, tracker: c.Nodes, cleanup: c.cleanup, ownership: c.Ownership, calls: c.calls}
	c.standalone = &standalone{orders: c.orders, claims: c.claims, cloud: p.Cloud, daemons: p.Daemons, purchases: c.purchases, batches: c.batches,
		finisher: c.finisher, cleanup: c.cleanup, ownership: c.Ownership, triggers: c.Triggers, calls: c.calls, options: cfg.Plan}
	c.staticPools = &staticPools{state: c.statics, claims: c.claims, cloud: p.Cloud, daemons: p.Daemons, snapshot: c.snapshot, judge: p.Judge,
		purchases: c.purchases, batches: c.batches, ownership: c.Ownership, triggers: c.Triggers, calls: c.calls, options: cfg.Plan}
}

// run builds the planner's goroutine and the Launcher.
func (c *Controllers) run(cfg Config, p Parts) {
	c.Rounds = &Rounds{claims: c.claims, gatherer: c.gatherer, gangs: c.gangs, planning: c.planning, purchases: c.purchases, committer: c.committer,
		refusals: c.refusals, ownership: c.Ownership, triggers: c.Triggers, clock: p.Clock, verdicts: c.verdicts, relief: c.relief}
	c.prober = &prober{claims: c.claims, reservations: p.Reservations, pending: p.Pending, spending: p.Spending, namespaces: c.Namespaces, gangs: c.gangs,
		planning: c.planning, purchases: c.purchases, committer: c.committer, refusals: c.refusals, ownership: c.Ownership, heldFrom: map[guard.Key]int{}}
	c.relocation = &relocation{moves: c.Replacements, claims: c.claims, reservations: p.Reservations, pending: p.Pending, planning: c.planning,
		purchases: c.purchases, committer: c.committer, ownership: c.Ownership, world: p.World}
	c.offers = &offers{reservations: p.Reservations, pending: p.Pending, viewer: c.viewer, world: p.World, planner: p.Rooms, nodes: p.Nodes,
		committer: c.committer, triggers: c.Triggers, options: cfg.Plan}
	c.provisioner = &provisioner{rounds: c.Rounds, prober: c.prober, relocation: c.relocation, offers: c.offers, daemonRooms: c.daemonRooms,
		recovery: c.recovery, triggers: c.Triggers, clock: p.Clock, batchIdle: cfg.BatchIdle, batchMax: cfg.BatchMax}
	c.effects = &effects{claims: c.claims, reservations: p.Reservations, pending: p.Pending, queue: p.Queue, events: p.Events, verdicts: c.verdicts,
		tracker: c.Nodes, cleanup: c.cleanup, ownership: c.Ownership, triggers: c.Triggers, calls: c.calls, relief: c.relief}
	c.Launcher = &Launcher{provisioner: c.provisioner, standalone: c.standalone, staticPools: c.staticPools, effects: c.effects, writer: c.writer,
		recovery: c.recovery, tracker: c.Nodes, ownership: c.Ownership, calls: c.calls, restored: make(chan struct{})}
}

// Restored is closed when the ledger has the reservations that an earlier leader made, or when there are none to restore. A pod whose
// scheduling cycle runs before may take a node that is reserved for another pod, and one node too many would be launched.
func (l *Launcher) Restored() <-chan struct{} { return l.restored }

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
func (l *Launcher) Run(ctx context.Context) {
	l.tracker.live.Store(true)
	l.calls.wg.Go(func() { l.effects.serve(ctx) })
	if l.writer != nil {
		l.calls.wg.Go(func() { l.writer.Run(ctx) })
	}
	if !l.ownership.readLog(ctx) {
		l.calls.wg.Wait()
		return
	}
	if l.ownership.free(ctx) {
		l.recovery.recover(ctx, func() { close(l.restored) })
		l.calls.wg.Go(func() { panics.Again(ctx, l.calls.clock, "orders", l.standalone.serveOrders) })
		l.calls.wg.Go(func() { panics.Again(ctx, l.calls.clock, "static pools", l.staticPools.serveStatic) })
		panics.Again(ctx, l.calls.clock, "planner", l.provisioner.servePlans)
	}
	l.calls.wg.Wait()
}
