package buffers

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

func cpu(n int64) capacity.Resources { return capacity.Resources{corev1.ResourceCPU: n * 1000} }

func class(change ...func(*capacity.Class)) *capacity.Class {
	c := &capacity.Class{Key: "spare", Namespace: "shop", Requests: cpu(1), Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "spare",
		OwnerReferences: []metav1.OwnerReference{{Kind: "CapacityBuffer", Controller: new(true)}}}}}
	for _, f := range change {
		f(c)
	}
	return c
}

func node(name string, free int64, change ...func(*capacity.Node)) *capacity.Node {
	n := &capacity.Node{Name: name, Labels: map[string]string{capacity.LabelNodePool: "p"}, Allocatable: cpu(4), Free: cpu(free)}
	for _, f := range change {
		f(n)
	}
	return n
}

func with(pods ...*corev1.Pod) func(*capacity.Node) {
	return func(n *capacity.Node) { n.Pods = append(n.Pods, pods...) }
}

func pod(app string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: app, Labels: map[string]string{"app": app}}}
}

func daemon() *corev1.Pod {
	p := pod("agent")
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", Controller: new(true)}}
	return p
}

func TestSift(t *testing.T) {
	bought, found := ledger.Chunk{Buffer: "b", Class: class(), Bought: true}, ledger.Chunk{Buffer: "b", Class: class()}
	taint := func(key string) func(*capacity.Node) {
		return func(n *capacity.Node) { n.Taints = []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoSchedule}} }
	}
	apart := found
	apart.Class = class(func(c *capacity.Class) {
		c.AntiAffinity = []capacity.PodTerm{{TopologyKey: capacity.LabelHostname, Namespaces: []string{"shop"}, Selector: labels.SelectorFromSet(labels.Set{"app": "web"})}}
	})
	port := found
	port.Class = class(func(c *capacity.Class) { c.HostPorts = []corev1.ContainerPort{{HostPort: 80}} })
	web80 := pod("web")
	web80.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{HostPort: 80}}}}
	sidecar80 := pod("web")
	sidecar80.Spec.InitContainers = []corev1.Container{{RestartPolicy: new(corev1.ContainerRestartPolicyAlways), Ports: []corev1.ContainerPort{{HostPort: 80}}}}
	init80 := pod("web")
	init80.Spec.InitContainers = []corev1.Container{{Ports: []corev1.ContainerPort{{HostPort: 80}}}}
	for _, tc := range []struct {
		name string
		node *capacity.Node
		on   []ledger.Chunk
		free int64
		lost []ledger.LostChunks
		fit  []types.UID
	}{
		{name: "all fit", node: node("n", 4), on: []ledger.Chunk{bought, found}, free: 2, fit: []types.UID{"b"}},
		{name: "a pod has taken the place of one", node: node("n", 1, with(pod("web"))), on: []ledger.Chunk{found, bought}, lost: []ledger.LostChunks{{Node: "n", Buffer: "b", N: 1}}},
		{name: "a DaemonSet's pod has", node: node("n", 1, with(daemon())), on: []ledger.Chunk{found, bought}, lost: []ledger.LostChunks{{Node: "n", Buffer: "b", N: 1, Misfit: true}}},
		{name: "nothing has: the node is smaller than planned", node: node("n", 0), on: []ledger.Chunk{bought, bought}, lost: []ledger.LostChunks{{Node: "n", Buffer: "b", N: 2, Misfit: true}}},
		{name: "what is small wasn't bought for it", node: node("n", 0), on: []ledger.Chunk{found}, lost: []ledger.LostChunks{{Node: "n", Buffer: "b", N: 1}}},
		{name: "it boots, and pods are planned there", node: node("n", 1, with(pod("web")), func(n *capacity.Node) { n.InFlight = true }), on: []ledger.Chunk{bought, bought}, lost: []ledger.LostChunks{{Node: "n", Buffer: "b", N: 1}}},
		{name: "it hasn't registered in time", node: node("n", 0, func(n *capacity.Node) { n.Closed = true }), on: []ledger.Chunk{bought}, free: -1, fit: []types.UID{"b"}},
		{name: "it is cordoned", node: node("n", 4, func(n *capacity.Node) { n.Unschedulable = true }), on: []ledger.Chunk{bought}, free: 4, lost: []ledger.LostChunks{{Node: "n", Buffer: "b", N: 1}}},
		{name: "it is tainted", node: node("n", 4, taint("maintenance")), on: []ledger.Chunk{bought}, free: 4, lost: []ledger.LostChunks{{Node: "n", Buffer: "b", N: 1}}},
		{name: "it isn't ready for a while", node: node("n", 4, taint(corev1.TaintNodeNotReady)), on: []ledger.Chunk{found}, free: 3},
		{name: "a pod is there that it must not share a node with", node: node("n", 4, with(pod("web"))), on: []ledger.Chunk{apart}, free: 4, lost: []ledger.LostChunks{{Node: "n", Buffer: "b", N: 1}}},
		{name: "another pod is", node: node("n", 4, with(pod("api"))), on: []ledger.Chunk{apart}, free: 3},
		{name: "a pod has its host port", node: node("n", 4, with(web80)), on: []ledger.Chunk{port}, free: 4, lost: []ledger.LostChunks{{Node: "n", Buffer: "b", N: 1}}},
		{name: "a pod's sidecar has", node: node("n", 4, with(sidecar80)), on: []ledger.Chunk{port}, free: 4, lost: []ledger.LostChunks{{Node: "n", Buffer: "b", N: 1}}},
		{name: "an init container that ends gives it back", node: node("n", 4, with(init80)), on: []ledger.Chunk{port}, free: 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before, pods := tc.node.Free[corev1.ResourceCPU], len(tc.node.Pods)
			other := node("other", 4)
			s := Sift([]*capacity.Node{other, tc.node}, Chunks{"n": tc.on})
			if diff := cmp.Diff(tc.lost, s.Lost); diff != "" {
				t.Errorf("lost (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.fit, s.Fit); diff != "" {
				t.Errorf("fit (-want +got):\n%s", diff)
			}
			if got := s.Nodes[1].Free[corev1.ResourceCPU] / 1000; got != tc.free {
				t.Errorf("%d CPUs are free beside the chunks, want %d", got, tc.free)
			}
			if s.Nodes[0] != other || tc.node.Free[corev1.ResourceCPU] != before || len(tc.node.Pods) != pods {
				t.Error("a node of the view was changed")
			}
			lost := 0
			for _, l := range s.Lost {
				lost += l.N
			}
			if len(s.Promised)+lost != len(tc.on) || len(s.Nodes[1].Pods) != pods+len(s.Promised) {
				t.Errorf("%d chunks are promised, %d lost, %d pods on the node", len(s.Promised), lost, len(s.Nodes[1].Pods))
			}
		})
	}
}

