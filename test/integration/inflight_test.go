package integration

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
)

const gpu = "nvidia.com/gpu"

func gpus(n string) podOpt {
	return func(p *corev1.Pod) {
		q := resource.MustParse(n)
		p.Spec.Containers[0].Resources.Requests[gpu] = q
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{gpu: q}
	}
}

// antiAffine keeps the pods of an application on separate nodes.
func antiAffine(p *corev1.Pod) {
	p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
		TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": p.Labels["app"]}}}}}}
}

var inflightNodes = flag.Int("inflight.nodes", 30, "nodes that boot while five times as many pods come")

// Nodes that boot for a minute have free capacity beside the pods they were launched for. Pods that are created one by one meanwhile
// use it, five on each node. More nodes: go test ./test/integration -run PodsThatComeWhileNodesBoot -inflight.nodes=100 -patience=5m
func TestPodsThatComeWhileNodesBootBuyNothing(t *testing.T) {
	t.Parallel()
	nodes, late := *inflightNodes, 5**inflightNodes
	e := start(t, func(s *setting) {
		slowBoot(s)
		s.boots.Boot.Median, s.boots.Boot.P95 = time.Minute, 61*time.Second
		s.lives = max(s.lives, 3**patience)
		// On a busy host the scheduler would lose its lease, and with it what this test shows.
		s.config = func(cfg cluster.Config) { cfg.Leases(2*time.Minute, 90*time.Second, 5*time.Second) }
	})
	e.apply(nodeClass, strings.Replace(nodePool, "      requirements:\n", "      requirements:\n        - {key: karpenter.k8s.aws/instance-cpu, operator: In, values: [\"2\"]}\n", 1))
	e.pods("first", nodes, "500m", "256Mi", antiAffine)
	e.bound("first", nodes)
	e.settled(nodes)
	begun := time.Now()
	for i := range late {
		e.pods(fmt.Sprintf("late-%d", i), 1, "250m", "128Mi", func(p *corev1.Pod) { p.Labels["app"] = "late" })
	}
	created := time.Since(begun)
	e.bound("late", late)
	bound := time.Since(begun)
	up := 0
	for _, n := range e.nodes() {
		if n.Labels[karpv1.NodeInitializedLabelKey] == "true" {
			up++
		}
	}
	e.settled(nodes)
	t.Logf("%d pods came within %s and were bound within %s, when %d of %d nodes were up", late, created.Round(time.Second), bound.Round(time.Second), up, nodes)
	if n := e.launches(); n != nodes {
		t.Errorf("%d launches for %d nodes that had room for all", n, nodes)
	}
}

// The kubelet of a node with four GPUs reports none for some time, and other pods are created that request one: they are placed on
// that node. The device plugin runs because its label was put on the Node before the kubelet registered.
func TestPodsThatComeWhileDevicesAreMissingBuyNothing(t *testing.T) {
	t.Parallel()
	e := start(t, func(s *setting) {
		s.boots.Boot.PluginsMin, s.boots.Boot.PluginsMax = 4*time.Minute, 4*time.Minute // twelve seconds at this speed
		s.boots.PluginsByLabel = true
	})
	e.apply(nodeClass, strings.Replace(nodePool, "values: [c, m, r]}", "values: [g]}\n        - {key: node.kubernetes.io/instance-type, operator: In, values: [g4dn.12xlarge]}", 1))
	e.pods("first", 1, "1", "1Gi", gpus("1"))
	if _, err := cluster.Until(e.wait(), e.api, &corev1.NodeList{}, func(nodes []*corev1.Node) (bool, string, error) {
		shows := len(nodes) == 1 && nodes[0].Labels[karpv1.NodeRegisteredLabelKey] == "true" && nodes[0].Status.Allocatable.Name(gpu, resource.DecimalSI).IsZero()
		return shows, "a registered node without devices", nil
	}); err != nil {
		t.Fatal(err)
	}
	e.pods("late", 3, "1", "1Gi", gpus("1"))
	e.bound("late", 3)
	e.bound("first", 1)
	e.settled(1)
	if n := e.launches(); n != 1 {
		t.Errorf("%d launches for four pods that one machine was bought for", n)
	}
}

// A GPU pod waits for its node to boot. When another GPU pod ends meanwhile, the pod takes its place at once.
func TestWaitingPodTakesRoomThatAppears(t *testing.T) {
	t.Parallel()
	e := start(t, slowBoot)
	e.apply(nodeClass, strings.Replace(nodePool, "[c, m, r]", "[g, p]", 1))
	old := fullNode("old", zones[0], "8")
	one := resource.MustParse("1")
	old.Status.Capacity[gpu], old.Status.Allocatable[gpu] = one, one
	e.create(old)
	e.pods("busy", 1, "1", "1Gi", gpus("1"))
	if on := e.bound("busy", 1)[0].Spec.NodeName; on != "old" {
		t.Fatalf("the first pod is on %s", on)
	}
	e.pods("next", 1, "1", "1Gi", gpus("1"))
	claim := e.awaitClaims()[0]
	if _, err := cluster.Until(e.wait(), e.api, &corev1.NodeList{}, func(nodes []*corev1.Node) (bool, string, error) {
		return len(nodes) == 2, "the machine's Node", nil
	}); err != nil {
		t.Fatal(err)
	}
	grace := int64(0)
	if err := e.api.Delete(e.ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "busy-0"}}, &client.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
		t.Fatal(err)
	}
	ended := time.Now()
	next := e.bound("next", 1)[0]
	t.Logf("bound %v after the other pod had ended", time.Since(ended).Round(time.Millisecond))
	if next.Spec.NodeName != "old" {
		t.Errorf("the waiting pod is on %s, not in the other's place", next.Spec.NodeName)
	}
	var nc karpv1.NodeClaim
	if err := e.api.Get(context.Background(), client.ObjectKey{Name: claim.Name}, &nc); err != nil {
		t.Fatal(err)
	}
	if nc.StatusConditions().Get(karpv1.ConditionTypeInitialized).IsTrue() {
		t.Error("the machine was up already: nothing is shown")
	}
}
