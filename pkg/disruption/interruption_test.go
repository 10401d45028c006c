package disruption

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/brake"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

func TestInterruption(t *testing.T) {
	spot := capacity.Interruption{InstanceID: "i-a", Kind: capacity.SpotInterrupted, Ends: epoch.Add(2 * time.Minute)}
	of := func(kind capacity.InterruptionKind, ends time.Time) capacity.Interruption {
		return capacity.Interruption{InstanceID: "i-a", Kind: kind, Ends: ends}
	}
	booting := func(c *karpv1.NodeClaim, n *corev1.Node) {
		c.Status.Conditions = c.Status.Conditions[:1]
		delete(n.Labels, karpv1.NodeInitializedLabelKey)
	}
	braked := func(w *world) {
		w.c.passes.terminations.brake = brake.New(1)
		w.c.passes.terminations.brake.Take(w.clock.Now())
	}
	dry := func(w *world) { w.dryRun() }
	for _, tc := range []struct {
		name    string
		machine func(*karpv1.NodeClaim, *corev1.Node)
		pool    func(*karpv1.NodePool)
		setup   func(*world)
		heard   []capacity.Interruption
		room    string
		after   time.Duration
		ends    bool
		asked   string // and cordoned
		note    string
		event   string
		lost    bool
	}{
		{name: "spot: room is asked for at once", heard: []capacity.Interruption{spot}, asked: "web", note: "2026-03-01T12:00:45Z SpotInterrupted", lost: true,
			event: "a Warning SpotInterrupted: The drain of the node begins at 2026-03-01T12:00:45Z at the latest: EC2 takes its spot capacity back"},
		{name: "and left when it is there", heard: []capacity.Interruption{spot}, room: "ready", ends: true, asked: "web", lost: true},
		{name: "or when there is just time to drain", heard: []capacity.Interruption{spot}, after: 45 * time.Second, ends: true, lost: true,
			event: "a Normal DisruptionTerminating: Terminating the node: EC2 takes its spot capacity back"},
		{name: "heard of late it is drained at once", heard: []capacity.Interruption{of(capacity.SpotInterrupted, epoch.Add(-time.Hour))}, ends: true, lost: true},
		{name: "heard of twice", heard: []capacity.Interruption{spot, spot}, asked: "web", note: "2026-03-01T12:00:45Z SpotInterrupted", lost: true},
		{name: "the earlier end counts", heard: []capacity.Interruption{of(capacity.MaintenanceScheduled, time.Time{}), spot, of(capacity.MaintenanceScheduled, time.Time{})},
			asked: "web", note: "2026-03-01T12:00:45Z SpotInterrupted", lost: true},
		{name: "maintenance that waits for a pause doesn't hide it", heard: []capacity.Interruption{of(capacity.MaintenanceScheduled, epoch.Add(time.Minute)), spot}, after: time.Minute, ends: true,
			lost: true, pool: func(p *karpv1.NodePool) { p.Annotations = map[string]string{objects.AnnotationPauseDisruption: "true"} }},
		{name: "nor does maintenance that is heard of later", heard: []capacity.Interruption{spot, of(capacity.MaintenanceScheduled, epoch.Add(time.Minute))}, asked: "web",
			note: "2026-03-01T12:00:45Z SpotInterrupted", lost: true},
		{name: "neither brake nor pause keep what EC2 ends", heard: []capacity.Interruption{spot}, setup: braked, after: time.Minute, ends: true, lost: true,
			pool: func(p *karpv1.NodePool) { p.Annotations = map[string]string{objects.AnnotationPauseDisruption: "true"} }},
		{name: "a node that isn't up goes at once", heard: []capacity.Interruption{spot}, machine: booting, ends: true, lost: true},
		{name: "a reservation that is taken back", heard: []capacity.Interruption{of(capacity.ReservationInterrupted, epoch.Add(2*time.Minute))}, asked: "web", lost: true},
		{name: "a dry run doesn't keep it from being drained", heard: []capacity.Interruption{spot}, setup: dry, after: time.Minute, ends: true, lost: true,
			event: "a Normal DisruptionTerminating: Terminating the node: EC2 takes its spot capacity back"},
		{name: "nor from having room made for its pods", heard: []capacity.Interruption{spot}, setup: dry, asked: "web", lost: true},
		{name: "nor from leaving before maintenance", heard: []capacity.Interruption{of(capacity.MaintenanceScheduled, epoch.Add(96*time.Hour))}, setup: dry,
			after: 10 * time.Minute, ends: true},
		{name: "nor when its reservation is taken back", heard: []capacity.Interruption{of(capacity.ReservationInterrupted, epoch)}, setup: dry, ends: true, lost: true},
		{name: "nor when its instance has ended", heard: []capacity.Interruption{of(capacity.MachineTerminating, epoch)}, setup: dry, ends: true},
		{name: "stopping", heard: []capacity.Interruption{of(capacity.MachineStopping, epoch)}, ends: true},
		{name: "terminated", heard: []capacity.Interruption{of(capacity.MachineTerminating, epoch)}, ends: true},
		{name: "a recommendation is told and no more", heard: []capacity.Interruption{of(capacity.SpotRebalance, time.Time{})}, after: time.Hour,
			event: "a Normal SpotRebalanceRecommendation: EC2 may take the instance's spot capacity back soon"},
		{name: "a message that EC2 denies is told and no more", heard: []capacity.Interruption{of(capacity.InterruptionRefuted, time.Time{})}, after: time.Hour,
			event: "a Warning InterruptionRefuted: A message on the interruption queue says that the instance ends or will be changed; EC2 doesn't confirm that, so it is ignored"},
		{name: "a message that EC2 can't confirm", asked: "web", lost: true,
			heard: []capacity.Interruption{{InstanceID: "i-a", Kind: capacity.SpotInterrupted, Ends: epoch.Add(2 * time.Minute), Unconfirmed: true}},
			event: "a Warning SpotInterrupted: The drain of the node begins at 2026-03-01T12:00:45Z at the latest: EC2 takes its spot capacity back (so says a message on the interruption queue, which EC2 has not confirmed)"},
		{name: "maintenance in days: ten minutes for new room", heard: []capacity.Interruption{of(capacity.MaintenanceScheduled, epoch.Add(96*time.Hour))}, asked: "web",
			note:  "2026-03-01T12:10:00Z MaintenanceScheduled",
			event: "a Warning MaintenanceScheduled: The drain of the node begins at 2026-03-01T12:10:00Z at the latest, unless its pool's disruption is paused or maxTerminationsPerMinute delays it: EC2 has scheduled a change of its machine"},
		{name: "then it is drained", heard: []capacity.Interruption{of(capacity.MaintenanceScheduled, epoch.Add(96*time.Hour))}, after: 10 * time.Minute, ends: true},
		{name: "maintenance in five minutes", heard: []capacity.Interruption{of(capacity.MaintenanceScheduled, epoch.Add(5*time.Minute))}, asked: "web",
			note: "2026-03-01T12:03:45Z MaintenanceScheduled"},
		{name: "maintenance waits for the brake", heard: []capacity.Interruption{of(capacity.MaintenanceScheduled, time.Time{})}, after: 10 * time.Minute, asked: "web",
			setup: func(w *world) {
				w.c.passes.terminations.brake = brake.New(1)
				w.c.passes.terminations.brake.Take(epoch.Add(10 * time.Minute))
			},
			event: "a Warning DisruptionBlocked: 1 nodes have been terminated within a minute"},
		{name: "another cluster's instance", heard: []capacity.Interruption{{InstanceID: "i-b", Kind: capacity.SpotInterrupted, Ends: epoch}}, after: time.Hour},
		{name: "no instance", heard: []capacity.Interruption{{Kind: capacity.SpotInterrupted, Ends: epoch}}, after: time.Hour},
		{name: "a kind to come", heard: []capacity.Interruption{of("Moonlight", epoch)}, after: time.Hour},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := pool(staying)
			if tc.pool != nil {
				tc.pool(p)
			}
			w := newWorld(t, p)
			w.machine("a", func(c *karpv1.NodeClaim, n *corev1.Node) {
				if tc.machine != nil {
					tc.machine(c, n)
				}
			})
			w.bind("web", "node-a", controlled)
			if tc.setup != nil {
				tc.setup(w)
			}
			for i, err := range w.c.Interrupted(t.Context(), tc.heard) {
				if err != nil {
					t.Errorf("interruption %d: %v", i, err)
				}
			}
			if got := w.claim("a").Annotations[objects.AnnotationInterrupted]; tc.note != "" && got != tc.note {
				t.Errorf("noted %q, want %q", got, tc.note)
			}
			if lost := slices.Contains(w.lost, "a"); lost != tc.lost {
				t.Errorf("lost = %v, want %v", lost, tc.lost)
			}
			w.room = tc.room
			w.clock.Step(tc.after)
			w.mustPass()
			if ended := !w.alive("a"); ended != tc.ends {
				t.Errorf("ended = %v, want %v; events %q", ended, tc.ends, w.events)
			}
			if got := strings.Join(w.asked["node-a"], " "); got != tc.asked || w.fenced["node-a"] != (tc.asked != "") {
				t.Errorf("room asked for %q, want %q; closed %v", got, tc.asked, w.fenced["node-a"])
			}
			if tc.event != "" && !w.event(tc.event) {
				t.Errorf("no event %q in %q", tc.event, w.events)
			}
		})
	}
}

