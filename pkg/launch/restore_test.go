package launch

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/launch/records"
)

// initialize records on all claims that their nodes are initialized.
func (w *world) initialize(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.claims {
		c.Registered, c.Initialized, c.InitializedAt = true, true, at
	}
}

// The leader dies when the claim says that the node is initialized, and before its pods are bound: the startup taint is still there as far as the
// next leader's cache of nodes shows. Nothing is bought for the pods a second time.
func TestPodsOfANodeThatWasInitializedJustNowKeepIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.denies = func(n *corev1.Node) error {
			n.Spec.Taints = []corev1.Taint{{Key: "example.com/agent", Effect: corev1.TaintEffectNoSchedule}}
			return nil
		}
		w.run()
		w.submit(4)
		pass(time.Minute)
		w.stop()
		w.initialize(time.Now())
		w.run()
		defer w.stop()
		w.submit(4)
		pass(time.Minute)
		var node *corev1.Node
		w.mu.Lock()
		for _, n := range w.nodes {
			node = n.DeepCopy()
		}
		w.mu.Unlock()
		node.Spec.Taints, node.Labels[labelRegistered], node.Labels[labelInitialized] = nil, "true", "true"
		w.parts.Nodes.NodeCached(node)
		pass(time.Minute)
		if tokens, instances, bound := w.count(); tokens != 1 || instances != 1 || bound != 4 {
			t.Errorf("%d instances under %d tokens, %d pods bound; want 1, 1, 4", instances, tokens, bound)
		}
	})
}

// The next leader has to know which pods were planned last on a node that was initialized just now. On older nodes they have been bound by then.
func TestReservationsOnANodeThatWasInitializedJustNowAreRecorded(t *testing.T) {
	for name, c := range map[string]struct {
		ago  time.Duration
		want []string
	}{
		"just now":      {time.Minute, []string{"p0", "p1", "p2", "p3"}},
		"some time ago": {2 * records.KeptFor, []string{"p0", "p1"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.run()
				defer w.stop()
				w.submit(2)
				pass(time.Minute)
				w.initialize(time.Now().Add(-c.ago))
				for _, n := range w.nodes {
					up := n.DeepCopy()
					up.Labels[labelRegistered], up.Labels[labelInitialized] = "true", "true"
					w.mu.Lock()
					w.nodes[n.Name] = up
					w.mu.Unlock()
					w.parts.Nodes.NodeCached(up)
				}
				w.submitPod(2, 3)
				pass(time.Minute)
				if _, instances, bound := w.count(); instances != 1 || bound != 4 {
					t.Fatalf("%d instances, %d pods bound; want 1, 4", instances, bound)
				}
				var got []string
				for _, cl := range w.Claims() {
					for _, s := range cl.Slots {
						got = append(got, s.Pod.Name)
					}
				}
				if slices.Sort(got); !slices.Equal(got, c.want) {
					t.Errorf("recorded for %v, want %v", got, c.want)
				}
			})
		})
	}
}

// As long as it is not known whether an earlier leader's call launched anything, a claim that no pod needs stays in the ledger: its kubelet may
// have registered, and pods may be planned on it.
func TestUnneededClaimRemainsWhileItsLaunchIsUnknown(t *testing.T) {
	w := newWorld(t)
	w.build()
	rec := &capacity.LaunchBatch{Token: "t", Claims: []string{"c"}}
	c := &capacity.Claim{Name: "c", Pool: "pool", LaunchBatch: rec}
	w.tokens["t"], w.instances["i"] = []string{"i"}, capacity.Instance{ID: "i", Claim: "c"}
	w.parts.restorer.node(c, rec, nil)
	left, err := w.parts.resumption.stillNeeded(t.Context(), rec, w.parts.resumption.requesters.of(rec), []*capacity.Claim{c})
	there := false
	w.reservations.Read(func(l ledger.Reader) { there = l.Has("c") })
	if err != nil || len(left) != 1 || !there {
		t.Errorf("claims %v, err %v, in the ledger: %t", left, err, there)
	}
}

// The nodes that boot take as many volumes after a change of leaders as before: as many as the least of the types that may have been launched, or as
// the one that was. Without a limit the planner would put pods there that no node of it can take.
func TestRestoredNodesHaveVolumeLimits(t *testing.T) {
	w := newWorld(t)
	w.volumeLimits = map[string]map[string]int64{"small": {"ebs": 5}, "large": {"ebs": 3, "efs": 9}}
	w.build()
	both := []capacity.OfferKey{{InstanceType: "small"}, {InstanceType: "large"}}
	for name, tc := range map[string]struct {
		instanceType string
		batch        *capacity.LaunchBatch
		want         map[string]int64
	}{
		"not-launched":    {batch: &capacity.LaunchBatch{Offers: both}, want: map[string]int64{"ebs": 3, "efs": 9}},
		"launched":        {instanceType: "small", batch: &capacity.LaunchBatch{Offers: both}, want: map[string]int64{"ebs": 5}},
		"not-in-the-list": {instanceType: "other"},
		"by-hand":         {},
	} {
		w.parts.restorer.node(&capacity.Claim{Name: name, Pool: "pool", InstanceType: tc.instanceType}, tc.batch, nil)
		w.reservations.Read(func(l ledger.Reader) {
			for _, f := range l.InFlight() {
				if f.Claim == name && !maps.Equal(f.Template.VolumesFree, tc.want) {
					t.Errorf("%s: %v volumes, want %v", name, f.Template.VolumesFree, tc.want)
				}
			}
			if !l.Has(name) {
				t.Errorf("%s isn't in the ledger", name)
			}
		})
	}
}
