package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
)

// A buffer is what a user applies for four chunks of one CPU.
const buffer = `
apiVersion: v1
kind: PodTemplate
metadata: {name: chunk, namespace: default}
template:
  metadata: {labels: {app: chunk}}
  spec:
    schedulerName: dovetail-scheduler
    containers: [{name: main, image: main, resources: {requests: {cpu: "1", memory: 512Mi}}}]
---
apiVersion: autoscaling.x-k8s.io/v1beta1
kind: CapacityBuffer
metadata: {name: spare, namespace: default}
spec:
  podTemplateRef: {name: chunk}
  replicas: 4
`

// Nodes are launched for a CapacityBuffer. Pods take its capacity without any node being launched for them, and what they took is bought again, once.
// When the buffer and the pods have gone, so have the nodes.
func TestBufferIsTakenAndRefilled(t *testing.T) {
	t.Parallel()
	e := start(t, nil)
	e.apply(nodeClass, strings.Replace(nodePool, "consolidateAfter: Never", "consolidateAfter: 5s, budgets: [{nodes: 100%}]", 1), buffer)
	e.bufferIs(metav1.ConditionTrue)
	if err := wait.PollUntilContextCancel(e.wait(), 200*time.Millisecond, true, func(context.Context) (bool, error) {
		return e.metric("operator_capacitybuffer_status_condition_count", `name="spare"`, `type="Provisioning"`, `status="True"`) == 1, nil
	}); err != nil {
		t.Errorf("the buffer's condition among the metrics: %v", err)
	}
	before := e.nodes()
	launched := e.launches()
	if cpus := free(before); cpus < 4000 {
		t.Fatalf("the nodes have %dm CPUs, less than the chunks", cpus)
	}
	e.pods("burst", 4, "1", "512Mi")
	for _, p := range e.running("burst", 4) {
		if before[p.Spec.NodeName] == nil {
			t.Errorf("pod %s runs on %s, which was launched later", p.Name, p.Spec.NodeName)
		}
	}
	if n := e.warnings("burst")["FailedScheduling"]; n > 0 {
		t.Errorf("%d events say that pods of the burst fitted nowhere", n)
	}
	if _, err := cluster.Until(e.wait(), e.api, &karpv1.NodeClaimList{}, func(claims []*karpv1.NodeClaim) (bool, string, error) {
		return len(claims) > launched, "a node for the chunks that were taken", nil
	}); err != nil {
		t.Fatal(err)
	}
	e.bufferIs(metav1.ConditionTrue)
	if n := e.launches(); n > 2*launched {
		t.Errorf("%d instances were launched for the buffer, and %d when its chunks had been taken", launched, n-launched)
	}
	if err := e.api.Delete(e.ctx, &autoscalingv1beta1.CapacityBuffer{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "spare"}}); err != nil {
		t.Fatal(err)
	}
	if err := e.api.DeleteAllOf(e.ctx, &corev1.Pod{}, client.InNamespace("default"), client.MatchingLabels{"app": "burst"}); err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.Until(e.wait(), e.api, &karpv1.NodeClaimList{}, func(claims []*karpv1.NodeClaim) (bool, string, error) {
		return len(claims) == 0, fmt.Sprintf("the end of %d nodes", len(claims)), nil
	}); err != nil {
		t.Fatal(err)
	}
}

// bufferIs waits until the buffer says whether all of its chunks have capacity.
func (e *env) bufferIs(status metav1.ConditionStatus) {
	e.Helper()
	if _, err := cluster.Until(e.wait(), e.api, &autoscalingv1beta1.CapacityBufferList{}, func(buffers []*autoscalingv1beta1.CapacityBuffer) (bool, string, error) {
		for _, b := range buffers {
			if c := meta.FindStatusCondition(b.Status.Conditions, autoscalingv1beta1.ProvisioningCondition); c != nil && c.Status == status {
				return true, "", nil
			}
			return false, fmt.Sprintf("Provisioning to be %s: %+v", status, b.Status.Conditions), nil
		}
		return false, "the buffer", nil
	}); err != nil {
		e.Fatal(err)
	}
}

// free returns how many CPUs the nodes have, in thousandths.
func free(nodes map[string]*corev1.Node) (millis int64) {
	for _, n := range nodes {
		millis += n.Status.Allocatable.Cpu().MilliValue()
	}
	return millis
}
