package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
)

func TestOnePodAndNoNodes(t *testing.T) {
	t.Parallel()
	e := start(t, nil)
	e.apply(nodeClass, nodePool)
	e.pods("web", 1, "500m", "512Mi")
	pods := e.bound("web", 1)
	e.settled(1)
	e.onPlan(pods)
	e.running("web", 1)
	node := e.nodes()[pods[0].Spec.NodeName]
	if node.Labels["karpenter.sh/nodepool"] != "default" || node.Labels[corev1.LabelArchStable] != "amd64" {
		t.Errorf("labels of the node: %v", node.Labels)
	}
}

// A thousand pods keep the machine busy: alone, as is the next one.
func TestThousandPodsAndNoNodes(t *testing.T) {
	e := start(t, slowBoot)
	e.apply(nodeClass, nodePool)
	e.pods("web", 1000, "250m", "512Mi")
	pods := e.bound("web", 1000)
	e.settled(len(e.claims()))
	e.onPlan(pods)
	e.oneCycleAfterGate(1000)
	t.Logf("%d nodes, $%.2f/h", len(e.claims()), e.sim.Bill().PerHour)
}

func TestThousandPodsAndTwoHundredFullNodes(t *testing.T) {
	e := start(t, slowBoot)
	e.apply(nodeClass, nodePool)
	for i := range 200 {
		e.create(fullNode(fmt.Sprintf("old-%d", i), zones[i%3], "0"))
	}
	e.pods("web", 1000, "250m", "512Mi")
	pods := e.bound("web", 1000)
	e.settled(len(e.claims()))
	e.onPlan(pods)
	e.oneCycleAfterGate(1000)
}

// Nodes appear seconds apart, because EC2 may list instances late. Pods joined by a spread constraint must not be let through to
// scheduling before all of the nodes exist, or they would all be placed on the first one.
func TestZoneSpreadOverNodesThatAppearOneByOne(t *testing.T) {
	t.Parallel()
	e := start(t, func(s *setting) { s.sim.DescribeLag = 6 * time.Second })
	e.apply(nodeClass, nodePool)
	for _, z := range zones {
		e.create(fullNode("old-"+z, z, "0"))
	}
	e.pods("web", 300, "500m", "1Gi", spread(corev1.LabelTopologyZone))
	pods := e.bound("web", 300)
	e.settled(len(e.claims()))
	e.onPlan(pods)
	e.oneCycleAfterGate(300)
	byZone := map[string]int{}
	nodes := e.nodes()
	for _, p := range pods {
		byZone[nodes[p.Spec.NodeName].Labels[corev1.LabelTopologyZone]]++
	}
	for _, z := range zones {
		if byZone[z] != 100 {
			t.Errorf("pods per zone: %v, want 100 each", byZone)
			break
		}
	}
}

func TestPodsThatFitLaunchNothing(t *testing.T) {
	t.Parallel()
	e := start(t, nil)
	e.apply(nodeClass, nodePool)
	for i := range 10 {
		e.create(fullNode(fmt.Sprintf("old-%d", i), zones[i%3], "32"))
	}
	e.pods("web", 200, "250m", "128Mi")
	e.bound("web", 200)
	if calls := e.sim.Calls("CreateFleet"); len(calls) > 0 {
		t.Errorf("launched though everything fits: %v", calls)
	}
}

func TestPodThatNothingCanHostSaysWhyPerPool(t *testing.T) {
	t.Parallel()
	e := start(t, nil)
	e.apply(nodeClass, nodePool, strings.NewReplacer("name: default}\nspec:\n  template", "name: arm}\nspec:\n  template", "[amd64]", "[arm64]").Replace(nodePool))
	e.pods("huge", 1, "5000", "1Gi")
	note := e.eventOf("huge-0", "FailedProvisioning")
	for _, pool := range []string{"default", "arm"} {
		if !strings.Contains(note, pool) {
			t.Errorf("the reason does not speak of pool %s: %s", pool, note)
		}
	}
	if !strings.Contains(note, "cpu") || len(note) > 1024 {
		t.Errorf("the reason does not read well: %s", note)
	}
	if n := e.launches(); n > 0 {
		t.Errorf("%d instances launched for a pod nothing can host", n)
	}
}

func TestPoolLimitIsNeverExceeded(t *testing.T) {
	t.Parallel()
	e := start(t, nil)
	e.apply(nodeClass, strings.Replace(nodePool, "  disruption:", "  limits: {cpu: 20}\n  disruption:", 1))
	e.pods("web", 100, "1", "1Gi")
	e.eventOf("web-99", "FailedProvisioning")
	_, err := cluster.Until(e.wait(), e.api, &corev1.PodList{}, func(pods []*corev1.Pod) (bool, string, error) {
		n := 0
		for _, p := range pods {
			if cluster.Bound(p) {
				n++
			}
		}
		return n >= 8, fmt.Sprintf("at least 8 pods bound within the limit (%d are)", n), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	total := resource.Quantity{}
	for _, c := range e.claims() {
		total.Add(*c.Status.Capacity.Cpu())
	}
	if total.Cmp(resource.MustParse("20")) > 0 {
		t.Errorf("claims have %s CPUs, the pool's limit is 20", total.String())
	}
}

func TestSecondProfileWithoutOurPluginsIsUntouched(t *testing.T) {
	t.Parallel()
	e := start(t, func(s *setting) { s.config = func(c cluster.Config) { c.AddProfile("plain") } })
	e.apply(nodeClass, nodePool)
	e.pods("plain", 3, "1", "1Gi", scheduler("plain"))
	if _, err := cluster.UntilPods(e.wait(), e.api, 3, cluster.Unschedulable, listApp("plain")); err != nil {
		t.Fatal(err)
	}
	e.pods("web", 1, "1", "1Gi") // one of ours, created later: by the time it is bound, the others would have been bound too
	e.bound("web", 1)
	if slices.ContainsFunc(e.podsOf("plain"), func(p corev1.Pod) bool { return len(p.Status.NominatedNodeName) > 0 }) {
		t.Error("pods of the plain profile were planned for")
	}
	e.settled(1)
}

// A pod without a plan must not take the capacity that is kept for a planned one.
func TestStrangePodCannotTakePlannedRoom(t *testing.T) {
	t.Parallel()
	e := start(t, nil)
	e.apply(nodeClass, nodePool)
	// Bare pods may only be bound once their node has registered, so for some time their capacity is promised while the Node exists.
	e.pods("bare", 20, "1", "1Gi", func(p *corev1.Pod) { p.OwnerReferences = nil })
	if _, err := cluster.UntilNodes(e.wait(), e.api, len(e.awaitClaims()), func(*corev1.Node) bool { return true }); err != nil {
		t.Fatal(err)
	}
	e.pods("thief", 20, "1", "1Gi")
	e.bound("bare", 20)
	e.bound("thief", 20)
	e.onPlanOf("bare")
}

// slowBoot keeps nodes in flight for the whole test: all pods are bound to nodes whose kubelets are still booting.
func slowBoot(s *setting) { s.sim.Speed = 1 }

func listApp(app string) labelled { return labelled{app} }

var zones = []string{"us-west-2a", "us-west-2b", "us-west-2c"}

// fullNode returns a node that existed before, with so many allocatable CPUs.
func fullNode(name, zone, cpu string) *corev1.Node {
	room := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("64Gi"), corev1.ResourcePods: resource.MustParse("200")}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelHostname: name, corev1.LabelTopologyZone: zone, corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux"}},
		Status: corev1.NodeStatus{Capacity: room, Allocatable: room,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
}
