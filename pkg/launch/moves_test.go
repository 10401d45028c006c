package launch

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/spending"
)

// free adds a node that existed before, with capacity for n pods.
func (w *world) free(name string, n int) {
	w.nodes[name] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{labelPool: "pool", labelInitialized: "true"}},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(n), resource.DecimalSI), corev1.ResourcePods: resource.MustParse("10")}}}
}

// used makes a world with the node old, which has these pods and costs as much as a large one, and capacity for others on the node free.
func used(t *testing.T, pods, free int) (*world, map[string][]*corev1.Pod) {
	w := newWorld(t)
	if free > 0 {
		w.free("free", free)
	}
	w.free("old", pods)
	w.podsOn = map[string][]*corev1.Pod{}
	for i := range pods {
		pod := w.pod(1000 + i)
		pod.Spec.NodeName, pod.OwnerReferences[0].UID = "old", "their-rs"
		w.bound[pod.UID] = "old"
		w.podsOn["old"] = append(w.podsOn["old"], pod)
	}
	return w, map[string][]*corev1.Pod{"old": w.podsOn["old"]}
}

// pass asks for a pass over the node old and returns its result.
func (w *world) pass() *consolidation.Result { return w.passFor(false, nil) }

// passFor is pass; between the proposal and what comes of it, something may happen.
func (w *world) passFor(only bool, between func()) *consolidation.Result {
	return w.passOf(consolidation.Request{ProposeOnly: only}, "", between)
}

// passOf is passFor with what else is asked for; the node has to be emptied for the reason, if there is one.
func (w *world) passOf(r consolidation.Request, forced consolidation.Reason, between func()) *consolidation.Result {
	w.t.Helper()
	x := consolidation.Candidate{Node: "old", Pool: "pool", Price: 2, CapacityType: "on-demand", CreatedAt: w.clock.Now().Add(-2 * time.Hour), Forced: forced}
	for _, pod := range w.podsOn["old"] {
		_, class, err := w.pending.Classes.Successor(pod)
		if err != nil {
			w.t.Fatal(err)
		}
		x.Pods = append(x.Pods, consolidation.Pod{Ref: capacity.RefOf(pod), Class: class, Owner: "their-rs", Cost: 1})
	}
	p := consolidation.DefaultPolicy()
	p.RestartCost, p.Budgets = 0, map[consolidation.Reason]int{consolidation.Underutilized: 10, consolidation.Drifted: 10}
	c := w.parts.Consolidation
	r.Candidates, r.Pools = []consolidation.Candidate{x}, map[string]consolidation.Policy{"pool": p}
	c.Ask(&r)
	c.Consolidate(w.t.Context())
	w.settled()
	if between != nil {
		between()
	}
	c.Consolidate(w.t.Context())
	return c.Result()
}

// cordoned reports whether the ledger keeps pods off a node.
func (w *world) cordoned(node string) (yes bool) {
	w.reservations.Read(func(l ledger.Reader) {
		for _, f := range l.InFlight() {
			yes = yes || f.Name == node && f.Fenced
		}
	})
	return yes
}

// moves is pass if it has reserved capacity for a move.
func (w *world) moves() consolidation.Due {
	w.t.Helper()
	r := w.pass()
	if r == nil || len(r.Moves) != 1 {
		w.t.Fatalf("the pass has found %+v, want one move", r)
	}
	return r.Moves[0]
}

func TestMoveToFreeCapacity(t *testing.T) {
	w, pods := used(t, 2, 2)
	w.build()
	m := w.moves()
	if len(m.New) > 0 || len(w.claims) > 0 {
		t.Errorf("nodes are launched although there is free capacity: %v", w.claims)
	}
	if w.reservations.Fence("free") {
		t.Error("the node that the pods will come to can be ended")
	}
	ready, err := w.parts.Consolidation.Ready(m.Key, pods)
	if !ready || err != nil {
		t.Fatalf("ready %v (%v), want ready: the capacity is there", ready, err)
	}
	// A pod that the owner creates before the drain has begun is not one of the successors.
	class := m.Placements[0].Class
	if w.reservations.Adopt(capacity.PodRef{UID: "early"}, class) {
		t.Error("another pod of the owner takes what is reserved for the move before that has begun")
	}
	if err := w.parts.Consolidation.Begin(m.Key, pods); err != nil {
		t.Fatal(err)
	}
	if !w.reservations.Adopt(capacity.PodRef{UID: "late"}, class) {
		t.Error("a successor gets nothing although the move has begun")
	}
	w.parts.Consolidation.Forget(m.Key)
	w.reservations.Forget("late", true)
	if _, err := w.parts.Consolidation.Ready(m.Key, pods); err == nil {
		t.Error("a move that was forgotten is ready")
	}
}

