package lifecycle

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func TestLiveness(t *testing.T) {
	for _, tc := range []struct {
		name  string
		setup func(w *world)
		// the claim is given up between after and by, for reason; never if reason is empty (watched until by)
		after, by time.Duration
		reason    string
	}{
		{
			name:  "a claim that is not launched in time",
			setup: func(w *world) { w.launched("a", func(c *karpv1.NodeClaim) { c.Status = karpv1.NodeClaimStatus{} }) },
			after: launchTimeout, by: launchTimeout + 20*time.Second, reason: reasonLaunchTimeout,
		},
		{
			name: "a kubelet that never comes",
			setup: func(w *world) {
				claim, inst := w.launched("a")
				w.createNode(nodeFor(claim, *inst))
			},
			after: registrationTimeout, by: registrationTimeout + 20*time.Second, reason: reasonRegistrationTimeout,
		},
		{
			name: "an instance that is terminated while it boots",
			setup: func(w *world) {
				claim, inst := w.launched("a")
				w.createNode(nodeFor(claim, *inst))
				w.step()
				inst.State = capacity.InstanceTerminated
			},
			by: 40 * time.Second, reason: reasonInstanceEnded,
		},
		{
			name: "an instance that stops",
			setup: func(w *world) {
				claim, inst := w.launched("a")
				w.createNode(nodeFor(claim, *inst))
				w.step()
				inst.State = capacity.InstanceStopped
			},
			by: 40 * time.Second, reason: reasonInstanceEnded,
		},
		{
			name: "an instance nobody can see is believed dead only after two minutes",
			setup: func(w *world) {
				claim, inst := w.launched("a")
				w.createNode(nodeFor(claim, *inst))
				w.cloud.hidden[inst.ID] = true
			},
			after: capacity.LaunchGrace, by: capacity.LaunchGrace + 30*time.Second, reason: reasonInstanceEnded,
		},
		{
			name:  "a node that is up is not asked about, whatever the cloud says",
			setup: func(w *world) { w.up("a"); w.cloud.hidden["i-a"] = true },
			by:    20 * time.Minute,
		},
		{
			name: "a node that went silent and whose instance is gone",
			setup: func(w *world) {
				w.up("a")
				w.changeNode("ip-10-0-0-1", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })
				w.cloud.instances["i-a"].State = capacity.InstanceTerminated
			},
			by: 40 * time.Second, reason: reasonInstanceEnded,
		},
		{
			name: "a node that went silent and whose instance lives is left alone",
			setup: func(w *world) {
				w.up("a")
				w.changeNode("ip-10-0-0-1", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })
			},
			by: 20 * time.Minute,
		},
		{
			name: "a registered Node that is gone without a trace",
			setup: func(w *world) {
				w.up("a")
				_ = w.objects.Delete(nodesResource, "", "ip-10-0-0-1")
			},
			after: nodeMissing, by: nodeMissing + 20*time.Second, reason: reasonNodeMissing,
		},
		{
			name: "an instance that has ended, and whose name another one has",
			setup: func(w *world) {
				w.up("a")
				w.changeNode("ip-10-0-0-1", func(n *corev1.Node) { n.Spec.ProviderID = "aws:///z1/i-other" })
				w.cloud.instances["i-a"].State = capacity.InstanceTerminated
			},
			by: 40 * time.Second, reason: reasonInstanceEnded,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			late := 0
			w.notRegistered = func(*karpv1.NodeClaim, string) { late++ }
			tc.setup(w)
			for w.clock.Since(epoch) < tc.by {
				w.pass(5*time.Second, 5*time.Second)
				c := w.claim("a")
				if c != nil && c.DeletionTimestamp == nil {
					continue
				}
				if tc.reason == "" || w.clock.Since(epoch) < tc.after {
					t.Fatalf("given up after %s: %q", w.clock.Since(epoch), w.events)
				}
				if !w.happened("a", tc.reason) {
					t.Errorf("no event %s in %q", tc.reason, w.events)
				}
				if want := strings.HasSuffix(tc.reason, "Timeout"); (late > 0) != want {
					t.Errorf("told %d times that it did not become a node in time, want any: %v", late, want)
				}
				return
			}
			if tc.reason != "" {
				t.Errorf("not given up by %s", tc.by)
			}
		})
	}
}

