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
		pass(7 * time.Second)
		if nodes, bound := w.nodesAndBound(); len(nodes) != 3 || bound != 12 {
			t.Errorf("%d nodes and %d pods bound seconds after a claim has ended, want 3 and 12", len(nodes), bound)
		}
	})
}
