package store

import (
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"

	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
)

func buffer(name string) *autoscalingv1beta1.CapacityBuffer {
	return &autoscalingv1beta1.CapacityBuffer{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: autoscalingv1beta1.CapacityBufferSpec{Replicas: new(int32)}}
}

// The definition may be installed at any time. Until then it is known that there are none.
func TestCapacityBuffers(t *testing.T) {
	api := newFakeAPI(buffer("web"), buffer("api"))
	api.missing["CapacityBufferList"] = true
	w := newWorld(t, api)
	var changes atomic.Int32
	w.OnBuffer(func() { changes.Add(1) })
	if _, known := w.Buffers(); known {
		t.Error("buffers are known before they were read")
	}
	w.leading()
	w.eventually("none are known", func() bool { all, known := w.Buffers(); return known && len(all) == 0 })
	api.install(karpenter.CapacityBuffers)
	w.eventually("they are found", func() bool {
		w.clock.Step(absentRetry)
		all, known := w.Buffers()
		return known && len(all) == 2 && all[0].Name == "api" && api.watched(karpenter.CapacityBuffers) && changes.Load() >= 2
	})
	all, _ := w.Buffers()
	changed := all[0].DeepCopy()
	changed.SetCondition("ReadyForProvisioning", metav1.ConditionTrue, "Resolved", "")
	if err := w.SaveBufferStatus(w.ctx, all[0], changed); err != nil {
		t.Fatal(err)
	}
	got := &autoscalingv1beta1.CapacityBuffer{}
	if err := w.api.Get(w.ctx, client.ObjectKeyFromObject(changed), got); err != nil || len(got.Status.Conditions) != 1 {
		t.Errorf("the status is %+v, %v", got.Status, err)
	}
	if err := w.SaveBufferStatus(w.ctx, all[0], changed); err == nil {
		t.Error("a status was written to a version that isn't the current one")
	}
	w.eventually("the change is seen", func() bool { all, _ := w.Buffers(); return len(all[0].Status.Conditions) == 1 })
}
