package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-scheduler/dovetail/test/ec2"
)

func testNode(name, zone, arch string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone, corev1.LabelArchStable: arch}},
		Spec:       corev1.NodeSpec{ProviderID: "aws:///" + zone + "/i-" + name},
	}
}

func testPods(app string, nodes ...string) []*corev1.Pod {
	var pods []*corev1.Pod
	for i, n := range nodes {
		pods = append(pods, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", app, i), Labels: map[string]string{appLabel: app}},
			Spec:       corev1.PodSpec{NodeName: n},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning},
		})
	}
	return pods
}

func TestCheckPlacement(t *testing.T) {
	nodes := []*corev1.Node{testNode("a1", "a", "amd64"), testNode("a2", "a", "arm64"), testNode("b1", "b", "amd64"), testNode("c1", "c", "amd64")}
	pick := func(name string, pods int) []shape {
		for _, s := range shapes(300) {
			if s.name == name {
				s.pods = pods
				return []shape{s}
			}
		}
		return []shape{{name: name, pods: pods}}
	}
	for _, tc := range []struct {
		name   string
		shapes []shape
		pods   []*corev1.Pod
		want   []string
	}{
		{"plain pods may be anywhere", pick("web", 3), testPods("web", "a1", "a1", "b1"), nil},
		{"a pod is missing", pick("web", 3), testPods("web", "a1", "a1"), []string{"web has 2 pods, want 3"}},
		{"a pod is on a node that has gone", pick("web", 1), testPods("web", "z9"), []string{`web-0 is Running on node "z9"`}},
		{"zones are one apart", pick("spread", 4), testPods("spread", "a1", "a2", "b1", "c1"), nil},
		{"zones are two apart", pick("spread", 5), testPods("spread", "a1", "a1", "a1", "b1", "c1"), []string{"spread: zones hold map[a:3 b:1 c:1] pods: more than 1 apart"}},
		{"a zone is left out", pick("spread", 4), testPods("spread", "a1", "a1", "b1", "b1"), []string{"spread: zones hold map[a:2 b:2 c:0] pods: more than 1 apart"}},
		{"one on each node", pick("quorum", 2), testPods("quorum", "a1", "a2"), nil},
		{"two on a node", pick("quorum", 2), testPods("quorum", "a1", "a1"), []string{"quorum: two pods share a node: quorum-0 and quorum-1 on a1"}},
		{"arm is on arm", pick("arm", 1), testPods("arm", "a2"), nil},
		{"arm is not on arm", pick("arm", 1), testPods("arm", "a1"), []string{`arm: arm-0 is on a1, whose architecture is "amd64"`}},
		{"what fits nothing is somewhere", nil, testPods("misfit", "a1"), []string{"misfit-0 is on a1, where it can't fit"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, checkPlacement(tc.shapes, tc.pods, nodes)); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

// Pods that were scheduled while a zone had no node yet can't have counted that zone.
func TestEvenZonesWhileZonesCome(t *testing.T) {
	second := func(n int64) metav1.Time { return metav1.Unix(n, 0) }
	nodes := map[string]*corev1.Node{}
	for i, zone := range []string{"a", "b", "c"} {
		nodes[zone] = testNode(zone, zone, "amd64")
		nodes[zone].CreationTimestamp = second(int64(10 + 5*i))
	}
	for _, tc := range []struct {
		name string
		at   []int64 // of four pods in zone a, one in b and one in c
		ok   bool
	}{
		{"four pods when only a was there", []int64{10, 10, 11, 12, 16, 20}, true},
		{"three, and one when all were there", []int64{10, 10, 11, 20, 20, 20}, false},
		{"all when all were there", []int64{20, 20, 20, 20, 20, 20}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pods := testPods("spread", "a", "a", "a", "a", "b", "c")
			for i, p := range pods {
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: second(tc.at[i])}}
			}
			if err := evenZones(pods, nodes); (err == nil) != tc.ok {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestCheckLaunches(t *testing.T) {
	of := func(claim string) map[string]string { return map[string]string{claimTag: claim} }
	got := checkLaunches([]ec2.Instance{{ID: "i-1", Tags: of("x")}, {ID: "i-2", Tags: of("y")}, {ID: "i-3", Tags: of("x")}, {ID: "i-4"}})
	want := []string{"i-1 and i-3 were both launched for claim x", "i-4 was launched for no claim"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

func TestCheckFleet(t *testing.T) {
	nodes := []*corev1.Node{testNode("1", "a", "amd64"), testNode("2", "a", "amd64")}
	if got := checkFleet([]ec2.Instance{{ID: "i-1", Zone: "a"}, {ID: "i-2", Zone: "a"}}, nodes); got != nil {
		t.Errorf("the same set twice: got %v", got)
	}
	got := checkFleet([]ec2.Instance{{ID: "i-1", Zone: "a"}, {ID: "i-3", Zone: "a"}}, nodes)
	want := []string{`2 is "aws:///a/i-2", and no such instance runs`, "i-3 runs without a node"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

func TestShapesAddUp(t *testing.T) {
	for _, n := range []int{20, 300, 1000, 5000} {
		got := 0
		for _, s := range shapes(n) {
			if s.pods < 1 {
				t.Errorf("%d pods leave none for %s", n, s.name)
			}
			got += s.pods
		}
		if got != n {
			t.Errorf("the shapes of %d pods have %d", n, got)
		}
	}
}

func TestMachineRows(t *testing.T) {
	nodes := []*corev1.Node{testNode("1", "a", "amd64"), testNode("2", "a", "amd64"), testNode("3", "b", "amd64")}
	live := []ec2.Instance{
		{ID: "i-1", Zone: "a", Type: "m5.large", Price: 0.5}, {ID: "i-2", Zone: "a", Type: "m5.large", Price: 0.5}, {ID: "i-3", Zone: "b", Type: "c5.large", Price: 0.25},
	}
	want := []machineRow{{"c5.large", "b", 1, 0, 0.25}, {"m5.large", "a", 2, 3, 1}}
	if diff := cmp.Diff(want, machineRows(live, nodes, testPods("web", "1", "2", "2")), cmp.AllowUnexported(machineRow{})); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

func TestQuantile(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i)
	}
	for _, tc := range []struct {
		of   []time.Duration
		q    float64
		want time.Duration
	}{{nil, 0.5, 0}, {hundred[:1], 0.99, 0}, {hundred, 0.5, 50}, {hundred, 0.99, 99}, {hundred, 1, 99}} {
		if got := quantile(tc.of, tc.q); got != tc.want {
			t.Errorf("quantile %v of %d values is %v, want %v", tc.q, len(tc.of), got, tc.want)
		}
	}
}
