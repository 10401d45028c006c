package karpenter

import (
	"reflect"
	"testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func TestLaunchBatchesTellEveryDifference(t *testing.T) {
	base := testClaim("c").LaunchBatch
	for name, change := range map[string]func(*capacity.LaunchBatch){
		"Token":        func(w *capacity.LaunchBatch) { w.Token = "x" },
		"Attempt":      func(w *capacity.LaunchBatch) { w.Attempt++ },
		"Claims":       func(w *capacity.LaunchBatch) { w.Claims[0] = "x" },
		"Pool":         func(w *capacity.LaunchBatch) { w.Pool = "x" },
		"NodeClass":    func(w *capacity.LaunchBatch) { w.NodeClass = "x" },
		"CapacityType": func(w *capacity.LaunchBatch) { w.CapacityType = "x" },
		"Offers":       func(w *capacity.LaunchBatch) { w.Offers[2].ReservationID = "x" },
		"Request":      func(w *capacity.LaunchBatch) { w.Request[3] ^= 1 },
		"For":          func(w *capacity.LaunchBatch) { w.For = capacity.ForOrder },
	} {
		c, w := &Batches{}, testClaim("c").LaunchBatch
		first, err := c.Encode(w)
		if err != nil {
			t.Fatal(err)
		}
		change(w) // in place, as a careless caller might
		second, err := c.Encode(w)
		if err != nil {
			t.Fatal(err)
		}
		if first == second {
			t.Errorf("a launch batch with another %s was recorded as the old one", name)
		}
		if again, _ := c.Encode(base); again != first {
			t.Errorf("%s: the first launch batch is recorded as %s now", name, again)
		}
	}
	// A field that is added to the record must be compared, too.
	recorded := 0
	for i := range reflect.TypeFor[capacity.LaunchBatch]().NumField() {
		if reflect.TypeFor[capacity.LaunchBatch]().Field(i).Tag.Get("json") != "-" {
			recorded++
		}
	}
	if recorded != 9 {
		t.Errorf("%d fields of a launch batch are recorded; sameBatch compares 9", recorded)
	}
}

func TestLaunchBatchesForgetTheOldest(t *testing.T) {
	c := &Batches{}
	for i := range 3 * recentBatches {
		w := testClaim("c").LaunchBatch
		w.Attempt = i
		value, err := c.Encode(w)
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.Decode(value)
		if err != nil || got.Attempt != i {
			t.Errorf("attempt %d reads as %v, %v", i, got, err)
		}
	}
	if len(c.recent) != recentBatches {
		t.Errorf("%d launch batches are remembered", len(c.recent))
	}
	if _, err := c.Decode("{"); err == nil {
		t.Error("garbage was read")
	}
}
