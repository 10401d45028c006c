package store

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func TestHealthOfLaunches(t *testing.T) {
	for name, tc := range map[string]struct {
		outcomes string // a letter per launch: + became a node, - failed, = the previous one is reported again
		want     string
	}{
		"nothing known":                    {"", "unknown"},
		"one node":                         {"+", "healthy"},
		"one failure":                      {"-", "healthy"},
		"two failures":                     {"--", "unhealthy"},
		"a failure told twice":             {"-=", "healthy"},
		"half of the last four":            {"+-+-", "unhealthy"},
		"failures that are long past":      {"--+++", "healthy"},
		"failures that are not past yet":   {"--++", "unhealthy"},
		"many nodes, then failures":        {"++++++--", "unhealthy"},
		"a failure now and then goes away": {"+-+++-++", "healthy"},
	} {
		t.Run(name, func(t *testing.T) {
			h := &health{pools: map[types.UID][]outcome{}}
			var last outcome
			for i, c := range tc.outcomes {
				if c != '=' {
					last = outcome{claim: types.UID(fmt.Sprint(i)), failed: c == '-'}
				}
				h.note("pool", last)
			}
			known, unhealthy := h.of("pool")
			got := "unknown"
			if unhealthy != nil {
				got = "unhealthy"
			} else if known {
				got = "healthy"
			}
			if got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
			if other, _ := h.of("other"); other {
				t.Error("pools share their outcomes")
			}
		})
	}
}

func TestNodeRegistrationHealthy(t *testing.T) {
	w := newWorld(t, newFakeAPI(testPool("default"), readyClass("default"))).leading()
	is := func(want string) {
		t.Helper()
		w.eventually("NodeRegistrationHealthy is "+want, func() bool {
			return strings.HasPrefix(conditions(w.getPool("default"))["NodeRegistrationHealthy"], want)
		})
	}
	n := 0
	claim := func() *karpv1.NodeClaim {
		t.Helper()
		n++
		name := fmt.Sprintf("default-%d", n)
		if _, err := w.Create(w.ctx, testClaim(name)); err != nil {
			t.Fatal(err)
		}
		w.eventually("the claim is seen", func() bool { return w.knownClaim(name) != nil })
		return w.knownClaim(name)
	}
	registers := func() {
		t.Helper()
		nc := claim().DeepCopy()
		if err := w.RecordLaunched(w.ctx, &capacity.Claim{Name: nc.Name}, testInstance, nil, nil, nil); err != nil {
			t.Fatal(err)
		}
		if err := w.patchStatus(w.ctx, &capacity.Claim{Name: nc.Name}, func(nc *karpv1.NodeClaim) { nc.StatusConditions().SetTrue(karpv1.ConditionTypeRegistered) }); err != nil {
			t.Fatal(err)
		}
	}
	fails := func(reason string) {
		t.Helper()
		if err := w.RecordLaunchFailed(w.ctx, &capacity.Claim{Name: claim().Name}, reason, "UnauthorizedOperation"); err != nil {
			t.Fatal(err)
		}
	}
	is("Unknown")
	registers()
	is("True")
	fails("InsufficientCapacity") // not the pool's fault
	fails("LaunchRefused")
	w.NotRegistered(claim(), "no kubelet came")
	is("False RegistrationFailed: no kubelet came")
	fails("LaunchRefused")
	is("False LaunchRefused: UnauthorizedOperation")
	if diff := cmp.Diff("True", conditions(w.getPool("default"))["Ready"]); diff != "" {
		t.Errorf("the pool is used all the same; Ready (-want +got):\n%s", diff)
	}

	// A changed pool starts over, and so does one with a changed class; claims of the former template don't count.
	old := claim()
	np := w.getPool("default")
	w.update(np, func() { np.Spec.Template.Labels["team"] = "b" })
	is("Unknown")
	w.NotRegistered(old, "too late")
	registers()
	is("True")
	class := w.getClass("default")
	w.update(class, func() { class.Spec.Tags = map[string]string{"new": "tag"} })
	is("Unknown")
	if got := w.getPool("default").Status.NodeClassObservedGeneration; got != 2 {
		t.Errorf("status.nodeClassObservedGeneration %d, want 2", got)
	}
}

// The next leader starts from the condition that an earlier one has written.
func TestHealthSurvivesARestart(t *testing.T) {
	for before, want := range map[string]string{"True": "False", "False": "False"} {
		t.Run(before, func(t *testing.T) {
			pool := testPool("default")
			set := pool.StatusConditions()
			pool.Status.NodeClassObservedGeneration = 1
			if before == "True" {
				set.SetTrue(karpv1.ConditionTypeNodeRegistrationHealthy)
			} else {
				set.SetFalse(karpv1.ConditionTypeNodeRegistrationHealthy, "RegistrationFailed", "no kubelet came")
			}
			w := newWorld(t, newFakeAPI(pool, readyClass("default"))).leading()
			w.eventually("the pool was looked at", func() bool { known, _ := w.status.health.of(pool.UID); return known })
			if got := conditions(w.getPool("default"))["NodeRegistrationHealthy"]; !strings.HasPrefix(got, before) {
				t.Errorf("%s, want %s as before", got, before)
			}
			for i := range 2 {
				created, err := w.Create(w.ctx, testClaim(fmt.Sprintf("default-%d", i), func(c *capacity.Claim) { c.Slots = nil }))
				if err != nil {
					t.Fatal(err)
				}
				w.NotRegistered(w.knownClaim(created.Name), "no kubelet came")
			}
			w.eventually("two failures", func() bool {
				return strings.HasPrefix(conditions(w.getPool("default"))["NodeRegistrationHealthy"], want)
			})
		})
	}
}
