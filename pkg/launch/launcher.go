package launch

import (
	"context"
	"math/rand"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/bookings"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/launch/records"
	"github.com/dovetail-scheduler/dovetail/pkg/panics"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning/burst"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
	"github.com/dovetail-scheduler/dovetail/pkg/spending"
	"github.com/dovetail-scheduler/dovetail/pkg/staticpool"
)

// logPatience is how long pods wait for the intent log to be read before their events mention it.
const logPatience = 5 * time.Second

// Config holds the settings of a Launcher.
type Config struct {
	Cluster string // part of every launch batch token
	// A burst of pods is planned when no more pods arrive, which is checked after each third of BatchIdle, at the latest BatchMax after its first.
	BatchIdle, BatchMax time.Duration
	// MaxInFlight caps the claims that are not initialized yet.
	MaxInFlight int
	// NamespaceSelector selects the namespaces whose pods may cause launches; nil: all.
	NamespaceSelector labels.Selector
	// Parallel is how many API and cloud calls of launches may run at once. For cleanup and records a quarter as many may run in addition.
	Parallel int
	Plan     capacity.Options
}

// Launcher runs the controllers of this package. All of their goroutines run between the start and the return of Run.
type Launcher struct {
	provisioner *provisioning.Provisioner
	standalone  *standalone
	staticPools *staticpool.Controller
	effects     *provisioning.Effects
	writer      *spending.Writer // nil: there is no spending guard
	recovery    *recovery
	tracker     *NodeTracker
	ownership   *Ownership
	calls       *calls
	restored    chan struct{} // closed when the reservations of an earlier leader are in the ledger
}

// Parts holds what the controllers of this package use of other packages.
type Parts struct {
	Clock          clock.WithTicker
	Reservations   *reservations.Ledger
	Cloud          Cloud
	NodeClass      capacity.NodeClassLabel // of the cloud's node classes
	Claims         ClaimLog
	World, Recheck provisioning.World
	Planner        provisioning.Planner
	// Rooms plans without pools, so that its plans buy nothing. It is a second Planner because a Planner remembers the catalog of its last plan.
	Rooms   provisioning.Planner
	Nodes   NodeBuilder
	Cluster Cluster
	Queue   provisioning.Queue
	Events  provisioning.Recorder
	Pending *pending.Pods
	Owners  *pending.Owners
	// Arrivals know whether pods are about to come; they make no call. nil: a burst has settled when no pod has arrived in its window.
	Arrivals burst.Arrivals
	Gangs    provisioning.Gangs // nil: no plugin handles groups
	Daemons  func() []*capacity.DaemonSet
	Judge    staticpool.Judge // what ending a pod costs, and whether the pod protects its node; nil: each pod costs 1 and protects none
	// Spare reports whether a static pool is to have one node more than its replicas, which takes the place of a drifted one (wanted), and
	// whether that can be told yet (known). nil: no pool is.
	Spare func(pool string) (wanted, known bool)
	// Spending is asked before anything is bought; nil: there is no guard.
	Spending *spending.Guard
	// Hold, when set, returns why nothing may be launched now (another controller owns nodes and claims), or nil. Changed has to be called
	// when that is over.
	Hold func() error
	// Taints returns the taints of a Node as the API has them, including those hidden from the scheduler; nil: none are hidden.
	Taints func(*corev1.Node) []corev1.Taint
	Seed   int64
}

