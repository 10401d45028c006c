package view

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/explain"
	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/offline"
)

var now = time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC)

// tenCents is what each instance costs.
type tenCents struct{}

func (tenCents) Price(string, string, string) (float64, bool) { return 0.1, true }

func clusterOf(all ...client.Object) *explain.Cluster {
	return explain.New((&manifest.Set{}).With(all...), offline.Settings{NodeClass: nodeclass.Kind, Clock: clocktesting.NewFakePassiveClock(now)}, tenCents{}, now, time.Second)
}

func modelOf(t *testing.T, c *explain.Cluster) *Model {
	t.Helper()
	o, err := c.Overview(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return ModelOf(c, o, nil)
}

func list(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

var labels = map[string]string{karpv1.NodePoolLabelKey: "default", corev1.LabelInstanceTypeStable: "m7g.xlarge", corev1.LabelTopologyZone: "us-west-2a"}

func node(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))},
		Status: corev1.NodeStatus{Allocatable: list("4", "8Gi"), Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
}

// pod is one on a node; owner is the kind of its controller.
func pod(name, on, owner, cpu string) *corev1.Pod {
	yes := true
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(now.Add(-time.Minute)),
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: owner, Name: "owner", Controller: &yes}}},
		Spec: corev1.PodSpec{NodeName: on, Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: list(cpu, "1Gi")}}}}}
}

// claim is one that was created so long ago and has reached these conditions after that many seconds.
func claim(name, of string, age time.Duration, requests corev1.ResourceList, reached map[string]int) *karpv1.NodeClaim {
	nc := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: labels, CreationTimestamp: metav1.NewTime(now.Add(-age))},
		Spec: karpv1.NodeClaimSpec{Resources: karpv1.ResourceRequirements{Requests: requests},
			NodeClassRef: &karpv1.NodeClassReference{Group: nodeclass.Kind.Group, Kind: nodeclass.Kind.Kind, Name: "default"}},
		Status: karpv1.NodeClaimStatus{NodeName: of}}
	for condition, seconds := range reached {
		nc.Status.Conditions = append(nc.Status.Conditions, status.Condition{Type: condition, Status: metav1.ConditionTrue,
			LastTransitionTime: metav1.NewTime(nc.CreationTimestamp.Add(time.Duration(seconds) * time.Second))})
	}
	return nc
}

func pinned(p *corev1.Pod, to string) *corev1.Pod {
	p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
		{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{to}}}}}}}}
	return p
}

func nodeNamed(t *testing.T, m *Model, name string) Node {
	t.Helper()
	for _, n := range m.Nodes {
		if n.Name == name {
			return n
		}
	}
	t.Fatalf("there is no %s in %v", name, m.Nodes)
	return Node{}
}

const gib = int64(1) << 30

