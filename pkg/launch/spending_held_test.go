package launch

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

// wholeGang plans for all forty pods or for none, as for a gang.
type wholeGang struct{ plain }

func (p wholeGang) Plan(v *capacity.View, o capacity.Options) *capacity.Plan {
	out := p.plain.Plan(v, o)
	if len(out.Placements) < 40 {
		none := &capacity.Plan{}
		for _, d := range v.Demand {
			none.Refused = append(none.Refused, capacity.Refusal{Class: d.Class, Pods: d.Pods, Message: "not all of its group can be placed", Retryable: true})
		}
		return none
	}
	for i := range out.Placements {
		out.Placements[i].Group, out.Placements[i].Gang = 1, &capacity.Gang{Key: "g", Missing: 40}
	}
	return out
}

// A gang that needs more nodes of a new image than newImageNodes is bought as a whole: otherwise the image would never become known.
func TestGangOnANewImage(t *testing.T) {
	w, _ := guarded(t, SpendingConfig{NewImageNodes: 2})
	w.parts.planning.planner = wholeGang{}
	w.overlay = func(it *capacity.InstanceType) *capacity.InstanceType {
		own := *it
		own.Image = "ami-new"
		return &own
	}
	w.submit(40) // ten large ones
	w.plans()
	if got := w.bought(); len(got) != 10 {
		t.Errorf("bought %d, want 10; told %q", len(got), w.notes[:min(3, len(w.notes))])
	}
}

// Each new node also gets a pod of another workload, and the filters refuse the pod it was bought for, again and again.
func TestRefusedBesideOtherPods(t *testing.T) {
	p := newPurse(t, SpendingConfig{})
	a := p.pod("a", "")
	bought := 0
	for p.guard.HoldsPods("pool", web, p.clock.Now()) == nil && bought < 20 {
		name := fmt.Sprint("m", bought)
		p.buys(name, a)
		q := p.pod(fmt.Sprint("q", bought), "node-"+name, phase(corev1.PodRunning))
		q.OwnerReferences[0].Name = "other"
		p.podChanged(q, false)
		p.passes(30 * time.Second)
		p.rejectedByFilters(name, a, "", "Insufficient cpu", true, false)
		p.passes(4 * time.Minute)
		bought++
	}
	if bought > 4 {
		t.Errorf("%d machines were bought for one pod that the filters refuse on each", bought)
	}
}

// An instance that served a short Job counts as served after a restart, too: another failure of its round opens no breaker.
func TestServedForWhomAfterARestart(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		p := newPurse(t, SpendingConfig{})
		done := p.pod("done", "node-m1", phase(corev1.PodSucceeded))
		one, two := p.buys("m1", done), p.buys("m2")
		one.Purchase.Round, two.Purchase.Round = "r", "r"
		p.guard = guard.New()
		p.guard.Recovered(p.clock.Now())
		for _, c := range []*capacity.Claim{one, two} {
			p.guard.Buy(c.Name, guard.Bought{Purchase: *c.Purchase, Pool: c.Pool, Class: c.NodeClass, At: p.clock.Now()})
			p.guard.Locate(c.Name, "ami", "a")
		}
		p.clock.Step(time.Second)
		p.podChanged(done, false)
		p.podChanged(done, true)
		if !p.guard.Served("m1") {
			t.Fatal("not served")
		}
		one.Served, one.ServedAt = true, p.clock.Now()
		if restarts {
			p.restart(SpendingConfig{})
			if err := p.restore(t.Context(), []*capacity.Claim{one, two}); err != nil {
				t.Fatal(err)
			}
			p.named("m2", "node-m2")
		}
		p.podChanged(p.pod("x", "node-m2", target("DeletionByTaintManager", ""), deleted), false)
		p.passes(3 * time.Second)
		if b := p.guard.HoldsPods("pool", web, p.clock.Now()); b != nil {
			t.Errorf("restarts %v: %s", restarts, b.Text())
		}
	}
}

// Sixty classes of pods that no node can hold are older than the one that a breaker of machine faults stops: it is considered, too.
func TestProbeLooksAtAllWhoWait(t *testing.T) {
	w, _ := guarded(t, SpendingConfig{})
	w.opens(badImage, broken)
	for i := range 60 {
		pod := w.pod(0)
		pod.Name, pod.UID = fmt.Sprint("huge", i), types.UID(fmt.Sprintf("a%02d", i))
		pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = *resource.NewQuantity(int64(10_000+i), resource.DecimalSI)
		w.pending.Handler().OnAdd(pod, false)
		c, err := w.pending.Classes.Class(pod)
		if err != nil {
			t.Fatal(err)
		}
		w.reservations.Step(func(l *ledger.Ledger, now time.Time) { l.Submit(capacity.RefOf(pod), c, now) })
		w.parts.refusals.refuse(t.Context(), []types.UID{pod.UID}, "nothing is that large", true)
	}
	w.submit(1)
	w.parts.refusals.refuse(t.Context(), []types.UID{w.pod(0).UID}, "paused", true)
	for range 2 {
		if slices.ContainsFunc(w.parts.prober.heldBack(badImage), func(x ledger.Waiting) bool { return x.Ref.UID == w.pod(0).UID }) {
			return
		}
	}
	t.Error("the pod that the breaker holds back is never looked at")
}

// Images of nodes that were initialized before purchases were recorded are known.
func TestImagesOfOldNodesAreKnown(t *testing.T) {
	p := newPurse(t, SpendingConfig{NewImageNodes: 1})
	old := &capacity.Claim{Name: "old", NodeClass: "class", ImageID: "ami", Initialized: true, Launched: true}
	if err := p.restore(t.Context(), []*capacity.Claim{old}); err != nil {
		t.Fatal(err)
	}
	if !p.guard.KnownImage("class", "ami") {
		t.Error("the image of a node that is there counts as new")
	}
}
