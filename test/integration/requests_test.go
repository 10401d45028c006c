package integration

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	provisioningv1 "github.com/dovetail-scheduler/dovetail/pkg/provisioningrequest/v1"
	"github.com/dovetail-scheduler/dovetail/test/cluster"
)

// kueue creates what Kueue creates for a workload with one set of pods: the ProvisioningRequest, owned by the workload, and then the PodTemplate,
// owned by the request.
func (e *env) kueue(name, class string, pods int32, cpu, memory string, parameters map[string]string) {
	e.Helper()
	workload := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "workload-" + name}} // stands for the Workload
	e.create(workload)
	pr := &provisioningv1.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: provisioningv1.Spec{
		ProvisioningClassName: class, Parameters: parameters,
		PodSets: []provisioningv1.PodSet{{PodTemplateRef: provisioningv1.Reference{Name: "ppt-" + name + "-main"}, Count: pods}}}}
	if err := controllerutil.SetControllerReference(workload, pr, e.api.Scheme()); err != nil {
		e.Fatal(err)
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pr)
	if err != nil {
		e.Fatal(err)
	}
	made := &unstructured.Unstructured{Object: fields}
	made.SetAPIVersion("autoscaling.x-k8s.io/v1")
	made.SetKind("ProvisioningRequest")
	unstructured.RemoveNestedField(fields, "status")
	e.create(made) // without its type: the client would encode that as protobuf
	p := podsAs(name, cpu, memory)
	template := &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: pr.Spec.PodSets[0].PodTemplateRef.Name},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: p.Labels}, Spec: p.Spec}}
	if err := controllerutil.SetControllerReference(made, template, e.api.Scheme()); err != nil {
		e.Fatal(err)
	}
	e.create(template)
}

// condition waits until a request has a condition that is True, and returns it.
func (e *env) condition(request, kind string) *metav1.Condition {
	e.Helper()
	pr := until(e, &provisioningv1.ProvisioningRequestList{}, request, "to be "+kind, func(pr *provisioningv1.ProvisioningRequest) bool {
		return apimeta.IsStatusConditionTrue(pr.Status.Conditions, kind)
	})
	return apimeta.FindStatusCondition(pr.Status.Conditions, kind)
}

// names makes pods name a request, as Kueue does when it starts a job. Jobs add labels of their own.
func names(request, annotation string) podOpt {
	return func(p *corev1.Pod) {
		p.Annotations = map[string]string{annotation: request}
		p.Labels["batch.kubernetes.io/job-name"] = request
	}
}

func nodesOf(pods []*corev1.Pod) []string {
	on := map[string]bool{}
	for _, p := range pods {
		on[p.Spec.NodeName] = true
	}
	return slices.Sorted(maps.Keys(on))
}

const (
	annotationConsume      = "autoscaling.x-k8s.io/consume-provisioning-request"
	annotationConsumeOlder = "cluster-autoscaler.kubernetes.io/consume-provisioning-request"
)

// What Kueue does with a job, on the real API server: nodes are launched for its request, other pods don't take them, the job's pods are bound
// there, and the booking ends with them. The next request gets what is free without anything being bought, and one that is too large gets
// nothing.
func TestProvisioningRequests(t *testing.T) {
	t.Parallel()
	e := start(t, nil)
	e.apply(nodeClass, strings.Replace(nodePool, "      requirements:\n", "      requirements:\n        - {key: node.kubernetes.io/instance-type, operator: In, values: [m5.xlarge]}\n", 1))
	e.kueue("train", provisioningv1.ClassBestEffortAtomic, 6, "1100m", "1Gi", nil) // three on each of two nodes
	e.condition("train", provisioningv1.Accepted)
	if c := e.condition("train", provisioningv1.Provisioned); c.Reason != "CapacityIsProvisioned" {
		t.Errorf("provisioned: %+v", c)
	}
	e.settled(2)
	own := slices.Sorted(maps.Keys(e.nodes()))
	for name, n := range e.nodes() {
		if n.Labels["karpenter.sh/initialized"] != "true" {
			t.Errorf("the request is provisioned before node %s is initialized", name)
		}
	}
	// The nodes are empty, and pods of another job, which would fit there, get another node.
	e.pods("other", 3, "1100m", "1Gi")
	for _, p := range e.bound("other", 3) {
		if slices.Contains(own, p.Spec.NodeName) {
			t.Errorf("pod %s is on node %s, which is booked", p.Name, p.Spec.NodeName)
		}
	}
	before := e.launches()
	e.pods("train", 6, "1100m", "1Gi", names("train", annotationConsume))
	if on := nodesOf(e.bound("train", 6)); !slices.Equal(on, own) {
		t.Errorf("the job's pods are on %v, booked were %v", on, own)
	}
	if c := e.condition("train", provisioningv1.BookingExpired); c.Reason != "CapacityBookingConsumed" {
		t.Errorf("the booking has ended: %+v", c)
	}
	// The node of the other job ends up empty: capacity for a request that buys nothing.
	for i := range 3 {
		if err := e.api.Delete(e.ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("other-%d", i)}}, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
	}
	e.kueue("check", provisioningv1.ClassCheckCapacity, 3, "1100m", "1Gi", nil)
	if c := e.condition("check", provisioningv1.Provisioned); c.Reason != "CapacityIsFound" {
		t.Errorf("capacity is there: %+v", c)
	}
	e.kueue("full", provisioningv1.ClassCheckCapacity, 1, "1100m", "1Gi", map[string]string{"noRetry": "true"})
	if c := e.condition("full", provisioningv1.Failed); c.Reason != "CapacityIsNotFound" {
		t.Errorf("all capacity is used or booked: %+v", c)
	}
	e.pods("check", 3, "1100m", "1Gi", names("check", annotationConsumeOlder))
	if on := nodesOf(e.bound("check", 3)); len(on) != 1 || slices.Contains(own, on[0]) {
		t.Errorf("the pods are on %v, the free node was another than %v", on, own)
	}
	// Requests that can't be had.
	e.kueue("huge", provisioningv1.ClassBestEffortAtomic, 2, "100", "1Gi", map[string]string{"ValidUntilSeconds": "20"})
	if c := e.condition("huge", provisioningv1.Failed); c.Reason != "Expired" || !strings.Contains(c.Message, "within 20s") {
		t.Errorf("no instance is that large: %+v", c)
	}
	e.kueue("wrong", provisioningv1.ClassCheckCapacity, 1, "1", "1Gi", map[string]string{"noRetry": "perhaps"})
	if c := e.condition("wrong", provisioningv1.Failed); !strings.Contains(c.Message, `default/wrong: spec.parameters[noRetry]: "perhaps"`) {
		t.Errorf("a parameter is wrong: %+v", c)
	}
	if n := e.launches(); n != before {
		t.Errorf("%d instances were launched for requests that buy nothing or can't be had", n-before)
	}
}

