package store

import (
	"errors"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// TestClaimLife writes a claim's states in the order in which the launcher does, and reads them back at each step, both from our own
// writes and from the watch.
func TestClaimLife(t *testing.T) {
	w := newWorld(t, newFakeAPI(testPool("default"), testClass("default")))
	seen := map[string]*capacity.Claim{}
	var mu sync.Mutex
	w.OnClaim(func(c *capacity.Claim, gone bool) {
		mu.Lock()
		defer mu.Unlock()
		seen[c.Name] = c
		if gone {
			delete(seen, c.Name)
		}
	})
	w.ready()
	want := testClaim("default-abc")
	check := func(step string) {
		t.Helper()
		now := w.Claims()
		if len(now) != 1 {
			t.Fatalf("%s: %d claims, want 1", step, len(now))
		}
		ignore := cmpopts.IgnoreFields(capacity.Claim{}, "UID", "CreatedAt")
		if diff := cmp.Diff(want, now[0], ignore, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: claim (-want +got):\n%s", step, diff)
		}
		w.eventually(step+" is seen by the watch", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return seen["default-abc"] != nil && cmp.Equal(want, seen["default-abc"], ignore, cmpopts.EquateEmpty())
		})
	}

	created, err := w.Create(w.ctx, testClaim("default-abc"))
	if err != nil {
		t.Fatal(err)
	}
	want.Labels = map[string]string{
		corev1.LabelArchStable: "amd64", "example.com/tier": "silver", "team": "a",
		"karpenter.sh/nodepool": "default", "karpenter.k8s.aws/ec2nodeclass": "default",
	}
	want.Annotations = map[string]string{
		"example.com/plan": "7", "example.com/note": "kept", "karpenter.sh/nodepool-hash": testPool("default").Hash(), "karpenter.sh/nodepool-hash-version": karpv1.NodePoolHashVersion,
	}
	if diff := cmp.Diff(want, created, cmpopts.IgnoreFields(capacity.Claim{}, "UID", "CreatedAt"), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("created claim (-want +got):\n%s", diff)
	}
	check("create")

	again := *want.LaunchBatch
	again.Token, again.Attempt = "token-2", 2
	want.LaunchBatch = &again
	if err := w.RecordBatch(w.ctx, &capacity.Claim{Name: "default-abc"}, again); err != nil {
		t.Fatal(err)
	}
	check("record launch batch")

	want.Slots = want.Slots[:1]
	if err := w.RecordSlots(w.ctx, "default-abc", want.Slots); err != nil {
		t.Fatal(err)
	}
	check("record slots")

	if err := w.RecordLaunchFailed(w.ctx, &capacity.Claim{Name: "default-abc"}, "not a reason", "no capacity"); err != nil {
		t.Fatal(err)
	}
	check("record failure")

	want.Capacity = capacity.Resources{corev1.ResourceCPU: 2000, corev1.ResourceMemory: 8 << 30}
	want.Allocatable = capacity.Resources{corev1.ResourceCPU: 1930, corev1.ResourceMemory: 7 << 30}
	if err := w.RecordLaunched(w.ctx, &capacity.Claim{Name: "default-abc"}, testInstance, map[string]string{"example.com/tier": "loses", "karpenter.k8s.aws/instance-family": "m5"}, want.Capacity, want.Allocatable); err != nil {
		t.Fatal(err)
	}
	want.Labels["karpenter.k8s.aws/instance-family"] = "m5"
	want.Labels[corev1.LabelInstanceTypeStable], want.InstanceType = "m5.large", "m5.large"
	want.Labels[corev1.LabelTopologyZone], want.Zone = "us-west-2a", "us-west-2a"
	want.Labels["karpenter.sh/capacity-type"], want.CapacityType = "spot", "spot"
	want.ProviderID, want.ImageID, want.Launched = testInstance.ProviderID, "ami-1", true
	check("record launched")

	want.NodeName = testInstance.NodeName
	if err := w.RecordNode(w.ctx, "default-abc", testInstance); err != nil {
		t.Fatal(err)
	}
	check("record node")

	if err := w.Delete(w.ctx, "default-abc", ""); err != nil {
		t.Fatal(err)
	}
	want.Deleting = true
	w.eventually("deletion is seen", func() bool { return w.Claims()[0].Deleting })
	check("delete")

	// The end: when the finalizer is removed, the claim is deleted.
	nc := &karpv1.NodeClaim{}
	if err := w.Client().Get(w.ctx, client.ObjectKey{Name: "default-abc"}, nc); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"karpenter.sh/termination"}, nc.Finalizers); diff != "" {
		t.Errorf("finalizers (-want +got):\n%s", diff)
	}
	nc.Finalizers = nil
	if err := w.api.Update(w.ctx, nc); err != nil {
		t.Fatal(err)
	}
	w.eventually("the claim is gone", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(w.Claims()) == 0 && len(seen) == 0
	})
	if err := w.Delete(w.ctx, "default-abc", ""); err != nil {
		t.Errorf("deleting what is gone: %v", err)
	}
	if err := w.RecordNode(w.ctx, "default-abc", testInstance); !apierrors.IsNotFound(errors.Unwrap(err)) {
		t.Errorf("recording on a claim that is gone: %v, want not found", err)
	}
	if len(w.Claims()) != 0 {
		t.Error("a failed write brought the claim back")
	}
}
