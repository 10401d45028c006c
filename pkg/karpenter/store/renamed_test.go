package store

import (
	"context"
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// asBefore gives annotations the names that the version before would have written them under.
func asBefore(annotations map[string]string) map[string]string {
	out := maps.Clone(annotations)
	for old, now := range objects.Renamed() {
		if value, ok := out[now]; ok {
			out[old] = value
			delete(out, now)
		}
	}
	return out
}

// inAPI are a claim's annotations as the API server has them.
func (w *world) inAPI(name string) map[string]string {
	w.t.Helper()
	nc := &karpv1.NodeClaim{}
	if err := w.api.Get(context.Background(), client.ObjectKey{Name: name}, nc); err != nil {
		w.t.Fatal(err)
	}
	return nc.Annotations
}

// A claim that the version before wrote is the same claim for whoever reads it: from the cache, live, in a list, in the answer to a patch.
func TestClaimOfAnOlderVersionIsRead(t *testing.T) {
	of := testNodeClaim(t)
	want := karpenter.ClaimOf(of, classKind)
	old := of.DeepCopy()
	old.Annotations = asBefore(of.Annotations)
	if _, there := old.Annotations[objects.AnnotationLaunchBatch]; there || len(old.Annotations) != len(of.Annotations) {
		t.Fatalf("this is no claim of before: %v", old.Annotations)
	}
	w := newWorld(t, newFakeAPI(testPool("default"), testClass("default"), old)).ready()
	same := func(how string, got *capacity.Claim) {
		t.Helper()
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", how, diff)
		}
	}
	want.CreatedAt = w.Claims()[0].CreatedAt
	same("from the watch", w.Claims()[0])
	for how, c := range map[string]client.Reader{"cached": w.Client(), "live": w.Live()} {
		nc, list := &karpv1.NodeClaim{}, &karpv1.NodeClaimList{}
		if err := c.Get(w.ctx, client.ObjectKey{Name: of.Name}, nc); err != nil {
			t.Fatal(err)
		}
		same(how, karpenter.ClaimOf(nc, classKind))
		if err := c.List(w.ctx, list); err != nil || len(list.Items) != 1 {
			t.Fatalf("%d claims, %v", len(list.Items), err)
		}
		same(how+", in a list", karpenter.ClaimOf(&list.Items[0], classKind))
	}
	nc := &karpv1.NodeClaim{}
	nc.Name = of.Name
	if err := w.Live().Patch(w.ctx, nc, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{}}}`))); err != nil {
		t.Fatal(err)
	}
	same("answer to a patch", karpenter.ClaimOf(nc, classKind))
	if err := w.Live().Status().Patch(w.ctx, nc, client.RawPatch(types.MergePatchType, []byte(`{"status":{"nodeName":""}}`))); err != nil {
		t.Fatal(err)
	}
	same("answer to a patch of the status", karpenter.ClaimOf(nc, classKind))
	if diff := cmp.Diff(old.Annotations, w.inAPI(of.Name)); diff != "" {
		t.Errorf("who doesn't lead changed the object (-before +after):\n%s", diff)
	}
}

// What is written has the name of today, and the old one is gone with it.
func TestWritingRemovesTheOldName(t *testing.T) {
	old := testNodeClaim(t)
	before := maps.Clone(old.Annotations)
	old.Annotations = asBefore(before)
	w := newWorld(t, newFakeAPI(testPool("default"), testClass("default"), old)).ready()
	c := w.Claims()[0]
	if err := w.RecordSlots(w.ctx, c.Name, c.Slots[:1]); err != nil {
		t.Fatal(err)
	}
	got := w.inAPI(c.Name)
	if _, still := got["dovetail.sh/planned"]; still || got[objects.AnnotationPlannedPods] == "" || got["dovetail.sh/wave"] == "" {
		t.Errorf("after the pods were written: %v", got)
	}
	next := *c.LaunchBatch
	next.Token, next.Attempt = "token-2", 2
	if err := w.RecordBatch(w.ctx, c, next); err != nil {
		t.Fatal(err)
	}
	got = w.inAPI(c.Name)
	if _, still := got["dovetail.sh/wave"]; still || got[objects.AnnotationLaunchBatch] == "" || got[objects.AnnotationLaunchBatch] == before[objects.AnnotationLaunchBatch] {
		t.Errorf("after the launch batch was written: %v", got)
	}
	w.eventually("the watch has it", func() bool { return w.Claims()[0].LaunchBatch.Token == "token-2" && len(w.Claims()[0].Slots) == 1 })
}

// The leader writes each object once, also one that a process of before writes while this one leads, and objects of the other kinds.
func TestLeaderRenames(t *testing.T) {
	old, pool := testNodeClaim(t), testPool("default", plain)
	want := maps.Clone(old.Annotations)
	old.Annotations = asBefore(want)
	pool.Annotations = map[string]string{"dovetail.sh/largest": "{}", "example.com/x": "y"}
	w := newWorld(t, newFakeAPI(pool, testClass("default"), old)).leading()
	w.eventually("the claim", func() bool { return cmp.Equal(want, w.inAPI(old.Name)) })
	w.eventually("the pool", func() bool {
		a := w.getPool("default").Annotations
		_, still := a["dovetail.sh/largest"]
		return !still && a[objects.AnnotationLargestCapacity] == "{}" && a["example.com/x"] == "y"
	})
	late := &karpv1.NodeClaim{}
	late.Name = old.Name
	if err := w.api.Patch(w.ctx, late, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"dovetail.sh/planned":"[]"}}}`))); err != nil {
		t.Fatal(err)
	}
	want[objects.AnnotationPlannedPods] = "[]"
	w.eventually("what an older process writes late", func() bool {
		w.clock.Step(countDelay)
		return cmp.Equal(want, w.inAPI(old.Name))
	})
	w.eventually("it is known", func() bool { return len(w.Claims()[0].Slots) == 0 })
}
