package store

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/reference"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
)

func buffer(name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"replicas": int64(3)}}}
	o.SetGroupVersionKind(capacityBuffers.GroupVersionKind)
	o.SetNamespace("shop")
	o.SetName(name)
	return o
}

// The definition may be installed at any time; each buffer gets one event, even if it changes later, and none while Karpenter, which
// supports buffers, leads.
func TestCapacityBuffersAreReported(t *testing.T) {
	api := newFakeAPI(buffer("web"), buffer("api"))
	api.missing["CapacityBufferList"] = true
	w := newWorld(t, api)
	var owner atomic.Value
	owner.Store("Karpenter leads")
	w.SetHold(func() error {
		if why := owner.Load().(string); why != "" {
			return errors.New(why)
		}
		return nil
	})
	w.leading()
	w.eventually("looked for", w.clock.HasWaiters)
	api.install(capacityBuffers)
	w.eventually("they are found", func() bool {
		w.clock.Step(absentRetry)
		b := w.status.buffers.Load()
		return b != nil && len(b.GetStore().ListKeys()) == 2 && api.watched(capacityBuffers)
	})
	if n := len(w.events.Events); n > 0 {
		t.Errorf("%d events while Karpenter leads: %s", n, <-w.events.Events)
	}
	owner.Store("")
	var said []string
	w.eventually("both are told", func() bool {
		w.clock.Step(holdRetry)
		for len(w.events.Events) > 0 {
			said = append(said, <-w.events.Events)
		}
		return len(said) >= 2
	})
	for _, one := range said {
		if !strings.HasPrefix(one, "Warning CapacityBufferIgnored Dovetail launches no nodes for CapacityBuffers") {
			t.Errorf("event %q", one)
		}
	}

	// A recorder determines by itself which object an event is about.
	o, _, _ := w.status.buffers.Load().GetStore().GetByKey("shop/web")
	about, err := reference.GetReference(karpenter.Scheme(nodeclass.Kind), o.(runtime.Object))
	if err != nil || about.APIVersion != "autoscaling.x-k8s.io/v1beta1" || about.Kind != "CapacityBuffer" || about.Namespace != "shop" || about.Name != "web" {
		t.Errorf("the event is about %+v (%v)", about, err)
	}

	changed := buffer("web")
	if err := w.api.Get(w.ctx, client.ObjectKeyFromObject(changed), changed); err != nil {
		t.Fatal(err)
	}
	changed.SetLabels(map[string]string{"edited": "yes"})
	if err := w.api.Update(w.ctx, changed); err != nil {
		t.Fatal(err)
	}
	if err := w.api.Create(w.ctx, buffer("third")); err != nil {
		t.Fatal(err)
	}
	w.hears(said[0])
	if n := len(w.events.Events); n > 0 {
		t.Errorf("told again: %s", <-w.events.Events)
	}
}
