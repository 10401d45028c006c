package disruption

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Ending gets the reason before a claim is deleted: it is empty, disrupted for another reason, or has lost its instance.
func TestEndingIsReported(t *testing.T) {
	for _, tt := range []struct {
		name  string
		heard capacity.InterruptionKind
		want  string
	}{
		{"empty", "", "a Empty"},
		{"EC2 takes it back", capacity.SpotInterrupted, "a Interrupted"},
		{"it is to be maintained", capacity.MaintenanceScheduled, "a Interrupted"},
		{"its instance ends by whoever's hand", capacity.MachineTerminating, "a InstanceEnded"},
		{"or stops", capacity.MachineStopping, "a InstanceEnded"},
	} {
		w := newWorld(t, pool())
		var told []string
		w.c.passes.terminations.ending = func(_ context.Context, claim, reason string) {
			if len(w.deleted) > 0 {
				t.Errorf("%s: told after it went", tt.name)
			}
			told = append(told, claim+" "+reason)
		}
		w.machine("a")
		w.sync()
		if tt.heard != "" {
			w.bind("p", "node-a")
			if err := w.c.Interrupted(t.Context(), []capacity.Interruption{{InstanceID: "i-a", Kind: tt.heard, Ends: w.clock.Now().Add(time.Minute)}})[0]; err != nil {
				t.Fatal(err)
			}
		}
		w.clock.Step(time.Hour)
		w.mustPass()
		if !slices.Equal(told, []string{tt.want}) {
			t.Errorf("%s: told %q, want %q", tt.name, told, tt.want)
		}
	}
}

// The claim of an instance that has ended by itself stays until it is known why, and neither pass nor other nodes wait for that.
func TestEndedInstanceWaitsForItsCause(t *testing.T) {
	w := newWorld(t, pool())
	known, asked := false, ""
	w.c.passes.terminations.causeKnown = func(_ context.Context, claim string) bool {
		asked += claim
		return known
	}
	for _, name := range []string{"a", "b"} {
		w.machine(name)
		w.bind("p-"+name, "node-"+name)
	}
	w.sync()
	now := w.clock.Now()
	for _, err := range w.c.Interrupted(t.Context(), []capacity.Interruption{{InstanceID: "i-a", Kind: capacity.MachineTerminating, Ends: now}, {InstanceID: "i-b", Kind: capacity.SpotInterrupted, Ends: now}}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	w.clock.Step(time.Second)
	if after := w.mustPass(); after > causeEvery {
		t.Errorf("the next pass is made after %s, want %s", after, causeEvery)
	}
	if !slices.Equal(w.deleted, []string{"b"}) {
		t.Errorf("deleted %q, want b", w.deleted)
	}
	known = true
	w.mustPass()
	if !slices.Equal(w.deleted, []string{"b", "a"}) || asked != "aa" {
		t.Errorf("deleted %q, asked for %q", w.deleted, asked)
	}
}