// One answer of a part of the cloud that lags must not terminate anything.
func TestLagIsNotDeath(t *testing.T) {
	w := newWorld(t)
	claim, inst := w.launched("a")
	w.createNode(nodeFor(claim, *inst))
	w.pass(5*time.Minute, 15*time.Second)
	for range 15 {
		w.cloud.hidden[inst.ID] = true
		w.pass(10*time.Second, 5*time.Second)
		w.cloud.hidden[inst.ID] = false
		w.pass(20*time.Second, 10*time.Second)
	}
	if w.claim("a").DeletionTimestamp != nil {
		t.Errorf("given up: %q", w.events)
	}
}

// A scheduler that was away for long must not give up the launches that it is about to resume.
func TestRestartLeavesTimeToCatchUp(t *testing.T) {
	w := newWorld(t)
	w.launched("a", func(c *karpv1.NodeClaim) { c.Status = karpv1.NodeClaimStatus{} })
	w.clock.Step(time.Hour)
	w.pass(ownPatience-5*time.Second, 5*time.Second)
	if w.claim("a").DeletionTimestamp != nil {
		t.Fatal("given up at once")
	}
	w.pass(10*time.Second, 5*time.Second)
	if c := w.claim("a"); c != nil && c.DeletionTimestamp == nil {
		t.Error("not given up")
	}
}

// To a leader whose clock is ahead everything looks old that others have created or that the API server has just recorded. It waits its own
// time for that, and then gives it up.
func TestAClockThatIsAhead(t *testing.T) {
	for name, tc := range map[string]struct {
		limit time.Duration
		setup func(w *world)
		ended func(w *world) bool
	}{
		"launch": {launchTimeout, func(w *world) {
			w.launched("a", func(c *karpv1.NodeClaim) { c.Status = karpv1.NodeClaimStatus{} })
		}, func(w *world) bool { return w.happened("a", reasonLaunchTimeout) }},
		"registration": {ownPatience, func(w *world) {
			claim, inst := w.launched("a")
			w.createNode(nodeFor(claim, *inst))
		}, func(w *world) bool { return w.happened("a", reasonRegistrationTimeout) }},
		"launch batch": {batchQuiet, func(w *world) { w.intent("a", "w"); w.deleteByName("a") }, func(w *world) bool { return w.claim("a") == nil }},
		"drain": {minDrain, func(w *world) {
			w.up("a")
			w.deleteByName("a")
			w.step()
			clear(w.c.unclaimed.termination.waits.of) // as in a new process
		}, func(w *world) bool { return w.running() == "" }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tc.setup(w)
			w.clock.Step(20 * time.Minute)
			took := w.clock.Now()
			for w.step(); !tc.ended(w) && w.clock.Since(took) < time.Hour; {
				w.pass(time.Second, time.Second)
			}
			if d := w.clock.Since(took); d < tc.limit || d > tc.limit+20*time.Second {
				t.Errorf("took %s, want %s", d, tc.limit)
			}
		})
	}
}

// A Node that is missing for a short while, again and again, is not gone.
func TestANodeThatComesBackIsNotMissing(t *testing.T) {
	w := newWorld(t)
	w.up("a")
	n := w.node("ip-10-0-0-1").DeepCopy()
	for range 5 {
		if err := w.objects.Delete(nodesResource, "", n.Name); err != nil {
			t.Fatal(err)
		}
		w.pass(nodeMissing-20*time.Second, 5*time.Second)
		if err := w.objects.Add(n); err != nil {
			t.Fatal(err)
		}
		w.pass(10*time.Second, 5*time.Second)
	}
	if w.claim("a").DeletionTimestamp != nil {
		t.Errorf("given up: %q", w.events)
	}
}