// Controllers are the controllers of this package as New has connected them.
type Controllers struct {
	Launcher      *Launcher
	Nodes         *NodeTracker
	Claims        *ClaimEvents
	Replacements  *provisioning.Replacements
	Consolidation *provisioning.Consolidation
	Chunks        *provisioning.Chunks
	Bookings      *bookings.Bookings
	Namespaces    *provisioning.Namespaces
	Ownership     *Ownership
	Triggers      *provisioning.Triggers
	Rounds        *provisioning.Rounds

	demand      *provisioning.Demand
	plans       *provisioning.Controllers
	claims      *claimCache
	calls       *calls
	batches     *batchLauncher
	purchases   *purchases
	cleanup     *cleanup
	committer   *committer
	delays      *delays
	finisher    *finisher
	namer       *namer
	orders      *orderBook
	recovery    *recovery
	restorer    *restorer
	resumption  *resumption
	slots       *slotWriter
	snapshot    *snapshot
	standalone  *standalone
	statics     *staticpool.State
	staticPools *staticpool.Controller
	writer      *spending.Writer
}

// New returns controllers that do nothing until Launcher.Run.
func New(cfg Config, p Parts) *Controllers {
	if p.Judge == nil {
		p.Judge = func(*corev1.Pod, time.Time) (float64, bool) { return 1, false }
	}
	if p.Spare == nil {
		p.Spare = func(string) (wanted, known bool) { return false, true }
	}
	if p.Hold == nil {
		p.Hold = func() error { return nil }
	}
	if p.Taints == nil {
		p.Taints = func(n *corev1.Node) []corev1.Taint { return n.Spec.Taints }
	}
	claims := &claimCache{ClaimLog: p.Claims, local: map[string]*capacity.Claim{}}
	settings := provisioning.Config{BatchIdle: cfg.BatchIdle, BatchMax: cfg.BatchMax, MaxInFlight: cfg.MaxInFlight,
		NamespaceSelector: cfg.NamespaceSelector, Plan: cfg.Plan}
	from := provisioning.Parts{Clock: p.Clock, Reservations: p.Reservations, Pending: p.Pending, Owners: p.Owners, Arrivals: p.Arrivals, Spending: p.Spending, Claims: claims,
		Types: p.Cloud.InstanceTypes, World: p.World, Planner: p.Planner, Rooms: p.Rooms, Nodes: p.Nodes, Gangs: p.Gangs, Daemons: p.Daemons, Events: p.Events}
	demand := provisioning.NewDemand(settings, from)
	c := &Controllers{
		demand: demand, Triggers: demand.Triggers, Namespaces: demand.Namespaces, claims: claims, calls: newCalls(p.Clock, cfg.Parallel),
		namer:    &namer{clusterName: cfg.Cluster, names: rand.New(rand.NewSource(p.Seed))},
		snapshot: &snapshot{world: p.Recheck},
	}
	c.purchases = &purchases{claims: c.claims, reservations: p.Reservations, pending: p.Pending, spending: p.Spending, namer: c.namer,
		clock: p.Clock, types: p.Cloud.InstanceTypes, relief: demand.Relief, maxInFlight: cfg.MaxInFlight}
	c.Nodes = &NodeTracker{claims: c.claims, reservations: p.Reservations, spending: p.Spending, triggers: c.Triggers, states: nodeStates{
		drivers: map[string]drivers{}, seen: map[string]ledger.NodeStatus{}, objects: map[string]*corev1.Node{}, usable: map[string][]string{},
		storage: p.Pending.Classes.Storage(), devices: p.Pending.Classes.Devices(), taints: p.Taints, expected: p.Claims.ExpectedTaints, nodeClass: p.NodeClass}}
	c.ends(p)
	c.launches(cfg, p)
	c.plans = provisioning.New(settings, from, demand, provisioning.Carriers{Purchases: c.purchases, Committer: c.committer, Ownership: c.Ownership,
		Recovery: c.recovery, Launches: c.cleanup, Queue: p.Queue, Tainted: c.Nodes.tainted, LookAtLog: c.Ownership.lookAtLog,
		Live: c.Nodes.live.Load, Status: c.Nodes.states.status, Background: c.calls.wg.Go})
	c.Replacements, c.Rounds, c.Consolidation, c.Chunks = c.plans.Replacements, c.plans.Rounds, c.plans.Consolidation, c.plans.Chunks
	c.Bookings = bookings.New(bookings.Parts{Clock: p.Clock, Reservations: p.Reservations, Plans: c.plans.Plans, Committer: c.committer, Ownership: c.Ownership,
		Problem: claims.Problem, MayLaunch: demand.Namespaces.MayLaunch, Replan: demand.Triggers.Replan, Named: p.Pending.NamedBy})
	c.plans.Provisioner.OnBookings(c.Bookings.Keep)
	demand.Gatherer.OnUnprovisioned(c.Bookings.Unprovisioned)
	c.Launcher = &Launcher{provisioner: c.plans.Provisioner, standalone: c.standalone, staticPools: c.staticPools, effects: c.plans.Effects, writer: c.writer,
		recovery: c.recovery, tracker: c.Nodes, ownership: c.Ownership, calls: c.calls, restored: make(chan struct{})}
	p.Pending.OnPodLeft(c.Triggers.RoomAppeared)
	return c
}

