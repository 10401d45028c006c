package integration

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// ownUserData has reservations and a label of its own, as classes have that came to AL2023 by writing a NodeConfig.
const ownUserData = nodeClass + `
  userData: |
    apiVersion: node.eks.aws/v1alpha1
    kind: NodeConfig
    spec:
      kubelet:
        config: {systemReserved: {cpu: 500m, memory: 1Gi}}
        flags: ["--node-labels=team=infra"]
`

// What user data reserves isn't promised to pods: no kubelet rejects one. Its label is on the Nodes that are created ahead, since the kubelets
// apply none there, and a selector for it finds a node.
func TestOwnUserData(t *testing.T) {
	t.Parallel()
	e := start(t, nil)
	e.apply(ownUserData, nodePool)
	for _, app := range []string{"one", "two", "three"} {
		e.pods(app, 20, "450m", "1500Mi")
		e.running(app, 20)
	}
	e.pods("labelled", 3, "450m", "1500Mi", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"team": "infra"} })
	e.running("labelled", 3)
	claims := e.claims()
	for name, n := range e.nodes() {
		if n.Labels["team"] != "infra" {
			t.Errorf("Node %s: label team is %q", name, n.Labels["team"])
		}
		for _, c := range claims {
			if c.Status.NodeName == name && n.Status.Allocatable.Cpu().Cmp(*c.Status.Allocatable.Cpu()) < 0 {
				t.Errorf("Node %s has %v CPUs for pods, its claim promised %v", name, n.Status.Allocatable.Cpu(), c.Status.Allocatable.Cpu())
			}
		}
	}
	for _, p := range e.podsIn("default") {
		if p.Status.Phase == corev1.PodFailed {
			t.Errorf("pod %s: %s %s", p.Name, p.Status.Reason, p.Status.Message)
		}
	}
}
