package disruption

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

// latecomer is a pod on its way to a node, step by step as a scheduler takes it there. A step that is refused ends the way.
type latecomer struct {
	w            *world
	reservations *reservations.Ledger
	uid          types.UID
	node         string
	class        *capacity.Class
	steps        []func() bool
	// bound: the pod is on the node.
	bound bool
}

// roomy is a node with capacity for every pod.
type roomy struct{}

func (roomy) Requested(corev1.ResourceName) int64   { return 0 }
func (roomy) Allocatable(corev1.ResourceName) int64 { return 1 << 40 }
func (roomy) Daemon(string) bool                    { return false }
func (roomy) Volumes(string) int64                  { return 0 }

func newLatecomer(w *world, reservations *reservations.Ledger, name, node string) *latecomer {
	return &latecomer{w: w, reservations: reservations, uid: types.UID(name), node: node,
		class: &capacity.Class{Key: capacity.ClassKey("class-" + name), Requests: capacity.Resources{corev1.ResourceCPU: 100}}}
}

// byOurs is the way of a pod that our scheduler finds a node for without a plan.
func (l *latecomer) byOurs() { l.steps = []func() bool{l.filter, l.assume, l.bind, l.settle} }

// byPlan is the way of a pod that fits nowhere, is planned for and bound to the planned node.
func (l *latecomer) byPlan() {
	l.steps = []func() bool{l.submit, l.look, l.commit, l.pin, l.filter, l.assume, l.bind, l.settle}
}

// byOthers is the way of a pod of another scheduler, which last looks at the node when it binds.
func (l *latecomer) byOthers() {
	l.steps = []func() bool{func() bool { return !disrupted(l.w.node(l.node)) && l.bind() }}
}

func (l *latecomer) submit() bool {
	l.reservations.Submit(capacity.PodRef{UID: l.uid, Name: string(l.uid)}, l.class)
	return true
}

// look is the planner's: it plans nothing on a node that is cordoned.
func (l *latecomer) look() (open bool) {
	open = true
	l.reservations.Step(func(led *ledger.Ledger, _ time.Time) {
		for _, f := range led.InFlight() {
			open = open && !(f.Name == l.node && f.Fenced)
		}
	})
	return open
}

func (l *latecomer) commit() bool {
	l.reservations.Step(func(led *ledger.Ledger, now time.Time) {
		led.Existing(l.node, ledger.NodeStatus{Managed: true, Registered: true, Initialized: true})
		led.Commit(string(l.uid), []capacity.Placement{{Class: l.class, Pod: capacity.PodRef{UID: l.uid}, Node: l.node}}, now)
	})
	return true
}

func (l *latecomer) pin() bool {
	if closed, _ := l.reservations.Gate(l.uid); closed {
		return false
	}
	node, _ := l.reservations.Pin(l.uid)
	return node == l.node
}

func (l *latecomer) filter() bool {
	return l.reservations.Object(l.node, &ledger.Ask{UID: l.uid, Class: l.class}, roomy{}) == nil
}

func (l *latecomer) assume() bool { return l.reservations.Assume(l.uid, l.node, false) == nil }

func (l *latecomer) bind() bool {
	l.w.bind(string(l.uid), l.node)
	l.bound = true
	return true
}

func (l *latecomer) settle() bool {
	l.reservations.Settled(l.uid, l.node)
	return true
}

// walk takes up to n steps.
func (l *latecomer) walk(n int) {
	for ; n > 0 && len(l.steps) > 0; n-- {
		next := l.steps[0]
		l.steps = l.steps[1:]
		if !next() {
			l.steps = nil
		}
	}
}

// A pod is bound to an empty node while that is being terminated, by one of three ways, each step of which happens at some point of the
// decision: before it, between its calls or after it. The ledger is the real one. Whatever comes first, no pod is ever on a node whose
// claim was deleted, and a node that stays is uncordoned again.
func TestAPodArrivesAtTheLastMoment(t *testing.T) {
	arrived, ended, turnedAway := 0, 0, 0
	var w *world
	for seed := range uint64(1000) {
		if seed%10 == 0 { // worlds are expensive to build; those of earlier seeds are gone or have a pod
			w = newWorld(t, pool())
		}
		r, name := rand.New(rand.NewPCG(seed, 7)), fmt.Sprintf("m%d", seed)
		w.machine(name)
		w.clock.Step(time.Hour)
		reservations := reservations.New(w.clock)
		w.c.passes.cordons.fence = realFence{reservations}
		pod := newLatecomer(w, reservations, "late-"+name, "node-"+name)
		[]func(){pod.byOurs, pod.byPlan, pod.byOthers}[r.IntN(3)]()
		w.interrupt = func(call string) {
			if call == "delete" && pod.bound {
				t.Fatalf("seed %d: the claim is deleted under a pod", seed)
			}
			pod.walk(r.IntN(4))
		}
		pod.walk(r.IntN(4))
		w.sync()
		for range 2 {
			// What the informers show may be as old as the beginning of the pass.
			if _, _, err := w.c.passes.run(t.Context(), time.Time{}); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			pod.walk(r.IntN(3))
		}
		pod.walk(len(pod.steps))
		gone := !w.alive(name)
		switch {
		case gone && pod.bound:
			t.Fatalf("seed %d: a pod is on a node that ends", seed)
		case gone:
			ended++
			if !pod.bound && len(pod.steps) == 0 {
				turnedAway++
			}
		case pod.bound:
			arrived++
			w.mustPass()
			if disrupted(w.node(pod.node)) || reservations.Assume("another", pod.node, false) != nil {
				t.Fatalf("seed %d: a node that stays is closed", seed)
			}
		}
		w.interrupt = func(string) {}
		if !gone && !pod.bound {
			w.bind("keeper-"+name, pod.node) // reserved and not bound yet: the node may not be terminated before that is over
		}
	}
	t.Logf("%d nodes ended, %d pods arrived, %d were turned away", ended, arrived, turnedAway)
	if arrived < 200 || ended < 200 || turnedAway < 200 {
		t.Errorf("%d pods arrived, %d nodes ended: the test tests nothing", arrived, ended)
	}
}

// realFence is a ledger without CapacityBuffers.
type realFence struct{ *reservations.Ledger }

func (realFence) GiveUpChunks(string) {}
