package launch

import (
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
