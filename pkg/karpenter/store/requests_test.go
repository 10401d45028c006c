package store

import (
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	provisioningv1 "github.com/dovetail-scheduler/dovetail/pkg/provisioningrequest/v1"
)

// The definition may be installed at any time. Until then it is known that there are none.
func TestProvisioningRequests(t *testing.T) {
	request := func(name string) *provisioningv1.ProvisioningRequest {
		return &provisioningv1.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: name},
			Spec: provisioningv1.Spec{ProvisioningClassName: provisioningv1.ClassCheckCapacity, Parameters: map[string]string{"noRetry": "true"},
				PodSets: []provisioningv1.PodSet{{PodTemplateRef: provisioningv1.Reference{Name: "worker"}, Count: 3}}}}
	}
	api := newFakeAPI(request("second"), request("first"))
	api.missing["ProvisioningRequestList"] = true
	w := newWorld(t, api)
	var changes atomic.Int32
	w.OnRequest(func() { changes.Add(1) })
	if _, known := w.Requests(); known {
		t.Error("requests are known before they were read")
	}
	w.leading()
	w.eventually("none are known", func() bool { all, known := w.Requests(); return known && len(all) == 0 })
	api.install(karpenter.ProvisioningRequests)
	w.eventually("they are found", func() bool {
		w.clock.Step(absentRetry)
		all, known := w.Requests()
		return known && len(all) == 2 && all[0].Name == "first" && api.watched(karpenter.ProvisioningRequests) && changes.Load() >= 2
	})
	all, _ := w.Requests()
	if s := all[0].Spec; s.Parameters["noRetry"] != "true" || s.PodSets[0].Count != 3 || s.PodSets[0].PodTemplateRef.Name != "worker" {
		t.Errorf("read as %+v", s)
	}
	changed := all[0].DeepCopy()
	changed.Status.Conditions = append(changed.Status.Conditions, metav1.Condition{Type: provisioningv1.Accepted, Status: metav1.ConditionTrue, Reason: "Accepted", LastTransitionTime: metav1.Now()})
	if len(all[0].Status.Conditions) != 0 {
		t.Fatal("a copy shares its conditions")
	}
	if err := w.SaveRequestStatus(w.ctx, all[0], changed); err != nil {
		t.Fatal(err)
	}
	got := &provisioningv1.ProvisioningRequest{}
	if err := w.api.Get(w.ctx, client.ObjectKeyFromObject(changed), got); err != nil || len(got.Status.Conditions) != 1 {
		t.Errorf("the status is %+v, %v", got.Status, err)
	}
	if err := w.SaveRequestStatus(w.ctx, all[0], changed); err == nil {
		t.Error("a status was written to a version that isn't the current one")
	}
	w.eventually("the change is seen", func() bool { all, _ := w.Requests(); return len(all[0].Status.Conditions) == 1 })
}
