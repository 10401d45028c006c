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
