package store

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func TestTakeAnOrder(t *testing.T) {
	w := newWorld(t, newFakeAPI(testClass("default"), byHand(func(nc *karpv1.NodeClaim) { nc.Finalizers = []string{"example.com/mine"} }))).ready()
	c := *w.Claim("mine")
	c.Largest = capacity.Resources{corev1.ResourceCPU: 64000}
	if err := w.Take(w.ctx, &c); err != nil {
		t.Fatal(err)
	}
	nc := &karpv1.NodeClaim{}
	if err := w.api.Get(w.ctx, client.ObjectKey{Name: "mine"}, nc); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"example.com/mine", "karpenter.sh/termination"}, nc.Finalizers); diff != "" {
		t.Errorf("finalizers (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"team": "a", "karpenter.k8s.aws/ec2nodeclass": "default"}, nc.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if got := w.Claim("mine"); got.Largest[corev1.ResourceCPU] != 64000 || got.Order == nil {
		t.Errorf("what it counts for: %v, order %v", got.Largest, got.Order)
	}
	c.UID = "of an earlier one"
	if err := w.Take(w.ctx, &c); err == nil {
		t.Error("another claim of the same name was taken")
	}
	for _, err := range []error{w.RecordBatch(w.ctx, &c, capacity.LaunchBatch{}), w.RecordLaunched(w.ctx, &c, testInstance, nil, nil, nil)} {
		if err == nil || w.Claim("mine").Launched || w.Claim("mine").LaunchBatch != nil {
			t.Errorf("recorded on another claim of the same name: %v", err)
		}
	}
}

func TestRefusedOrderIsReportedOnce(t *testing.T) {
	w := newWorld(t, newFakeAPI(testClass("default"), byHand())).ready()
	for _, again := range []bool{true, true, false} {
		if err := w.RecordRefused(w.ctx, "mine", "Invalid", "spec.taints[0].key: Required value", again); err != nil {
			t.Fatal(err)
		}
	}
	nc := &karpv1.NodeClaim{}
	if err := w.api.Get(w.ctx, client.ObjectKey{Name: "mine"}, nc); err != nil {
		t.Fatal(err)
	}
	if got, want := conditions(nc)["Launched"], "False Invalid: spec.taints[0].key: Required value"; got != want {
		t.Errorf("condition %q, want %q", got, want)
	}
	if got, want := <-w.events.Events, "Warning Invalid spec.taints[0].key: Required value"; got != want {
		t.Errorf("event %q, want %q", got, want)
	}
	if n := len(w.events.Events); n > 0 {
		t.Errorf("%d more events", n)
	}
}
