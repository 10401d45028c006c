package main

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	model "github.com/dovetail-scheduler/dovetail/test/consolidation/cluster"
)

func testWorld(t *testing.T) *model.World {
	t.Helper()
	w, err := newWorld()
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// What a kwok node leaves for pods is what the benchmarks' node leaves for them.
func TestInstanceTypesLeaveTheSameForPods(t *testing.T) {
	w := testWorld(t)
	file, err := instanceTypes(w)
	if err != nil {
		t.Fatal(err)
	}
	var got []kwokType
	if err := json.Unmarshal(file, &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != len(w.Types) || len(got) < 50 {
		t.Fatalf("%d types, the world has %d", len(got), len(w.Types))
	}
	archs := map[string]bool{}
	for i, k := range got {
		cpu, memory, pods := resource.MustParse(k.Resources["cpu"]), resource.MustParse(k.Resources["memory"]), resource.MustParse(k.Resources["pods"])
		room := model.Vector{cpu.MilliValue() - 100, memory.Value()>>20 - 10, pods.Value()}
		if want := w.Types[i]; k.Name != want.Name || room != want.Room || k.Offerings[0].Price != want.OnDemand {
			t.Errorf("%s for %g $/h leaves %v, want %s for %g with %v", k.Name, k.Offerings[0].Price, room, want.Name, want.OnDemand, want.Room)
		}
		archs[k.Architecture] = true
	}
	if len(archs) != 2 || !archs["amd64"] || !archs["arm64"] {
		t.Errorf("architectures are %v", archs)
	}
}

func TestReduce(t *testing.T) {
	w := testWorld(t)
	node := func(name string, typ int) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelInstanceTypeStable: w.Types[typ].Name}}}
	}
	pod := func(class int, on string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{appLabel: w.Classes[class].Name}}, Spec: corev1.PodSpec{NodeName: on}}
	}
	nodes := []*corev1.Node{node("b", 1), node("a", 0)}
	c, err := reduce(w, nodes, []*corev1.Pod{pod(2, "b"), pod(2, "b"), pod(0, "b")})
	if err != nil {
		t.Fatal(err)
	}
	if a, b := c.Nodes[0], c.Nodes[1]; a.Type != 0 || b.Type != 1 || a.Count != 0 || b.Count != 3 || b.Of(2) != 2 || b.Of(0) != 1 {
		t.Errorf("nodes are %+v and %+v", a, b)
	}
	for _, p := range []*corev1.Pod{pod(0, "c"), {Spec: corev1.PodSpec{NodeName: "a"}}} {
		if _, err := reduce(w, nodes, []*corev1.Pod{p}); err == nil {
			t.Errorf("pod %+v is accepted", p)
		}
	}
	if _, err := reduce(w, []*corev1.Node{{}}, nil); err == nil {
		t.Error("a node of an unknown type is accepted")
	}
}

func TestLose(t *testing.T) {
	left := lose([]int{1000, 0, 1000}, rand.New(rand.NewPCG(1, 9)))
	if left[1] != 0 || left[0] < 550 || left[0] > 650 || left[2] < 550 || left[2] > 650 {
		t.Errorf("of 1000, 0 and 1000 pods %v are left", left)
	}
}

// The emulation begins without empty nodes and leaves the cluster that it is given alone.
func TestEmulate(t *testing.T) {
	w := testWorld(t)
	c := &model.Cluster{World: w}
	large := w.Offers[len(w.Offers)-1]
	for range 3 {
		c.Add(large, []model.Share{{Class: 0, Count: 1}})
	}
	c.Add(large, nil)
	before := c.Cost()
	for i, u := range emulate(c, false, 1) {
		if u.nodes != 1 || u.evicted < 2 || u.commands < 1 || u.cost >= before/4 {
			t.Errorf("order %d: %+v", i, u)
		}
	}
	if c.Cost() != before || c.Live() != 4 {
		t.Errorf("the cluster has %d nodes for %g $/h, before 4 for %g", c.Live(), c.Cost(), before)
	}
}

func TestReport(t *testing.T) {
	r := report{before: &model.Cluster{World: testWorld(t)}, bound: 5, emulated: []usage{{cost: 9, nodes: 3, evicted: 90, commands: 10}, {cost: 11, nodes: 4, evicted: 110, commands: 20}},
		karpenter: usage{cost: 10.1, nodes: 4, evicted: 120, commands: 15}, cheapest: usage{cost: 9.5, nodes: 3, evicted: 80, commands: 9}}
	var out strings.Builder
	r.print(&out)
	for _, want := range []string{"| 3.5 (3.0 to 4.0) | 10.00 (9.00 to 11.00) | 2.000 | 100 (90 to 110) | 15.0 (10.0 to 20.0) |", "| 3 | 9.50 | 1.900 | 80 | 9 |\n", "| 4 | 10.10 | 2.020 | 120 | 15 |\n", "before it was done",
		"\npeer: cost 1.010 evictions 1.200 commands 1.000\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
}
