package store

import (
	"testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// A claim is dropped only if no launch is recorded on it, wherever it was written.
func TestDrop(t *testing.T) {
	launched := capacity.LaunchBatch{Token: "token", Claims: []string{"recorded"}}
	w := newWorld(t, newFakeAPI(testPool("default"), testClass("default"))).ready()
	for name, batch := range map[string]*capacity.LaunchBatch{"planned": nil, "kept": {}, "recorded": &launched} {
		c := testClaim(name)
		c.LaunchBatch = batch
		if _, err := w.Create(w.ctx, c); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]bool{"planned": true, "kept": true, "recorded": false, "never there": true} {
		if dropped, err := w.Drop(w.ctx, name); dropped != want || err != nil {
			t.Errorf("%s: dropped %v, %v; want %v", name, dropped, err, want)
		}
	}
}
