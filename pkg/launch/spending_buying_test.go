package launch

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
	"github.com/dovetail-scheduler/dovetail/pkg/spending"
)

var (
	badImage = guard.MachineKey("class", "", "")
	badPods  = guard.PodKey("pool", guard.Workload{Namespace: "d", Owner: "ReplicaSet/"}) // of the world's pods
	broken   = guard.Fault{Machine: true, Cause: "never registered", Message: "no kubelet came"}
	thrown   = guard.Fault{Cause: "taint x", Message: "taint x evicts it"}
)

// bought returns the names of the claims that were launched.
func (w *world) bought() (names []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, c := range w.claims {
		if c.ProviderID != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// says reports whether an event with these words was written.
func (w *world) says(words ...string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.notes, func(n string) bool {
		return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(n, word) })
	})
}

// Of several standalone NodeClaims one is bought, as a probe; the others are paused, and say why.
func TestOrdersAreHeldButForOneProbe(t *testing.T) {
	w, _ := guarded(t, spending.Config{})
	w.opens(badImage, broken)
	for i := range 8 {
		w.writes(fmt.Sprint("mine-", i))
	}
	w.parts.standalone.takeOrders(t.Context()) // all at once
	w.settled()
	names := w.bought()
	if len(names) != 1 {
		t.Fatalf("bought %v, want one", names)
	}
	if got := w.claims[names[0]].Purchase.Probes; !slices.Equal(got, []guard.Key{badImage}) {
		t.Errorf("a probe of %v", got)
	}
	if !w.says("Paused for good", "node class class", "no kubelet came", "one machine is being tried") {
		t.Errorf("told %q", w.notes)
	}
}

// To the guard a standalone NodeClaim that was paused for hours is as old as its instance, also after a restart.
func TestOrderIsBoughtWhenItIsLetGo(t *testing.T) {
	w, c := guarded(t, spending.Config{})
	w.writes("mine", func(c *capacity.Claim) { c.CreatedAt = epoch.Add(-5 * time.Hour) })
	w.parts.standalone.takeOrders(t.Context())
	w.settled()
	for range 2 {
		if got := w.claims["mine"].Purchase; w.spending.Decided("mine") || got.When != epoch.Unix() {
			t.Errorf("%+v, want it bought at %s", got, epoch)
		}
		w.leads()
	}
	c.Step(time.Hour)
	before, _ := metric(t, "dovetail_unserved_dollars_total", "", "")
	w.spending.Wasted(w.parts.claims.Claim("mine"))
	if now, _ := metric(t, "dovetail_unserved_dollars_total", "", ""); now-before > 2.01 || now <= before {
		t.Errorf("$%.2f were spent on an hour of a machine for $2", now-before)
	}
	others := &capacity.Claim{Name: "karpenters", Pool: "pool", NodeClass: "class", Launched: true, InstanceType: "large", Zone: "a", CapacityType: "on-demand", CreatedAt: epoch.Add(-time.Hour)}
	before, _ = metric(t, "dovetail_unserved_dollars_total", "pool", "")
	w.spending.Wasted(others)
	if now, _ := metric(t, "dovetail_unserved_dollars_total", "pool", ""); now != before {
		t.Errorf("a machine that nobody watched has cost $%.2f for nothing", now-before)
	}
}

// A probe that isn't launched after all no longer counts: another one may be bought.
func TestOrderThatIsNotLaunchedIsNoProbe(t *testing.T) {
	for name, fails := range map[string]func(*world){
		"it can't be written":        func(w *world) { w.broken["Take"] = errors.New("conflict") },
		"the cloud will not have it": func(w *world) { w.broken["Launch"] = capacity.ErrRefused },
	} {
		t.Run(name, func(t *testing.T) {
			w, c := guarded(t, spending.Config{})
			w.opens(badImage, broken)
			fails(w)
			w.writes("mine")
			w.parts.standalone.takeOrders(t.Context())
			w.settled()
			clear(w.broken)
			c.Step(2 * time.Minute)
			w.spending.Settle(w.reservations)
			w.parts.standalone.takeOrders(t.Context())
			w.settled()
			if got := w.bought(); len(got) != 1 {
				t.Errorf("bought %v; told %q", got, w.notes)
			}
		})
	}
}

// A static pool gets one node as a probe, and reports why it has no more.
func TestStaticPoolIsHeldButForOneProbe(t *testing.T) {
	for _, k := range []guard.Key{badImage, guard.PodKey("pool", guard.Workload{Owner: "NodePool/pool"})} {
		w, c := guarded(t, spending.Config{})
		w.opens(k, guard.Fault{Machine: k.Machine(), Cause: "x", Message: "it does not come up"})
		w.wants(3)
		for range 5 {
			w.parts.staticPools.Keep(t.Context())
			w.settled()
			c.Step(10 * time.Second)
		}
		if got := w.bought(); len(got) != 1 {
			t.Errorf("%s: bought %v, want one", k, got)
		}
		if !w.says("TooFewNodes", "it does not come up") {
			t.Errorf("%s: told %q", k, w.notes)
		}
		// It is initialized: the others follow.
		for _, name := range w.bought() {
			cl := w.parts.claims.Claim(name)
			cl.Initialized, cl.InitializedAt = true, c.Now()
			w.spending.Observe(cl)
		}
		c.Step(2 * time.Minute)
		w.spending.Settle(w.reservations)
		w.parts.staticPools.Keep(t.Context())
		w.settled()
		if got := w.bought(); len(got) != 3 {
			t.Errorf("%s: bought %v, want three when it is over", k, got)
		}
	}
}