// ends builds what ends claims.
func (c *Controllers) ends(p Parts) {
	c.delays = &delays{claims: c.claims, calls: c.calls, refusals: c.demand.Refusals, byPool: map[string]string{}}
	c.statics = staticpool.NewState(c.claims, p.Clock)
	c.orders = &orderBook{claims: c.claims, spending: p.Spending, statics: c.statics, calls: c.calls, orders: map[string]*order{}}
	c.cleanup = &cleanup{claims: c.claims, reservations: p.Reservations, spending: p.Spending, statics: c.statics, orders: c.orders, delays: c.delays,
		refusals: c.demand.Refusals, triggers: c.Triggers, calls: c.calls, relief: c.demand.Relief}
	c.Claims = &ClaimEvents{claims: c.claims, reservations: p.Reservations, spending: p.Spending, statics: c.statics, cleanup: c.cleanup,
		refusals: c.demand.Refusals, triggers: c.Triggers, relief: c.demand.Relief, dying: map[string]string{}, givenUp: map[string]string{}}
}

// launches builds what carries plans out.
func (c *Controllers) launches(cfg Config, p Parts) {
	c.Ownership = &Ownership{claims: c.claims, reservations: p.Reservations, gatherer: c.demand.Gatherer, refusals: c.demand.Refusals, cleanup: c.cleanup,
		triggers: c.Triggers, calls: c.calls, holds: p.Hold}
	c.slots = &slotWriter{claims: c.claims, calls: c.calls, recording: map[string]bool{}}
	c.finisher = &finisher{claims: c.claims, cloud: p.Cloud, cluster: p.Cluster, nodes: p.Nodes, snapshot: c.snapshot, pending: p.Pending,
		reservations: p.Reservations, spending: p.Spending, tracker: c.Nodes, events: c.Claims, cleanup: c.cleanup, calls: c.calls}
	c.batches = &batchLauncher{claims: c.claims, cloud: p.Cloud, reservations: p.Reservations, namer: c.namer, delays: c.delays,
		cleanup: c.cleanup, finisher: c.finisher, ownership: c.Ownership, triggers: c.Triggers, calls: c.calls}
	c.committer = &committer{purchases: c.purchases, reservations: p.Reservations, events: p.Events, slots: c.slots, namer: c.namer, batches: c.batches, tracker: c.Nodes, calls: c.calls}
	c.restorer = &restorer{claims: c.claims, cloud: p.Cloud, cluster: p.Cluster, clock: p.Clock, reservations: p.Reservations, pending: p.Pending, tracker: c.Nodes}
	by := requesters{capacity.ForPods: ledgerRequester{p.Reservations}, capacity.ForOrder: c.orders, capacity.ForPool: c.statics}
	c.resumption = &resumption{claims: c.claims, cloud: p.Cloud, reservations: p.Reservations, requesters: by, batches: c.batches, delays: c.delays, cleanup: c.cleanup, ownership: c.Ownership, calls: c.calls}
	paused := func() bool { return p.Hold() != nil || c.claims.Problem() != nil }
	if p.Spending != nil {
		c.writer = spending.NewWriter(p.Spending, spending.WriterParts{Clock: p.Clock, Claims: c.claims, All: c.claims.All, TryNode: p.Cluster.TryNode,
			Each: c.calls.each, Paused: paused})
	}
	c.recovery = &recovery{claims: c.claims, reservations: p.Reservations, restorer: c.restorer, resumption: c.resumption, spending: p.Spending,
		daemonCapacity: c.demand.Daemons, orders: c.orders, requesters: by, finisher: c.finisher, tracker: c.Nodes, cleanup: c.cleanup, ownership: c.Ownership, calls: c.calls,
		unanswered: records.NewUnanswered()}
	c.standalone = &standalone{orders: c.orders, claims: c.claims, cloud: p.Cloud, daemons: p.Daemons, purchases: c.purchases, committer: c.committer,
		finisher: c.finisher, cleanup: c.cleanup, ownership: c.Ownership, triggers: c.Triggers, calls: c.calls, options: cfg.Plan}
	c.staticPools = staticpool.New(staticpool.Parts{State: c.statics, Claims: c.claims, Daemons: p.Daemons, Nodes: c.snapshot.nodes, Judge: p.Judge, Spare: p.Spare,
		Pools:    func() []*capacity.Pool { return c.claims.Pools(p.Cloud.InstanceTypes) },
		Headroom: c.purchases.Headroom, Committer: c.committer, Paused: paused, Background: c.calls.background, Triggers: c.Triggers,
		Clock: p.Clock, Options: cfg.Plan})
}