func TestDemandIsOfBuffers(t *testing.T) {
	all := []ledger.BufferState{{Buffer: ledger.Buffer{UID: "a", Class: class(), Chunks: 3}, Ready: 1}, {Buffer: ledger.Buffer{UID: "b", Class: class(), Chunks: 1}, Launching: 1}}
	d := Demand(all)
	if len(d) != 1 || len(d[0].Pods) != 2 || Of(d[0]) != "a" {
		t.Fatalf("demand is %+v", d)
	}
	plan := &capacity.Plan{Placements: []capacity.Placement{{Class: d[0].Class, Pod: d[0].Pods[0], Node: "n"}}, Refused: []capacity.Refusal{{Pods: d[0].Pods[1:], Message: "no offer"}}}
	if diff := cmp.Diff(map[types.UID]string{"a": "no offer"}, Own(plan)); diff != "" {
		t.Errorf("why (-want +got):\n%s", diff)
	}
	if pl := plan.Placements[0]; pl.Owner != "a" || pl.Pod != (capacity.PodRef{}) {
		t.Errorf("the placement is %+v", pl)
	}
	on := []ledger.Chunk{{Buffer: "b", Class: class()}, {Buffer: "a", Class: class()}, {Buffer: "b", Class: class()}}
	if d := DemandOf(on); len(d) != 2 || Of(d[0]) != "b" || len(d[0].Pods) != 2 || len(d[1].Pods) != 1 {
		t.Errorf("demand of a node's chunks is %+v", d)
	}
}

// Chunks fill the fullest nodes first, so that others can end.
func TestOrder(t *testing.T) {
	nodes := []*capacity.Node{node("empty", 4), node("agents-only", 3, with(daemon())), node("half", 2, with(pod("web"))), node("full", 1, with(pod("web")))}
	var got []string
	for _, n := range Order(nodes) {
		got = append(got, n.Name)
	}
	if diff := cmp.Diff([]string{"full", "half", "agents-only", "empty"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestNodesThatAreKeptForChunks(t *testing.T) {
	c := ledger.Chunk{Buffer: "b", Class: class()}
	nodes := []*capacity.Node{node("two", 2, with(daemon())), node("one", 3), node("none", 4), node("used", 1, with(pod("web"))),
		node("unmanaged", 3, func(n *capacity.Node) { n.Labels = nil }), node("boots", 3, func(n *capacity.Node) { n.InFlight = true })}
	chunks := Chunks{"two": {c, c}, "one": {c}, "used": {c}, "unmanaged": {c}, "boots": {c}}
	kept := KeptForChunks(Sift(nodes, chunks).Nodes, chunks)
	if diff := cmp.Diff([]string{"one", "two"}, kept); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	now := time.Unix(0, 0)
	var s Spans
	s.Observe(chunks, nodes, now)
	if free := s.Free([]string{"one", "two"}, now.Add(restFor-1)); len(free) != 0 {
		t.Errorf("%v would end although chunks have just come", free)
	}
	delete(chunks, "two")
	s.Observe(chunks, nodes, now.Add(time.Minute))
	if free := s.Free([]string{"one"}, now.Add(restFor)); len(free) != 1 || !s.Last("two").Equal(now) || !s.Last("one").Equal(now.Add(time.Minute)) || !s.Last("none").IsZero() {
		t.Errorf("free %v, chunks last seen %v, %v", free, s.Last("two"), s.Last("one"))
	}
	s.Observe(chunks, nil, now)
	if !s.Last("one").IsZero() {
		t.Error("a node that is gone is remembered")
	}
}

func TestOnly(t *testing.T) {
	plan := &capacity.Plan{Nodes: []*capacity.PlannedNode{{ID: "a"}, {ID: "b"}}, Placements: []capacity.Placement{{Class: class(), Pod: capacity.PodRef{UID: "x#0"}, Node: "a"}, {Class: class(), Pod: capacity.PodRef{UID: "x#1"}, Node: "b"}}}
	Only(plan, "b")
	if len(plan.Nodes) != 1 || plan.Nodes[0].ID != "b" || len(plan.Placements) != 1 || len(plan.Refused) != 1 {
		t.Errorf("left %+v", plan)
	}
}
