package karpenter

import (
	"reflect"
	"testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func TestWavesTellEveryDifference(t *testing.T) {
	base := testClaim("c").Wave
	for name, change := range map[string]func(*capacity.Wave){
		"Token":        func(w *capacity.Wave) { w.Token = "x" },
		"Attempt":      func(w *capacity.Wave) { w.Attempt++ },
		"Claims":       func(w *capacity.Wave) { w.Claims[0] = "x" },
		"Pool":         func(w *capacity.Wave) { w.Pool = "x" },
		"NodeClass":    func(w *capacity.Wave) { w.NodeClass = "x" },
		"CapacityType": func(w *capacity.Wave) { w.CapacityType = "x" },
		"Offers":       func(w *capacity.Wave) { w.Offers[2].ReservationID = "x" },
		"Request":      func(w *capacity.Wave) { w.Request[3] ^= 1 },
		"For":          func(w *capacity.Wave) { w.For = capacity.ForOrder },
	} {
		c, w := &waves{}, testClaim("c").Wave
		first, err := c.encode(w)
		if err != nil {
			t.Fatal(err)
		}
		change(w) // in place, as a careless caller might
		second, err := c.encode(w)
		if err != nil {
			t.Fatal(err)
		}
		if first == second {
			t.Errorf("a wave with another %s was recorded as the old one", name)
		}
		if again, _ := c.encode(base); again != first {
			t.Errorf("%s: the first wave is recorded as %s now", name, again)
		}
	}
	// A field that is added to the record must be compared, too.
	recorded := 0
	for i := range reflect.TypeFor[capacity.Wave]().NumField() {
		if reflect.TypeFor[capacity.Wave]().Field(i).Tag.Get("json") != "-" {
			recorded++
		}
	}
	if recorded != 9 {
		t.Errorf("%d fields of a wave are recorded; sameWave compares 9", recorded)
	}
}

func TestWavesForgetTheOldest(t *testing.T) {
	c := &waves{}
	for i := range 3 * recentWaves {
		w := testClaim("c").Wave
		w.Attempt = i
		value, err := c.encode(w)
		if err != nil {
			t.Fatal(err)
		}
		got, err := c.decode(value)
		if err != nil || got.Attempt != i {
			t.Errorf("attempt %d reads as %v, %v", i, got, err)
		}
	}
	if len(c.recent) != recentWaves {
		t.Errorf("%d waves are remembered", len(c.recent))
	}
	if _, err := c.decode("{"); err == nil {
		t.Error("garbage was read")
	}
}