// Restored is closed when the ledger has the reservations that an earlier leader made, or when another controller owns the nodes: none are
// restored then. A pod whose scheduling cycle runs before may take a node that is reserved for another pod: one too many would be launched.
func (l *Launcher) Restored() <-chan struct{} { return l.restored }

// Run plans and launches until ctx ends, then waits until everything under way has stopped. Only the leader runs it.
//
//  1. In the background: carry out the ledger's effects (open gates, cancel claims), and tell it the time once in a while.
//  2. Read the intent log, and resume what an earlier leader left: claims without instances, instances without nodes,
//     reservations. Until the log can be read, and as long as another controller owns the nodes, nothing is launched, and
//     events on the waiting pods say why.
//  3. When there is demand, or capacity has appeared: wait until the burst has settled.
//  4. Offer capacity that has appeared to pods that wait for instances in flight (offer).
//  5. Take a view of the cluster, plan, have the plan verified, write it to the ledger (round).
//  6. Launch it in the background: the next burst doesn't wait for these instances.
//  7. Buy the probes of the spending guard that are due (probe).
//  8. Do the same for the pods of nodes that are being replaced (relocate).
//  9. When no pods wait: reserve capacity for the pods of used nodes that are worth emptying (consolidate).
func (l *Launcher) Run(ctx context.Context) {
	l.tracker.live.Store(true)
	l.calls.wg.Go(func() { l.effects.Serve(ctx) })
	if l.writer != nil {
		l.calls.wg.Go(func() { l.writer.Run(ctx) })
	}
	if !l.ownership.readLog(ctx) {
		l.calls.wg.Wait()
		return
	}
	restored := sync.OnceFunc(func() { close(l.restored) })
	if l.ownership.free(ctx, restored) {
		l.recovery.recover(ctx, restored)
		l.calls.wg.Go(func() { panics.Again(ctx, l.calls.clock, "orders", l.standalone.serveOrders) })
		l.calls.wg.Go(func() { panics.Again(ctx, l.calls.clock, "static pools", l.staticPools.Serve) })
		panics.Again(ctx, l.calls.clock, "planner", l.provisioner.Serve)
	}
	l.calls.wg.Wait()
}