// A node's capacity is split into what the API's objects say.
func TestBarsAreWhatTheObjectsSay(t *testing.T) {
	up := map[string]int{karpv1.ConditionTypeLaunched: 5, karpv1.ConditionTypeRegistered: 30, karpv1.ConditionTypeInitialized: 40}
	planned := claim("planned", "", 20*time.Second, list("3", "6.5Gi"), nil)
	planned.Annotations = map[string]string{objects.AnnotationPlannedPods: `[{"pod":{"namespace":"shop","name":"to-come","uid":"to-come"},"class":"c","order":1}]`}
	c := clusterOf(node("old"), claim("of-old", "old", time.Hour, list("1", "1Gi"), up),
		pod("web", "old", "ReplicaSet", "1"), pod("logs", "old", "DaemonSet", "250m"), pinned(pod("late", "", "DaemonSet", "100m"), "old"),
		pod("to-come", "", "ReplicaSet", "2"), planned,
		node("young"), claim("of-young", "young", time.Minute, list("2500m", "3Gi"), map[string]int{karpv1.ConditionTypeLaunched: 5}), pod("first", "young", "ReplicaSet", "2"))
	modelOf(t, c)
	m := modelOf(t, c) // the second look shows the same
	for _, want := range []struct {
		name   string
		cpu    Bar
		memory Bar
		boot   Boot
	}{
		{"old", Bar{Total: 4000, Bound: 1000, Daemons: 250, Kept: 100, Free: 2650}, Bar{Total: 8 * gib, Bound: gib, Daemons: gib, Kept: gib, Free: 5 * gib}, Boot{}},
		// Of the 3 cores that it asks for, 2 are a pod's: the rest is for DaemonSets.
		{"planned", Bar{Total: 3000, Reserved: 2000, Kept: 1000}, Bar{Total: 13 * gib / 2, Reserved: gib, Kept: 11 * gib / 2}, Boot{"Creating", 40_000, 1}},
		// Karpenter's NodeClaims don't name the pods for which they are launched.
		{"young", Bar{Total: 4000, Bound: 2000, Reserved: 500, Free: 1500}, Bar{Total: 8 * gib, Bound: gib, Reserved: 2 * gib, Free: 5 * gib}, Boot{"Launched", 40_000, 1}},
	} {
		n := nodeNamed(t, m, want.name)
		if diff := cmp.Diff([]any{want.cpu, want.memory, want.boot}, []any{n.CPU, n.Memory, n.Boot}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", want.name, diff)
		}
	}
	o, err := c.Overview(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range o.Nodes { // 'dovetail top' shows these
		if use := &o.Nodes[i]; use.Allocatable != nil && use.Free(corev1.ResourceCPU) != nodeNamed(t, m, use.Name).CPU.Free {
			t.Errorf("%s: top says that %d m are free, the page %d m", use.Name, use.Free(corev1.ResourceCPU), nodeNamed(t, m, use.Name).CPU.Free)
		}
	}
	h := m.Head
	if h.NodeCount != 3 || h.Running != 3 || h.WaitingPods != 2 || fmt.Sprintf("%.4f", h.PerHour) != "0.3000" || h.Unpriced != 0 {
		t.Errorf("the head is %+v", h)
	}
	waiting := 0
	for _, w := range h.Waiting {
		if waiting += w.Pods; w.Reason == "" || w.Oldest != now.Add(-time.Minute).UnixMilli() {
			t.Errorf("waiting: %+v", w)
		}
	}
	if waiting != 2 {
		t.Errorf("%d pods in groups", waiting)
	}
}

// How long nodes take is the median of the pool's nodes, if it has had a few, and of all nodes else.
func TestTypicalBoot(t *testing.T) {
	up := func(seconds int) map[string]int { return map[string]int{karpv1.ConditionTypeInitialized: seconds} }
	starting := claim("starting", "", time.Second, nil, nil)
	var all []*karpv1.NodeClaim
	if got := typicalOf(all).boot(starting); got != (Boot{Stage: "Creating"}) {
		t.Errorf("without any: %+v", got)
	}
	other := claim("other", "d", time.Hour, nil, up(500))
	other.Labels = map[string]string{karpv1.NodePoolLabelKey: "gpu"}
	all = append(all, claim("a", "a", time.Hour, nil, up(30)), other)
	if got := typicalOf(all).boot(starting); got != (Boot{"Creating", 500_000, 2}) {
		t.Errorf("with too few of its pool: %+v", got)
	}
	all = append(all, claim("b", "b", time.Hour, nil, up(50)), claim("c", "c", time.Hour, nil, up(40)))
	if got := typicalOf(all).boot(starting); got != (Boot{"Creating", 40_000, 3}) {
		t.Errorf("of its pool: %+v", got)
	}
}

func TestTimeline(t *testing.T) {
	event := func(name, kind, object, by, reason, eventType string, ago time.Duration) *corev1.Event {
		return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, InvolvedObject: corev1.ObjectReference{Kind: kind, Name: object},
			ReportingController: by, Reason: reason, Message: "because\nof this", Type: eventType, LastTimestamp: metav1.NewTime(now.Add(-ago))}
	}
	m := modelOf(t, clusterOf(
		claim("a", "", 100*time.Second, nil, map[string]int{karpv1.ConditionTypeLaunched: 4, karpv1.ConditionTypeRegistered: 40}),
		claim("b", "", 95*time.Second, nil, map[string]int{karpv1.ConditionTypeLaunched: 7}),
		claim("c", "", 20*time.Second, nil, nil),
		event("1", "NodeClaim", "x", "dovetail", "ReplacementPlanned", "Normal", 50*time.Second),
		event("2", "Node", "y", "dovetail", "ReplacementPlanned", "Normal", 50*time.Second),
		event("3", "Node", "y", "kubelet", "Starting", "Normal", 40*time.Second),
		event("4", "NodePool", "default", "dovetail", "HeldBack", "Warning", 30*time.Second),
		event("5", "Pod", "p", "dovetail", "Nominated", "Normal", 30*time.Second)))
	var got []string
	for _, e := range m.Timeline {
		got = append(got, fmt.Sprintf("%s %s|%s|%s|%s", explain.Age(now.Sub(time.UnixMilli(e.At))), e.Kind, e.Object, e.Reason, e.Message))
	}
	want := []string{
		"20s Burst|NodePool default|1 NodeClaim created|0 launched, 0 registered, 0 initialized; $0.1000/h",
		"30s Warning|NodePool default|HeldBack|because; of this",
		"50s Move|NodeClaim x|ReplacementPlanned|because; of this",
		"100s Burst|NodePool default|2 NodeClaims created|2 launched after 12s, 1 registered after 40s, 0 initialized; $0.2000/h",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A NodeClaim and its Node are one entry, also after both are gone; nodes that end in the same second are as many entries as there are nodes.
func TestNodesThatEndTogether(t *testing.T) {
	for name, gone := range map[string]bool{"while the NodeClaims are there": false, "after they are gone": true} {
		t.Run(name, func(t *testing.T) {
			var all []client.Object
			report := func(kind, object string) {
				all = append(all, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: kind + object}, InvolvedObject: corev1.ObjectReference{Kind: kind, Name: object},
					ReportingController: "dovetail", Reason: "DisruptionTerminating", Message: "Empty", Type: corev1.EventTypeNormal, LastTimestamp: metav1.NewTime(now)})
			}
			for i := range 40 {
				nodeName, claimName := fmt.Sprint("node-", i), fmt.Sprint("claim-", i)
				report("Node", nodeName)
				report("NodeClaim", claimName)
				if !gone {
					all = append(all, node(nodeName), claim(claimName, nodeName, time.Hour, nil, nil))
				}
			}
			report("Node", "of-another-pool") // its NodeClaim has no event
			all = append(all, node("of-another-pool"), claim("another", "of-another-pool", time.Hour, nil, nil))
			got := map[string]int{}
			for _, e := range modelOf(t, clusterOf(all...)).Timeline {
				if e.Kind == "Move" {
					kind, _, _ := strings.Cut(e.Object, " ")
					got[kind]++
				}
			}
			if want := map[string]int{"NodeClaim": 40, "Node": 1}; !maps.Equal(got, want) {
				t.Errorf("entries by kind: %v, want %v", got, want)
			}
		})
	}
}