// A notice that could not be recorded isn't done: it will be delivered again.
func TestInterruptionThatCannotBeNoted(t *testing.T) {
	w := newWorld(t, pool(staying))
	w.machine("a")
	told := []capacity.Interruption{
		{InstanceID: "i-z", Kind: capacity.SpotInterrupted, Ends: epoch}, {InstanceID: "i-a", Kind: capacity.SpotInterrupted, Ends: epoch}}
	w.failPatch = true
	if errs := w.c.Interrupted(t.Context(), told); errs[0] != nil || errs[1] == nil {
		t.Errorf("errors %v", errs)
	}
	if w.mustPass(); !w.alive("a") {
		t.Error("ended although nothing was noted")
	}
	w.failPatch = false
	if errs := w.c.Interrupted(t.Context(), told); errs[1] != nil {
		t.Error(errs[1])
	}
	if w.mustPass(); w.alive("a") {
		t.Error("not ended")
	}
}

func TestNotesNobodyCanRead(t *testing.T) {
	w := newWorld(t, pool(staying))
	w.machine("a", func(c *karpv1.NodeClaim, _ *corev1.Node) {
		c.Annotations = map[string]string{objects.AnnotationInterrupted: "soon"}
	})
	w.clock.Step(time.Hour)
	if w.mustPass(); !w.alive("a") {
		t.Error("ended for a note that says nothing")
	}
}