// Capacity runs out when half of a request's instances are launched: they are given back, and the request waits.
func TestProvisioningRequestIsAllOrNothing(t *testing.T) {
	t.Parallel()
	e := start(t, func(s *setting) {
		s.idle = true
		s.sim.Speed = 1 // the launched instances are still booting when the plan is given up
	})
	e.apply(nodeClass, strings.Replace(nodePool, "      requirements:\n", "      requirements:\n        - {key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}\n", 1))
	for _, z := range zones {
		n := 0
		if z == zones[0] {
			n = 2
		}
		e.sim.SetCapacity("m5.large", z, "on-demand", n)
	}
	e.run()
	e.kueue("train", provisioningv1.ClassBestEffortAtomic, 4, "1200m", "1Gi", nil)
	until(e, &provisioningv1.ProvisioningRequestList{}, "train", "to have no capacity", func(pr *provisioningv1.ProvisioningRequest) bool {
		c := apimeta.FindStatusCondition(pr.Status.Conditions, provisioningv1.Provisioned)
		return c != nil && c.Status == metav1.ConditionFalse && c.Reason == "CapacityIsNotFound"
	})
	e.settled(0)
	if n := e.launches(); n > 2 {
		t.Errorf("%d instances were launched, two could be had", n)
	}
}

// A killed leader's successor keeps what is booked, buys nothing a second time, and ends the booking in time.
func TestProvisioningRequestOutlivesItsLeader(t *testing.T) {
	t.Parallel()
	e := start(t, func(s *setting) { s.mortal = true })
	e.apply(nodeClass, nodePool)
	e.kueue("train", provisioningv1.ClassBestEffortAtomic, 4, "1", "1Gi", nil)
	e.condition("train", provisioningv1.Provisioned)
	own, before := slices.Sorted(maps.Keys(e.nodes())), e.launches()
	e.sched.Kill()
	e.run()
	e.pods("train", 4, "1", "1Gi", names("train", annotationConsume))
	if on := nodesOf(e.bound("train", 4)); !slices.Equal(on, own) || e.launches() != before {
		t.Errorf("the job's pods are on %v, booked were %v; %d instances were launched after the leader changed", on, own, e.launches()-before)
	}
	e.condition("train", provisioningv1.BookingExpired)
	// A booking whose time is over: the condition says since when.
	e.kueue("late", provisioningv1.ClassBestEffortAtomic, 2, "1", "1Gi", nil)
	e.condition("late", provisioningv1.Provisioned)
	pr := &provisioningv1.ProvisioningRequest{}
	if err := e.api.Get(e.ctx, client.ObjectKey{Namespace: "default", Name: "late"}, pr); err != nil {
		t.Fatal(err)
	}
	changed := pr.DeepCopy()
	c := apimeta.FindStatusCondition(changed.Status.Conditions, provisioningv1.Provisioned)
	c.LastTransitionTime = metav1.NewTime(time.Now().Add(-10 * time.Minute))
	if err := e.api.Status().Patch(e.ctx, changed, client.MergeFrom(pr)); err != nil {
		t.Fatal(err)
	}
	if c := e.condition("late", provisioningv1.BookingExpired); c.Reason != "CapacityReservationTimeExpired" {
		t.Errorf("the booking has ended: %+v", c)
	}
	e.pods("any", 2, "1", "1Gi")
	before = e.launches()
	if e.bound("any", 2); e.launches() != before {
		t.Error("capacity whose booking is over isn't used")
	}
	if _, err := cluster.Until(e.wait(), e.api, &corev1.PodList{}, func(p []*corev1.Pod) (bool, string, error) {
		return len(p) == 6, "six pods", nil
	}); err != nil {
		t.Error(err)
	}
}
