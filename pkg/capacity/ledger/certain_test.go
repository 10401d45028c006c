package ledger

import (
	"fmt"
	"math/rand"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger/nodestatus"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// withMemory is testClass with a request for memory.
func withMemory(key string, bytes int64) *capacity.Class {
	c := testClass(key, 1, 0)
	c.Requests[corev1.ResourceMemory] = bytes
	return c
}

// bindAll binds the pods whose gates are open, and returns them.
func bindAll(t *testing.T, l *Ledger, node string, pods ...types.UID) (bound []types.UID) {
	t.Helper()
	for _, uid := range pods {
		if at, _ := l.Pin(uid); at != node {
			continue
		}
		if err := l.Assume(uid, node, false); err != nil {
			t.Fatalf("%s is pinned, and then %v", uid, err)
		}
		l.Settled(uid, node)
		bound = append(bound, uid)
	}
	return bound
}

// Before its kubelet has registered, a node whose memory nobody has seen gets pods only for the memory that it has in any case; DaemonSets count. The
// others wait, with a reason, and so do pods without a plan.
func TestCertainMemory(t *testing.T) {
	now := time.Unix(0, 0)
	l, web, tiny := New(), withMemory("web", 30), testClass("tiny", 1, 0)
	l.AddNode("c1", nil, map[string]capacity.Resources{"kube-system/cni": {corev1.ResourceMemory: 20}}, false, now)
	var pl []capacity.Placement
	for i, c := range []*capacity.Class{web, web, tiny, web} {
		ref := capacity.PodRef{UID: types.UID(fmt.Sprint(i))}
		l.Submit(ref, c, now)
		pl = append(pl, capacity.Placement{Class: c, Pod: ref, Node: "c1"})
	}
	l.Commit("p", pl, now)
	l.Launching("c1", now)
	l.Named("c1", "n1", "")
	st := NodeStatus{Managed: true, Memory: nodestatus.Memory{Certain: 100}}
	l.Cached("n1", st, now)
	if got := fmt.Sprint(bindAll(t, l, "n1", "0", "1", "2", "3")); got != "[0 1 2]" {
		t.Errorf("%s are bound before registration, want 0, 1 and 2: 20 + 30 + 30 of 100 bytes, and one that needs none", got)
	}
	if shut, why := l.Gate("3"); !shut || why == "" {
		t.Errorf("the pod for the rest has an open gate (%q)", why)
	}
	ask := &Ask{UID: "stranger", Class: withMemory("other", 1)}
	if err := l.Object("n1", ask, cpuOf{allocatable: 1000}); err == nil {
		t.Error("a pod without a plan may use memory that nobody has seen")
	}
	st.Registered, st.Memory = true, nodestatus.Memory{Certain: 120, Posted: true}
	l.Cached("n1", st, now)
	if got := fmt.Sprint(bindAll(t, l, "n1", "3")); got != "[3]" {
		t.Errorf("%s are bound after registration, want the last one", got)
	}
	if err := check(l); err != nil {
		t.Fatal(err)
	}
}

// When a kubelet has posted less memory than planned, if only before it is registered, pods that it has none for are planned again at once, and with them those of their gang that wait
// on other nodes. Pods that were planned together for a spread go on to their nodes, and so do all that were bound before.
func TestTooLittleMemoryForAGroup(t *testing.T) {
	affinity := &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: corev1.LabelHostname}}}}
	for _, tc := range []struct {
		has        int64
		registered bool
		spread     bool // they are no gang
		affinity   *corev1.Affinity
		queue      int
	}{{has: 90}, {has: 90, registered: true}, {has: 89, queue: 3}, {has: 89, registered: true, queue: 3},
		{has: 90, spread: true}, {has: 89, spread: true, queue: 1}, {has: 59, spread: true, queue: 2}, {has: 89, spread: true, affinity: affinity, queue: 3}} {
		now := time.Unix(0, 0)
		l, web, gang := New(), withMemory("web", 30), withMemory("gang", 30)
		gang.Pod = spreadClass().Pod
		if gang.Pod.Spec.Affinity = tc.affinity; !tc.spread {
			gang.Pod.Labels = map[string]string{objects.LabelPodGroup: "gang"}
		}
		var pl []capacity.Placement
		for i, one := range []struct {
			class *capacity.Class
			claim string
			group int
		}{{web, "c1", 0}, {gang, "c1", 1}, {gang, "c1", 1}, {gang, "c2", 1}} {
			ref := capacity.PodRef{UID: types.UID(fmt.Sprint(i))}
			l.Submit(ref, one.class, now)
			if !l.Has(one.claim) {
				l.AddNode(one.claim, nil, nil, false, now)
			}
			pl = append(pl, capacity.Placement{Class: one.class, Pod: ref, Node: one.claim, Group: one.group})
		}
		l.Commit("p", pl, now)
		for claim, name := range map[string]string{"c1": "n1", "c2": "n2"} {
			l.Launching(claim, now)
			l.Named(claim, name, "")
			l.Cached(name, NodeStatus{Managed: true, Memory: nodestatus.Memory{Certain: 80}}, now)
		}
		if got := fmt.Sprint(bindAll(t, l, "n1", "0", "1", "2", "3")); got != "[0]" {
			t.Errorf("%s are bound before registration, want 0: the others start together", got)
		}
		l.Cached("n1", NodeStatus{Managed: true, Memory: nodestatus.Memory{Certain: tc.has, Posted: true}, Registered: tc.registered}, now)
		if n := l.Queued(); n != tc.queue {
			t.Errorf("with %d bytes %d pods are planned again, want %d\n%s", tc.has, n, tc.queue, l)
		}
		if news := l.Take().Activate; len(news) != 4-tc.queue {
			t.Errorf("with %d bytes %v are activated, and %d are planned again", tc.has, news, tc.queue)
		}
		open := 0
		for _, uid := range []types.UID{"1", "2", "3"} {
			if shut, _ := l.Gate(uid); !shut {
				open++
			}
		}
		if want := 3 - tc.queue; open != want {
			t.Errorf("with %d bytes %d gates are open, want %d\n%s", tc.has, open, want, l)
		}
		if err := check(l); err != nil {
			t.Fatal(err)
		}
	}
}

