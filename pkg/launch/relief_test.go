package launch

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// initialized lets the node's kubelet register, and everything else happen that makes it initialized.
func (w *world) initialized(name string) {
	w.mu.Lock()
	n := w.nodes[name].DeepCopy()
	n.Labels[labelRegistered], n.Labels[labelInitialized] = "true", "true"
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	w.nodes[name] = n
	w.mu.Unlock()
	w.parts.Nodes.NodeCached(n)
}

// nodesAndBound returns the names of the existing nodes, and how many pods are bound.
func (w *world) nodesAndBound() (names []string, bound int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name := range w.nodes {
		names = append(names, name)
	}
	return names, len(w.bound)
}

// Pods that had to wait because enough nodes are in flight get theirs when one of these is initialized, however long they have waited.
func TestNodesThatAreInitializedMakeRoomForMoreInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.maxInFlight = 2
		w.run()
		defer w.stop()
		w.submit(12) // three planned nodes
		pass(30 * time.Minute)
		nodes, bound := w.nodesAndBound()
		if len(nodes) != 2 || bound != 8 {
			t.Fatalf("%d nodes and %d pods bound, want 2 and 8", len(nodes), bound)
		}
		w.initialized(nodes[0])
		pass(5 * time.Second)
		if nodes, bound := w.nodesAndBound(); len(nodes) != 3 || bound != 12 {
			t.Errorf("%d nodes and %d pods bound seconds after a node was initialized, want 3 and 12", len(nodes), bound)
		}
	})
}

// Pods that wait for a limit of their pool get a node when a claim of the pool has ended, however long they have waited.
func TestClaimsThatEndMakeRoomBelowTheirPoolsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.limits = capacity.Resources{capacity.ResourceNodes: 2}
		w.run()
		defer w.stop()
		w.submit(12) // three planned nodes
		pass(30 * time.Minute)
		if nodes, bound := w.nodesAndBound(); len(nodes) != 2 || bound != 8 {
			t.Fatalf("%d nodes and %d pods bound, want 2 and 8", len(nodes), bound)
		}
		w.mu.Lock()
		var gone *capacity.Claim
		for _, gone = range w.claims {
			break
		}
		gone.Deleting = true
		w.mu.Unlock()
		w.parts.Claims.ClaimGone(gone.Name, "its NodeClaim was deleted")
		pass(time.Minute)
		if nodes, _ := w.nodesAndBound(); len(nodes) != 2 {
			t.Fatalf("a node was launched before the claim had gone: it counts until then")
		}
		w.mu.Lock()
		delete(w.claims, gone.Name)
		w.mu.Unlock()
		w.parts.Claims.ClaimGone(gone.Name, "its NodeClaim was deleted")
		pass(reliefPause + 2*time.Second)
		if nodes, bound := w.nodesAndBound(); len(nodes) != 3 || bound != 12 {
			t.Errorf("%d nodes and %d pods bound seconds after a claim has ended, want 3 and 12", len(nodes), bound)
		}
	})
}

func TestReliefIsDue(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	const most = 1000
	limited := &capacity.Pool{Name: "limited", Limits: capacity.Resources{"cpu": 1}}
	open := &capacity.Pool{Name: "open"}
	refusal := func(retryable bool, pool string) []capacity.Refusal {
		return []capacity.Refusal{{Retryable: true, Reasons: []capacity.PoolReason{{Pool: "open"}}}, {Retryable: retryable, Reasons: []capacity.PoolReason{{Pool: pool}}}}
	}
	for _, tc := range []struct {
		name     string
		then     func(r *relief)
		inFlight int
		want     bool
	}{
		{"nobody waits", func(r *relief) { r.claimEnded("limited") }, 0, false},
		{"for nodes in flight, and a tenth of them has come", func(r *relief) { r.crowded() }, most - most/10, true},
		{"fewer of them have come", func(r *relief) { r.crowded() }, most - most/10 + 1, false},
		{"for a limit, and a claim has ended", func(r *relief) { r.limited("limited"); r.claimEnded("limited") }, most, true},
		{"for one that a plan was made with", func(r *relief) {
			r.refused([]*capacity.Pool{open, limited}, refusal(true, "limited"))
			r.claimEnded("limited")
		}, most, true},
		{"nobody knows of which pool it was", func(r *relief) { r.limited("limited"); r.claimEnded("") }, most, true},
		{"one of another pool has ended", func(r *relief) { r.limited("limited"); r.claimEnded("open") }, most, false},
		{"one had ended before", func(r *relief) { r.claimEnded("limited"); r.limited("limited") }, most, false},
		{"one has ended while the plan was made", func(r *relief) {
			ends := r.begins()
			r.claimEnded("limited")
			r.limited("limited")
			ends()
		}, most, true},
		{"one had ended before the plan was made", func(r *relief) {
			r.claimEnded("limited")
			r.begins()()
			r.limited("limited")
		}, most, false},
		{"its pods are not refused yet", func(r *relief) {
			r.begins()
			r.limited("limited")
			r.crowded()
			r.claimEnded("limited")
		}, 0, false},
		{"the pool has no limits", func(r *relief) {
			r.refused([]*capacity.Pool{open, limited}, refusal(true, "open"))
			r.claimEnded("open")
		}, most, false},
		{"the pods are refused for good", func(r *relief) {
			r.refused([]*capacity.Pool{open, limited}, refusal(false, "limited"))
			r.claimEnded("limited")
		}, most, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := &relief{most: most}
			tc.then(r)
			inFlight := func() int { return tc.inFlight }
			if got := r.due(now, inFlight); got != tc.want {
				t.Errorf("due: %t, want %t", got, tc.want)
			}
			if r.due(now, inFlight) {
				t.Error("due a second time")
			}
		})
	}
}

// Claims that end one after the other cause a plan now and then, not one each.
func TestReliefOfLimitsPauses(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	r, plans := &relief{most: 1}, 0
	for range 60 {
		r.limited("pool")
		r.claimEnded("pool")
		if r.due(now, func() int { return 0 }) {
			plans++
		}
		now = now.Add(time.Second)
	}
	if plans != 12 {
		t.Errorf("%d plans in a minute, want 12", plans)
	}
}
