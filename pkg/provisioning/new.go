package provisioning

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/commitments"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/moves"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning/burst"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning/filterrefusals"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning/limits"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
	"github.com/dovetail-scheduler/dovetail/pkg/spending"
)

// Config holds the settings of a Provisioner.
type Config struct {
	// A burst is planned when it has settled, which is looked at after each third of BatchIdle, or at the latest BatchMax after its first pod.
	BatchIdle, BatchMax time.Duration
	// MaxInFlight caps the claims that are not initialized yet.
	MaxInFlight int
	// NamespaceSelector selects the namespaces whose pods may cause launches; nil: all.
	NamespaceSelector labels.Selector
	Plan              capacity.Options
}

// Parts are what plans are made with: where the cluster's state comes from, the planner and the scheduler's filters.
type Parts struct {
	Clock        clock.WithTicker
	Reservations *reservations.Ledger
	Pending      *pending.Pods
	Owners       *pending.Owners
	Arrivals     burst.Arrivals  // nil: nothing is known of pods before they come
	Spending     *spending.Guard // nil: there is no guard
	Claims       Claims
	// Types returns the instance types of a node class, from memory.
	Types   func(nodeClass string) ([]*capacity.InstanceType, error)
	World   World
	Planner Planner
	// Rooms makes plans without pools, which buy nothing. It isn't the same as Planner, because a Planner remembers the pools of its last plan.
	Rooms   Planner
	Nodes   Nodes
	Gangs   Gangs // nil: no plugin handles groups
	Daemons func() []*capacity.DaemonSet
	Events  Recorder
}

// Carriers carry plans out, and know what has become of earlier ones.
type Carriers struct {
	Purchases Purchases
	Committer Committer
	Ownership Ownership
	Recovery  Recovery
	Launches  Launches
	Queue     Queue
	// Live reports whether the ledger knows the claims of nodes that boot: it doesn't where plans are only proposed.
	Live func() bool
	// Status returns the status of an existing node for the ledger.
	Status func(*corev1.Node) ledger.NodeStatus
	// Tainted hears that a new node got a taint that keeps its pods off.
	Tainted func(ledger.Tainted)
	// Background runs a func on a goroutine of its own. A process that stops waits for it.
	Background func(func())
	// LookAtLog has demand planned for again that was refused because the intent log was broken, once it isn't. It is called each second.
	LookAtLog func()
}

// Demand is what is known of waiting pods before a plan is made for them, and what they are told.
type Demand struct {
	Triggers   *Triggers
	Refusals   *Refusals
	Relief     *limits.Relief
	Namespaces *Namespaces
	Gatherer   *Gatherer
	Verdicts   *Verdicts
	Daemons    *DaemonCapacity
}

// NewDemand returns the part of provisioning that the packages which carry plans out need.
func NewDemand(cfg Config, p Parts) *Demand {
	t := newTriggers(p.Reservations)
	re := &Refusals{reservations: p.Reservations, pending: p.Pending, events: p.Events}
	ns := &Namespaces{pending: p.Pending, refusals: re, triggers: t, selector: cfg.NamespaceSelector}
	gangs := &gangPlans{plugin: p.Gangs, reservations: p.Reservations, pending: p.Pending, events: p.Events, refusals: re, triggers: t,
		clock: p.Clock, pauses: map[pending.Group]pause{}, ungrouped: map[pending.Group]bool{}}
	return &Demand{
		Triggers: t, Refusals: re, Relief: limits.New(cfg.MaxInFlight), Namespaces: ns,
		Gatherer: &Gatherer{reservations: p.Reservations, pending: p.Pending, namespaces: ns, gangs: gangs, nominees: pending.NewNominees(p.Pending)},
		Verdicts: &Verdicts{reservations: p.Reservations, pending: p.Pending, spending: p.Spending, triggers: t},
		Daemons:  &DaemonCapacity{reservations: p.Reservations, world: p.World, daemons: p.Daemons, triggers: t},
	}
}