// The same where the kubelet was faster than the record of the launch: what is planned for the node is looked at when it is known whose node it is.
func TestTooLittleMemoryOfAFastKubelet(t *testing.T) {
	now := time.Unix(0, 0)
	l, web := New(), withMemory("web", 30)
	l.AddNode("c1", nil, nil, false, now)
	var pl []capacity.Placement
	for _, uid := range []types.UID{"a", "b"} {
		l.Submit(capacity.PodRef{UID: uid}, web, now)
		pl = append(pl, capacity.Placement{Class: web, Pod: capacity.PodRef{UID: uid}, Node: "c1", Group: 1})
	}
	l.Commit("p", pl, now)
	l.Launching("c1", now)
	st := NodeStatus{Managed: true, Memory: nodestatus.Memory{Certain: 50, Posted: true}, Registered: true}
	l.Cached("n1", st, now)
	l.Named("c1", "n1", "")
	st.Ready = true
	l.Cached("n1", st, now)
	if n := l.Queued(); n != 1 {
		t.Errorf("%d pods are planned again, want the one that doesn't fit: the other's gate is open\n%s", n, l)
	}
	if err := check(l); err != nil {
		t.Fatal(err)
	}
}

// What was bound to a node before a restart isn't known: none of its pods that need memory is bound before its kubelet has registered.
func TestCertainMemoryOfARecoveredNode(t *testing.T) {
	now := time.Unix(0, 0)
	l, web := New(), withMemory("web", 30)
	l.RecoverNode("c1", nil, nil, now)
	ref := capacity.PodRef{UID: "a"}
	l.Submit(ref, web, now)
	l.Commit("p", []capacity.Placement{{Class: web, Pod: ref, Node: "c1"}}, now)
	l.Named("c1", "n1", "")
	for _, st := range []NodeStatus{{Managed: true, Memory: nodestatus.Memory{Certain: 100}}, {Managed: true, Memory: nodestatus.Memory{Certain: 100, Posted: true}, Registered: true}} {
		l.Cached("n1", st, now)
		if shut, why := l.Gate("a"); shut == st.Registered {
			t.Errorf("registered %t: the gate is shut: %t (%s)", st.Registered, shut, why)
		}
	}
}

// Whatever comes, goes and is planned again, the pods that are bound before registration never need more than is certain.
func TestNeverMoreThanIsCertain(t *testing.T) {
	for seed := range int64(200) {
		r := rand.New(rand.NewSource(seed))
		now := time.Unix(0, 0)
		l := New()
		classes := make([]*capacity.Class, 4)
		for i := range classes {
			classes[i] = withMemory(fmt.Sprint("c", i), int64(1+r.Intn(40)))
		}
		l.AddNode("claim", nil, nil, false, now)
		certain, used, n := int64(50+r.Intn(100)), int64(0), 0
		alive := map[types.UID]*capacity.Class{}
		plan := func() {
			var pl []capacity.Placement
			for range 1 + r.Intn(4) {
				n++
				ref, c := capacity.PodRef{UID: types.UID(fmt.Sprint(n))}, classes[r.Intn(len(classes))]
				l.Submit(ref, c, now)
				alive[ref.UID] = c
				pl = append(pl, capacity.Placement{Class: c, Pod: ref, Node: "claim"})
			}
			l.Commit(fmt.Sprint(n), pl, now)
		}
		plan()
		l.Launching("claim", now)
		l.Named("claim", "n1", "")
		l.Cached("n1", NodeStatus{Managed: true, Memory: nodestatus.Memory{Certain: certain}}, now)
		for range 60 {
			now = now.Add(time.Second)
			switch r.Intn(3) {
			case 0:
				plan()
			case 1:
				for uid := range alive { // any of them
					l.Gone(uid)
					delete(alive, uid)
					break
				}
			default:
				for uid, c := range alive {
					if len(bindAll(t, l, "n1", uid)) > 0 {
						used += c.Requests[corev1.ResourceMemory]
						delete(alive, uid)
					}
				}
			}
			if used > certain {
				t.Fatalf("seed %d: %d bytes are bound before registration, %d are certain\n%s", seed, used, certain, l)
			}
			if err := check(l); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
	}
}
