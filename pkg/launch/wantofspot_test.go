package launch

import (
	"slices"
	"strings"
	"testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// A node that is bought on demand only because there is no spot capacity now is marked.
func TestBoughtForWantOfSpot(t *testing.T) {
	for name, available := range map[string]bool{"none": false, "some": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.overlay = func(t *capacity.InstanceType) *capacity.InstanceType {
				out := *t
				spot := t.Offers[0]
				spot.CapacityType, spot.Available, spot.Price = capacity.CapacityTypeSpot, available, t.Offers[0].Price/10
				out.Offers = append(append([]capacity.Offer(nil), t.Offers...), spot)
				return &out
			}
			w.run()
			w.submit(4)
			w.allBound(4)
			w.mu.Lock()
			defer w.mu.Unlock()
			for _, c := range w.claims {
				spot := c.CapacityType == capacity.CapacityTypeSpot
				if marked := c.Annotations[objects.AnnotationForWantOfSpot] == "true"; marked != (!available && !spot) {
					t.Errorf("a claim for %s capacity is marked %v", c.CapacityType, marked)
				}
			}
			if len(w.claims) == 0 {
				t.Error("nothing was bought")
			}
			told := slices.ContainsFunc(w.notes, func(note string) bool { return strings.Contains(note, "FewInstanceTypes") })
			if told == available {
				t.Errorf("with two types to choose from the pool's events are %q", w.notes)
			}
		})
	}
}
