package launch

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/panics"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

// clumsy is a planner that panics in its first plans.
type clumsy struct{ mistakes int }

func (c *clumsy) Plan(v *capacity.View, opts capacity.Options) *capacity.Plan {
	if c.mistakes--; c.mistakes >= 0 {
		panic("a mistake in the planner")
	}
	return plain{}.Plan(v, opts)
}

// A panic on a pod's way to its node is a failed try: the process, which is the cluster's scheduler, goes on, and the pod gets its node
// later.
func TestPanicsAreFailedTries(t *testing.T) {
	for name, tc := range map[string]struct {
		breaks func(w *world, mistake func())
		told   string
	}{
		"while a plan is made":           {func(w *world, _ func()) { w.planner = &clumsy{2} }, "FailedProvisioning panic in planner: a mistake in the planner"},
		"while a claim is written":       {func(w *world, mistake func()) { w.during["Create"] = mistake }, "LaunchFailed node pool-"},
		"while a launch is prepared":     {func(w *world, mistake func()) { w.during["Prepare"] = mistake }, "panic in launch: a mistake"},
		"while an instance is described": {func(w *world, mistake func()) { w.during["Describe"] = mistake }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				mistakes := 2
				tc.breaks(w, func() {
					if mistakes--; mistakes >= 0 {
						panic("a mistake")
					}
				})
				w.run()
				defer w.stop()
				w.submit(1)
				pass(time.Minute)
				w.mu.Lock()
				notes := strings.Join(w.notes, "\n")
				var claims []*capacity.Claim
				for _, c := range w.claims {
					claims = append(claims, c)
				}
				w.mu.Unlock()
				if !strings.Contains(notes, tc.told) {
					t.Errorf("the pod was told %q, want %q", notes, tc.told)
				}
				if tc.told == "" { // its kubelet has created its own Node
					for _, c := range claims {
						name := "node-" + c.Instance().ID
						if err := w.CreateNode(t.Context(), w.NodeFor(c, capacity.Instance{ProviderID: c.ProviderID, NodeName: name}, nil)); err != nil {
							t.Fatal(err)
						}
						w.parts.Nodes.ClaimNamed(c.Name, name, c.ProviderID)
					}
					pass(time.Second)
				}
				if _, instances, bound := w.count(); instances != 1 || bound != 1 {
					t.Errorf("%d instances and %d pods bound, want one of each; the pod was told %q", instances, bound, notes)
				}
			})
		})
	}
}

// After a panic under its lock the ledger can't be used.
func TestPanicsInTheLedgerAreNotCaught(t *testing.T) {
	for name, do := range map[string]func(d *reservations.Ledger){
		"a change": func(d *reservations.Ledger) { d.Step(func(*ledger.Ledger, time.Time) { panic("a mistake") }) },
		"a look":   func(d *reservations.Ledger) { d.Read(func(ledger.Reader) { panic("a mistake") }) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.build()
			defer func() {
				if _, fatal := recover().(panics.Fatal); !fatal {
					t.Error("the panic would be caught")
				}
			}()
			_ = panics.Catch(t.Context(), "here", func() error {
				do(w.reservations)
				return nil
			})
		})
	}
}