// What a pass reserves is released, and the cordon lifted, when the move is not made.
func TestMoveThatIsNotMadeLeavesNothing(t *testing.T) {
	w, _ := used(t, 2, 2)
	w.build()
	m := w.moves()
	w.parts.Consolidation.Forget(m.Key)
	if !w.reservations.Fence("free") || !w.reservations.Fence("old") {
		t.Error("something is reserved")
	}
}

func TestMoveToANewNode(t *testing.T) {
	w, pods := used(t, 1, 0)
	w.build()
	m := w.moves()
	if len(m.New) != 1 || len(m.Claims) != 1 {
		t.Fatalf("the move has new nodes %v with claims %v, want one", m.New, m.Claims)
	}
	c := w.parts.Consolidation
	if ready, err := c.Ready(m.Key, pods); ready || err != nil {
		t.Errorf("ready %v (%v) though the new node has not been launched", ready, err)
	}
	if err := c.Begin(m.Key, pods); err == nil {
		t.Error("the move begins before its node is up")
	}
	w.until("the node", func() bool { return len(w.nodes) == 2 })
	w.settled()
	w.up()
	if err := c.Begin(m.Key, pods); err != nil {
		t.Errorf("the move can't begin though its node is up: %v", err)
	}
	for _, made := range w.claims {
		if made.Purchase != nil && !made.Purchase.Moves {
			t.Error("the guard would take its pods for pods that wait")
		}
	}
}

// A pod that has come to the node since has nowhere to go.
func TestMoveWithoutCapacityForAll(t *testing.T) {
	w, pods := used(t, 1, 1)
	w.build()
	m := w.moves()
	more := w.pod(2000)
	more.Spec.NodeName = "old"
	pods["old"] = append(pods["old"], more)
	if _, err := w.parts.Consolidation.Ready(m.Key, pods); err == nil || !strings.Contains(err.Error(), "no capacity is reserved for") {
		t.Errorf("the error is %v", err)
	}
}

// Pods that wait get what is reserved for a move that has not begun, and nothing is bought for them.
func TestDemandComesBeforeMoves(t *testing.T) {
	for _, begun := range []bool{false, true} {
		w, pods := used(t, 2, 2)
		w.build()
		m := w.moves()
		c := w.parts.Consolidation
		if begun {
			if err := c.Begin(m.Key, pods); err != nil {
				t.Fatal(err)
			}
		}
		w.submit(2)
		w.plans()
		w.settled()
		if begun != (len(w.claims) > 0) {
			t.Errorf("begun %v: %d nodes were launched for two pods", begun, len(w.claims))
		}
		_, err := c.Ready(m.Key, pods)
		if begun != (err == nil) {
			t.Errorf("begun %v: the move is %v", begun, err)
		}
		if err != nil && !strings.Contains(err.Error(), "pods that wait need its capacity") {
			t.Errorf("the move was given up because %v", err)
		}
		if w.cordoned("old") != begun {
			t.Errorf("begun %v: the node is cordoned: %v", begun, !begun)
		}
	}
}

// A node that has to end can be cordoned although moves have reserved capacity there.
func TestMoveLeavesANodeThatHasToEnd(t *testing.T) {
	w, pods := used(t, 2, 2)
	w.build()
	m := w.moves()
	w.parts.Consolidation.Leave("free")
	if !w.reservations.Fence("free") {
		t.Error("the node can't be cordoned")
	}
	if _, err := w.parts.Consolidation.Ready(m.Key, pods); err == nil || !strings.Contains(err.Error(), "has to end") {
		t.Errorf("the error is %v", err)
	}
}

