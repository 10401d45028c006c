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
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/spending"
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
	w, _ := guarded(t, spending.Config{NewImageNodes: 2})
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

// Sixty classes of pods that no node can hold are older than the one that a breaker of machine faults stops: it is considered, too.
func TestProbeLooksAtAllWhoWait(t *testing.T) {
	w, _ := guarded(t, spending.Config{})
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
