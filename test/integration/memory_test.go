package integration

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
)

// Machines keep more of their memory than vmMemoryOverheadPercent says. The first node of the type is planned too large: a pod that
// needs the last of it is bound only when the kubelet has registered, and gets another node instead of being rejected. From then on nodes of the type are
// planned as they are.
func TestMemoryOverheadIsLearned(t *testing.T) {
	t.Parallel()
	e := start(t, func(s *setting) {
		s.boots.Overhead = func(string, string) float64 { return 0.12 }
	})
	replicaSets(t, e.c.AdminConfig(), 100)
	e.apply(nodeClass, strings.Replace(nodePool, "{key: karpenter.k8s.aws/instance-category, operator: In, values: [c, m, r]}", "{key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}", 1))
	rejected := func() (n int) {
		for _, p := range e.podsIn("default") {
			if p.Status.Phase == corev1.PodFailed && p.Status.Reason == "OutOfmemory" {
				n++
			}
		}
		return n
	}
	run := func(app string, n int) {
		e.create(replicas(app, int32(n), "100m", "3300Mi"))
		if _, err := cluster.Until(e.wait(), e.api, &corev1.PodList{}, func(pods []*corev1.Pod) (bool, string, error) {
			running := 0
			for _, p := range pods {
				if cluster.Running(p) {
					running++
				}
			}
			return running == n, fmt.Sprintf("%d pods of %s to run, %d do", n, app, running), nil
		}, client.MatchingLabels{"app": app}); err != nil {
			t.Fatal(err)
		}
	}
	// An m5.large has 6.7 GiB for pods as planned, and 6.4 GiB in truth.
	run("one", 2)
	if n := len(e.claims()); n != 2 {
		t.Errorf("%d NodeClaims for two pods, want a first one for both and, when it has turned out to be too small, another", n)
	}
	run("two", 3)
	if n := rejected(); n > 0 {
		t.Errorf("%d pods were rejected by their kubelets", n)
	}
	nodes := e.nodes()
	late := 0
	for _, c := range e.claims() {
		n := nodes[c.Status.NodeName]
		if n == nil {
			continue
		}
		if n.Status.Allocatable.Memory().Cmp(*c.Status.Allocatable.Memory()) >= 0 {
			late++
		}
	}
	if late < 3 {
		t.Errorf("only %d claims promise no more than their nodes have", late)
	}
}
