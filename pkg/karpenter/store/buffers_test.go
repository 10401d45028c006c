package store

import (
	"errors"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
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
	var heard atomic.Int32
	if _, err := w.Informer(karpenter.CapacityBuffers.Kind).AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, now any) {
		heard.Add(int32(len(now.(*autoscalingv1beta1.CapacityBuffer).Status.Conditions)))
	}}); err != nil {
		t.Fatal(err)
	}
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
	w.eventually("the change is seen", func() bool { all, _ := w.Buffers(); return len(all[0].Status.Conditions) == 1 && heard.Load() == 1 })
}

// An API server that can't answer leaves open whether there are CapacityBuffers. If that counted as none, the nodes kept for them could end.
func TestAListErrorIsNoEmptyList(t *testing.T) {
	group := schema.GroupResource{Group: "autoscaling.x-k8s.io", Resource: "lists"}
	for _, c := range []struct {
		name string
		err  error
		want bool
	}{
		{"it doesn't answer", apierrors.NewInternalError(errors.New("etcd is full")), false},
		{"they may not be read", apierrors.NewForbidden(group, "", errors.New("no role")), true},
		{"their definition isn't installed", &meta.NoKindMatchError{GroupKind: karpenter.CapacityBuffers.GroupVersionKind.GroupKind()}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &Store{status: &poolStatus{}}
			i, err := newInformer(karpenter.CapacityBuffers, nil, nil, cache.ResourceEventHandlerFuncs{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if i.note(c.err) == nil {
				t.Fatal("no error")
			}
			s.status.buffers.Store(i)
			if _, known := s.Buffers(); known != c.want {
				t.Errorf("known %t", known)
			}
		})
	}
}
