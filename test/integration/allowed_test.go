package integration

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
)

// noNodes is an admission policy that forbids the creation of Nodes.
const noNodes = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-nodes}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [nodes]}]
  validations: [{expression: "false", message: not without a team}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-nodes}
spec: {policyName: no-nodes, validationActions: [Deny]}
`

// Nothing is launched for pods in a namespace that isn't selected, until it is selected. A Node that a policy refuses is created once
// the policy is deleted, for the instance launched before.
func TestWhatHasToBeAllowedFirst(t *testing.T) {
	t.Parallel()
	e := start(t, func(s *setting) {
		s.config = func(cfg cluster.Config) {
			cfg.SetProvisionArgs(map[string]any{"namespaceSelector": map[string]any{"matchLabels": map[string]any{"nodes": "yes"}}})
		}
	})
	e.apply(nodeClass, nodePool)
	e.pods("web", 3, "500m", "512Mi")
	if why := e.eventOf("web-0", "FailedProvisioning"); !strings.Contains(why, `no node may be launched for pods of namespace "default": namespaceSelector of ProvisionArgs (nodes=yes) doesn't select it`) {
		t.Errorf("the pod is told %q", why)
	}
	if n := len(e.claims()) + e.launches(); n > 0 {
		t.Fatalf("%d claims and instances for pods that may have none", n)
	}

	e.apply(noNodes)
	e.denied()
	e.patch(&corev1.Namespace{}, "default", `{"metadata":{"labels":{"nodes":"yes"}}}`)
	e.claimEvent("NodeRefused")
	if n := len(e.nodes()); n > 0 {
		t.Fatalf("%d Nodes were created against the policy", n)
	}
	if err := e.api.Delete(e.ctx, &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "no-nodes"}}); err != nil {
		t.Fatal(err)
	}
	e.running("web", 3)
	e.settled(len(e.claims()))
	if e.launches() != 1 {
		t.Errorf("%d instances were launched, want 1", e.launches())
	}
}

// denied waits until Nodes can't be created: a policy takes effect some time after it is written.
func (e *env) denied() {
	e.Helper()
	for ctx := e.wait(); ; {
		err := e.api.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "try-"}}, client.DryRunAll)
		if ctx.Err() != nil {
			e.Fatalf("Nodes may still be created: %v", err)
		}
		if err != nil {
			return
		}
	}
}
