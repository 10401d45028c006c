package launch

import (
	"testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Claims, nodes and launch requests have instance types with their overlays.
func TestOverlaidTypesAreLaunchedAsSuch(t *testing.T) {
	w := newWorld(t)
	w.overlay = func(t *capacity.InstanceType) *capacity.InstanceType {
		out := *t
		out.Offers = append([]capacity.Offer(nil), t.Offers...)
		out.Offers[0].Price, out.Offers[0].PriceOverlaid = out.Offers[0].Price/2, true
		out.AddExtra(capacity.Resources{"example.com/w": 3})
		return &out
	}
	w.run()
	w.submit(4)
	w.allBound(4)
	w.exactly(1)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.claims {
		if c.Annotations["karpenter.sh/price-overlay-applied"] != "true" || c.Annotations["karpenter.sh/capacity-overlay-applied"] != "true" {
			t.Errorf("claim has annotations %v", c.Annotations)
		}
		if c.Capacity["example.com/w"] != 3 || c.Allocatable["example.com/w"] != 3 {
			t.Errorf("claim has capacity %v, allocatable %v", c.Capacity, c.Allocatable)
		}
		if c.Largest["example.com/w"] != 3 {
			t.Errorf("claim counts for %v against limits", c.Largest)
		}
	}
	if len(w.prices) != 1 || len(w.prices[0]) == 0 {
		t.Errorf("prices told to the cloud: %v, want those of every offer", w.prices)
	}
}

func TestWithoutOverlaysTheCloudsPricesCount(t *testing.T) {
	w := newWorld(t)
	w.run()
	w.submit(4)
	w.allBound(4)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.claims {
		if len(c.Annotations) != 0 {
			t.Errorf("claim has annotations %v", c.Annotations)
		}
	}
	if len(w.prices) != 1 || w.prices[0] != nil {
		t.Errorf("prices told to the cloud: %v, want none", w.prices)
	}
}
