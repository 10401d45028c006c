package launch

import (
	"slices"
	"testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
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
	w.planner = wholeGang{}
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

// recording remembers for how many pods it was asked.
type recording struct {
	plain
	asked *[]int
}

func (r recording) Plan(v *capacity.View, o capacity.Options) *capacity.Plan {
	n := 0
	for _, d := range v.Demand {
		n += len(d.Pods)
	}
	*r.asked = append(*r.asked, n)
	return r.plain.Plan(v, o)
}

// The nodes that the guard leaves of a plan were planned and verified together with the others, so that spreads may not allow their pods
// without them: what is bought is a plan of its own.
func TestWhatTheGuardLeavesIsPlannedAnew(t *testing.T) {
	w, _ := guarded(t, spending.Config{NewImageNodes: 2})
	var asked []int
	w.planner = recording{asked: &asked}
	w.overlay = func(it *capacity.InstanceType) *capacity.InstanceType {
		own := *it
		own.Image = "ami-new"
		return &own
	}
	w.submit(40) // ten large ones
	w.plans()
	if got := w.bought(); len(got) != 2 || !slices.Contains(asked, 8) {
		t.Errorf("bought %d nodes after plans for %v pods; want 2, and a plan for the 8 pods on them", len(got), asked)
	}
}