// What the filters refuse is not reserved, and not proposed again at once.
func TestFiltersRefuseAMove(t *testing.T) {
	w, _ := used(t, 2, 2)
	asked := 0
	w.rejects = func(tr capacity.Trial) (out []capacity.Rejection) {
		for i := range tr.Steps {
			if tr.Steps[i].Node == "free" {
				asked++
				out = append(out, capacity.Rejection{Step: i, Plugin: "Picky", Reason: "not there"})
			}
		}
		return out
	}
	w.build()
	r := w.pass()
	if len(r.Moves) > 0 || len(r.Kept) != 1 || !strings.Contains(r.Kept[0].Message, "Picky filter refuses pod d/p1000 on node free: not there") {
		t.Fatalf("moves %v, kept %+v", r.Moves, r.Kept)
	}
	if !w.reservations.Fence("old") {
		t.Error("something is planned for the node")
	}
	w.reservations.Unfence("old")
	before := asked
	if r = w.pass(); asked != before {
		t.Errorf("the filters are asked again about the same: %+v", r)
	}
}

// A move that can't have all of its nodes gets none.
func TestMoveIsLaunchedAsAWhole(t *testing.T) {
	w, _ := used(t, 1, 0)
	w.maxInFlight = 1 // half of them are left to demand
	w.build()
	r := w.pass()
	if len(r.Moves) > 0 || len(w.claims) > 0 {
		t.Fatalf("moves %v, claims %v", r.Moves, w.claims)
	}
	if len(r.Kept) != 1 || !strings.Contains(r.Kept[0].Message, "maxClaimsInFlight") {
		t.Errorf("kept: %+v", r.Kept)
	}
	if !w.reservations.Fence("old") {
		t.Error("something is planned for the node")
	}
}

// A pod that leaves between the proposal and the reservation is not moved.
func TestMoveIsMatchedWithThePodsThatAreThere(t *testing.T) {
	w, _ := used(t, 2, 2)
	w.build()
	c := w.parts.Consolidation
	before := w.podsOn["old"]
	r := w.passFor(false, func() { w.podsOn["old"] = before[:1] })
	if len(r.Moves) != 1 || len(r.Moves[0].Placements) != 1 {
		t.Fatalf("the result is %+v", r)
	}
	if ready, err := c.Ready(r.Moves[0].Key, map[string][]*corev1.Pod{"old": before[:1]}); !ready || err != nil {
		t.Errorf("ready %v (%v)", ready, err)
	}
}

// Nothing is proposed or reserved while pods wait for a plan.
func TestPassesWaitForDemand(t *testing.T) {
	w, _ := used(t, 2, 2)
	w.build()
	w.submit(1)
	if r := w.pass(); r != nil {
		t.Errorf("the pass was made: %+v", r)
	}
	w.plans()
	w.settled()
	c := w.parts.Consolidation
	c.Consolidate(t.Context())
	w.settled()
	c.Consolidate(t.Context())
	if c.Result() == nil {
		t.Error("the pass was forgotten")
	}
}

// A request that only proposes reserves nothing.
func TestProposeOnly(t *testing.T) {
	w, _ := used(t, 2, 2)
	w.build()
	r := w.passFor(true, nil)
	if len(r.Moves) != 1 || r.Moves[0].Key != "" {
		t.Errorf("the moves are %+v", r.Moves)
	}
	if !w.reservations.Fence("old") || !w.reservations.Fence("free") {
		t.Error("something is reserved")
	}
}

// The canary of a roll-out is the probe of a breaker that stops it, when one is due; no other move launches against a breaker.
func TestCanaryIsAProbe(t *testing.T) {
	for name, tc := range map[string]struct {
		probe  bool
		reason consolidation.Reason
		moves  int
	}{
		"a canary":                     {true, consolidation.Drifted, 1},
		"a drifted node, no canary":    {false, consolidation.Drifted, 0},
		"a move that is to save money": {true, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := used(t, 1, 0)
			w.clock, w.budget = clocktesting.NewFakeClock(epoch), &spending.Config{}
			w.leads()
			w.opens(guard.MachineKey("class", "", ""), broken)
			if r := w.passOf(consolidation.Request{Probe: tc.probe}, tc.reason, nil); len(r.Moves) != tc.moves {
				t.Fatalf("%d moves, want %d; kept %+v", len(r.Moves), tc.moves, r.Kept)
			}
			w.settled()
			for _, c := range w.claims {
				if len(c.Purchase.Probes) != 1 {
					t.Errorf("it probes %v", c.Purchase.Probes)
				}
			}
			if r := w.passOf(consolidation.Request{Probe: tc.probe}, tc.reason, nil); len(r.Moves) > 0 {
				t.Errorf("another node is launched while the first is a probe: %+v", r.Moves)
			}
		})
	}
}