// Pods wait, get the reason, and one instance is bought for some of them, which probes all breakers that stop them.
func TestOneMachineProbesAllThatHoldsTheSamePods(t *testing.T) {
	w, c := guarded(t, spending.Config{})
	w.opens(badImage, broken)
	w.opens(badPods, thrown)
	w.submit(8)
	w.plans()
	if got := w.bought(); len(got) != 0 {
		t.Fatalf("bought %v", got)
	}
	for range 3 {
		w.parts.plans.Probes.Probe(t.Context())
		w.settled()
		c.Step(30 * time.Second)
	}
	names := w.bought()
	if len(names) != 1 {
		t.Fatalf("bought %v, want one", names)
	}
	if got := w.claims[names[0]].Purchase.Probes; len(got) != 2 {
		t.Errorf("a probe of %v, want both", got)
	}
}

// A probe that a budget forbids is not planned each second.
func TestProbeOverBudgetWaits(t *testing.T) {
	w, _ := guarded(t, spending.Config{Budget: spending.Budget{DollarsPerHour: 0.5}})
	w.opens(badPods, thrown)
	w.submit(1)
	w.plans()
	w.parts.plans.Probes.Probe(t.Context())
	if got := w.spending.Due(); len(got) != 0 || len(w.bought()) != 0 {
		t.Errorf("due again at once: %v; bought %v", got, w.bought())
	}
}

// changing plans while pools change, and the ledger hears of that before the plan is there.
type changing struct {
	plain
	triggers *provisioning.Triggers
}

func (c changing) Plan(v *capacity.View, o capacity.Options) *capacity.Plan {
	c.triggers.Changed()
	<-c.triggers.OfferingsChanged()
	return c.plain.Plan(v, o)
}

// Pools change while a probe is planned that is refused then: its pods are planned for again.
func TestProbeThatIsRefusedMissesNoChange(t *testing.T) {
	w, _ := guarded(t, spending.Config{Budget: spending.Budget{DollarsPerHour: 0.5}})
	w.opens(badPods, thrown)
	w.submit(1)
	w.plans()
	w.planner = changing{triggers: w.parts.Triggers}
	w.parts.plans.Probes.Probe(t.Context())
	if w.planner = (plain{}); len(w.bought()) != 0 {
		t.Fatalf("bought %v", w.bought())
	}
	select {
	case <-w.parts.Triggers.OfferingsChanged():
	default:
		t.Error("the change is lost")
	}
}

// If another purchase has taken a breaker's probe, a probe that was planned meanwhile is refused.
func TestProbeIsBoughtOnce(t *testing.T) {
	w, _ := guarded(t, spending.Config{})
	w.opens(badImage, broken)
	plan := func() *capacity.Plan {
		n := cheapest(w.Pools(w.InstanceTypes)[0], "new-0")
		return &capacity.Plan{Nodes: []*capacity.PlannedNode{n}, Placements: []capacity.Placement{{Class: &capacity.Class{Pod: w.pod(0)}, Pod: capacity.RefOf(w.pod(0)), Node: n.ID}}}
	}
	a, b := plan(), plan()
	how := provisioning.Terms{Lifted: w.spending.Due()}
	w.parts.purchases.reserve(&provisioning.Proposal{Plan: a, Terms: how}, nil)
	w.parts.purchases.reserve(&provisioning.Proposal{Plan: b, Terms: how}, nil)
	if len(a.Nodes) != 1 || len(b.Nodes) != 0 || len(b.Refused) != 1 {
		t.Errorf("%d and %d nodes bought", len(a.Nodes), len(b.Nodes))
	}
}

// A breaker stops replacements, too.
func TestReplacementIsHeld(t *testing.T) {
	w, _ := guarded(t, spending.Config{})
	node, pods := w.fullNode(2)
	w.opens(badImage, broken)
	_, _ = w.parts.Replacements.Replace(node, pods, nil)
	w.parts.plans.Relocation.Relocate(t.Context())
	w.settled()
	if got := w.bought(); len(got) != 0 {
		t.Errorf("bought %v", got)
	}
	if ready, why := w.parts.Replacements.Replace(node, pods, nil); ready || why == nil {
		t.Errorf("ready: %v, why: %v", ready, why)
	}
}

// together plans as for pods that are placed by where the other pods of the plan are.
type together struct{ plain }

func (p together) Plan(v *capacity.View, o capacity.Options) *capacity.Plan {
	out := p.plain.Plan(v, o)
	for i := range out.Placements {
		out.Placements[i].Group = 1
	}
	return out
}

// Of an image without any initialized node only so many instances are bought.
func TestNewImages(t *testing.T) {
	for name, planner := range map[string]provisioning.Planner{"plain pods": plain{}, "pods that count on each other's places": together{}} {
		t.Run(name, func(t *testing.T) {
			w, _ := guarded(t, spending.Config{NewImageNodes: 2})
			w.planner = planner
			w.overlay = func(it *capacity.InstanceType) *capacity.InstanceType {
				own := *it
				own.Image = "ami-new"
				return &own
			}
			w.submit(40) // ten large ones
			w.plans()
			if got := w.bought(); len(got) != 2 {
				t.Errorf("bought %d, want 2", len(got))
			}
			if !w.says("no node of image ami-new", "newImageNodes") {
				t.Errorf("told %q", w.notes)
			}
			for _, pod := range w.pending.All() {
				class, err := w.pending.Classes.Class(pod)
				if err != nil {
					t.Fatal(err)
				}
				if wait, why := w.reservations.Submit(capacity.RefOf(pod), class); !wait {
					t.Errorf("pod %s may have others evicted for the time that a node takes to boot: %s", pod.Name, why)
				}
			}
		})
	}
}