// Controllers make plans and have them carried out.
type Controllers struct {
	Provisioner  *Provisioner
	Effects      *Effects
	Rounds       *Rounds
	Probes       *Probes
	Relocation   *Relocation
	Replacements *Replacements
	// Consolidation makes the passes that the disruption controller asks for.
	Consolidation *Consolidation
	Chunks        *Chunks
	Plans         *Plans
}

// New returns controllers that do nothing until Provisioner.Serve.
func New(cfg Config, p Parts, d *Demand, by Carriers) *Controllers {
	gangs := d.Gatherer.gangs
	v := &viewer{claims: p.Claims, types: p.Types, world: p.World, reservations: p.Reservations, pending: p.Pending, owners: p.Owners,
		daemons: p.Daemons, spending: p.Spending, live: by.Live, status: by.Status, storage: limits.NewStorage(p.Pending.Classes.Storage()), devices: limits.NewDevices(p.Pending.Classes.Devices()), clock: p.Clock}
	if len(cfg.Plan.Commitments) > 0 {
		v.commitments = commitments.New(cfg.Plan.Commitments)
	}
	plans := &planning{viewer: v, planner: p.Planner, world: p.World, nodes: p.Nodes, pending: p.Pending, spending: p.Spending,
		clock: p.Clock, options: cfg.Plan, refused: filterrefusals.New(p.Clock), moves: moves.New(p.Reservations, p.Pending.Classes)}
	passes, window := &passes{planner: consolidation.New()}, burst.NewWindow(p.Arrivals, p.Clock, cfg.BatchIdle, cfg.BatchMax)
	c := &Controllers{
		Rounds: &Rounds{claims: p.Claims, gatherer: d.Gatherer, gangs: gangs, planning: plans, purchases: by.Purchases, committer: by.Committer,
			refusals: d.Refusals, ownership: by.Ownership, triggers: d.Triggers, clock: p.Clock, verdicts: d.Verdicts, relief: d.Relief, window: window},
		Probes: &Probes{claims: p.Claims, reservations: p.Reservations, pending: p.Pending, spending: p.Spending, namespaces: d.Namespaces, gangs: gangs,
			planning: plans, committer: by.Committer, refusals: d.Refusals, ownership: by.Ownership, triggers: d.Triggers, heldFrom: map[guard.Key]int{}},
		Replacements: &Replacements{reservations: p.Reservations, pending: p.Pending, namespaces: d.Namespaces, triggers: d.Triggers, clock: p.Clock,
			moves: map[string]*move{}},
		Effects: &Effects{reservations: p.Reservations, pending: p.Pending, queue: by.Queue, events: p.Events, verdicts: d.Verdicts, launches: by.Launches,
			tainted: by.Tainted, lookAtLog: by.LookAtLog, triggers: d.Triggers, relief: d.Relief, clock: p.Clock, passes: passes},
	}
	c.Relocation = &Relocation{moves: c.Replacements, claims: p.Claims, reservations: p.Reservations, pending: p.Pending, planning: plans,
		committer: by.Committer, ownership: by.Ownership, world: p.World}
	c.Consolidation = &Consolidation{Moves: plans.moves, claims: p.Claims, namespaces: d.Namespaces, planning: plans, committer: by.Committer, ownership: by.Ownership,
		triggers: d.Triggers, background: by.Background, clock: p.Clock, passes: passes, refused: filterrefusals.NewMoves(p.Clock)}
	rooms := &offers{reservations: p.Reservations, pending: p.Pending, viewer: v, world: p.World, planner: p.Rooms, nodes: p.Nodes,
		committer: by.Committer, triggers: d.Triggers, options: cfg.Plan}
	c.Chunks = &Chunks{offers: rooms, claims: p.Claims, namespaces: d.Namespaces, planning: plans, ownership: by.Ownership}
	c.Plans = &Plans{offers: rooms, planning: plans}
	c.Provisioner = &Provisioner{rounds: c.Rounds, probes: c.Probes, relocation: c.Relocation, moves: c.Consolidation, daemons: d.Daemons, recovery: by.Recovery,
		offers: rooms, chunks: c.Chunks, triggers: d.Triggers, window: window}
	return c
}