// A browser that applies each update has the latest model, whatever changed.
func TestDiffLeadsToTheModel(t *testing.T) {
	point := func(i int64) Point { return Point{At: i, PerHour: float64(i)} }
	models := []*Model{
		{Head: Head{Problem: "refused"}},
		{Head: Head{At: 1}, Nodes: []Node{{Name: "a"}, {Name: "b"}}, Timeline: []Entry{{At: 1}}, History: []Point{point(1)}},
		{Head: Head{At: 2}, Nodes: []Node{{Name: "b", Pods: 2}, {Name: "c"}}, Timeline: []Entry{{At: 1}}, History: []Point{point(1), point(2)}},
		{Head: Head{At: 3}, Nodes: []Node{{Name: "b", Pods: 2}, {Name: "c"}}, Timeline: []Entry{{At: 2}, {At: 1}}, History: []Point{point(1), point(2), point(3), point(4)}},
		{Head: Head{At: 4}, Nodes: []Node{{Name: "c"}}, History: []Point{point(1), point(4)}},
		{Head: Head{At: 5}},
	}
	for start := range models {
		var was *Model
		browser := &Model{}
		nodes := map[string]Node{}
		for _, m := range models[start:] {
			u := Diff(was, m)
			if u.Whole {
				clear(nodes)
				browser.Timeline, browser.History = u.Timeline, u.History
			}
			for _, n := range u.Nodes {
				nodes[n.Name] = n
			}
			for _, name := range u.Gone {
				delete(nodes, name)
			}
			if u.History != nil {
				browser.History = u.History
			}
			if u.Point != nil {
				browser.History = append(browser.History, *u.Point)
			}
			if u.Timeline != nil {
				browser.Timeline = u.Timeline
			}
			browser.Head, browser.Nodes, was = u.Head, nil, m
			for _, n := range m.Nodes { // the browser sorts them itself
				browser.Nodes = append(browser.Nodes, nodes[n.Name])
			}
			if diff := cmp.Diff(m, browser); diff != "" || len(nodes) != len(m.Nodes) {
				t.Errorf("from %d, at %d: %d nodes, -want +got:\n%s", start, m.Head.At, len(nodes), diff)
			}
		}
	}
	if u := Diff(models[1], models[2]); u.Whole || len(u.Nodes) != 2 || u.Timeline != nil || u.History != nil {
		t.Errorf("more than what has changed is sent: %+v", u)
	}
}

// The chart's points stay few, and reach from the first to the last.
func TestHistoryIsThinnedOut(t *testing.T) {
	var all []Point
	for i := range int64(5 * mostPoints) {
		all = extend(all, Point{At: i})
		if len(all) > mostPoints {
			t.Fatalf("%d points", len(all))
		}
	}
	if all[0].At != 0 || all[len(all)-1].At != 5*mostPoints-1 {
		t.Errorf("from %d to %d", all[0].At, all[len(all)-1].At)
	}
}
