package store

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
)

func staticPool(n int64) func(*karpv1.NodePool) {
	return func(np *karpv1.NodePool) { np.Spec.Replicas, np.Spec.Weight, np.Spec.Limits = &n, nil, nil }
}

func TestStaticPoolOfAnObject(t *testing.T) {
	p := karpenter.PoolOf(testPool("p", staticPool(3)), classKind)
	if p.Replicas == nil || *p.Replicas != 3 || p.Unready != "" {
		t.Errorf("replicas %v, unready %q", p.Replicas, p.Unready)
	}
}

// The API server's state counts, not the cache.
func TestStaticClaimsArePastTheCache(t *testing.T) {
	leaving := func(nc *karpv1.NodeClaim) {
		nc.Finalizers, nc.DeletionTimestamp = []string{"example.com/wait"}, &metav1.Time{Time: start}
	}
	of := func(name, pool string, change ...func(*karpv1.NodeClaim)) *karpv1.NodeClaim {
		nc := byHand(change...)
		nc.Name, nc.Labels = name, map[string]string{karpv1.NodePoolLabelKey: pool}
		return nc
	}
	w := newWorld(t, newFakeAPI(testPool("static", staticPool(3)), testPool("dynamic"),
		testPool("going", staticPool(3), func(np *karpv1.NodePool) {
			np.Finalizers, np.DeletionTimestamp = []string{"foregroundDeletion"}, &metav1.Time{Time: start}
		}),
		of("a", "static"), of("b", "static", leaving), of("c", "dynamic")))
	w.ctx = context.Background() // not running: the cache is empty
	replicas, there, claims, err := w.StaticClaims(w.ctx, "static")
	if err != nil || replicas != 3 || !there {
		t.Errorf("%d nodes are wanted, there %v, %v", replicas, there, err)
	}
	if diff := cmp.Diff(map[string]bool{"a": false, "b": true}, claims); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
	for _, pool := range []string{"dynamic", "going", "nobody"} {
		if replicas, there, claims, err := w.StaticClaims(w.ctx, pool); err != nil || there || replicas != 0 || claims != nil {
			t.Errorf("%s: %d nodes are wanted, there %v, claims %v, %v", pool, replicas, there, claims, err)
		}
	}
}

func TestEventsOfAPool(t *testing.T) {
	w := newWorld(t, newFakeAPI(testPool("default"))).ready()
	w.TellPool("default", corev1.EventTypeWarning, "TooFewNodes", "no machine")
	w.TellPool("nobody", corev1.EventTypeWarning, "TooFewNodes", "no machine")
	if got, want := <-w.events.Events, "Warning TooFewNodes no machine"; got != want || len(w.events.Events) > 0 {
		t.Errorf("event %q and %d more, want %q", got, len(w.events.Events), want)
	}
}

func TestEventsOfAClaim(t *testing.T) {
	w := newWorld(t, newFakeAPI(testPool("default"), readyClass("default"))).leading()
	if _, err := w.Create(w.ctx, testClaim("a")); err != nil {
		t.Fatal(err)
	}
	w.TellClaim("a", corev1.EventTypeWarning, "NodeRefused", "a webhook")
	w.TellClaim("nobody", corev1.EventTypeWarning, "NodeRefused", "a webhook")
	if got, want := <-w.events.Events, "Warning NodeRefused a webhook"; got != want || len(w.events.Events) > 0 {
		t.Errorf("event %q and %d more, want %q", got, len(w.events.Events), want)
	}
}

// The scale subresource maps replicas and the number of nodes.
func TestScaleOfAStaticPool(t *testing.T) {
	w := newWorld(t, newFakeAPI(testPool("default", plain, staticPool(2)), readyClass("default"))).leading()
	for _, name := range []string{"default-1", "default-2"} {
		if _, err := w.Create(w.ctx, testClaim(name)); err != nil {
			t.Fatal(err)
		}
		if err := w.RecordLaunched(w.ctx, &capacity.Claim{Name: name}, testInstance, nil, capacity.Resources{corev1.ResourceCPU: 2000}, nil); err != nil {
			t.Fatal(err)
		}
	}
	w.eventually("two nodes are counted", func() bool {
		w.clock.Step(countDelay)
		return ptr.Deref(w.getPool("default").Status.Nodes, 0) == 2
	})
}
