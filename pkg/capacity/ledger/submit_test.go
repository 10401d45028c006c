package ledger

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger/backoff"
)

// A cycle that began before the plan and fails after it tells nothing about the plan.
func TestCycleThatBeganBeforeThePlanDoesNotFailIt(t *testing.T) {
	now := time.Unix(0, 0)
	l := New()
	c := testClass("a", 100, 0)
	ref := capacity.PodRef{UID: "p"}
	l.Submit(ref, c, now)
	l.Existing("node", NodeStatus{})
	l.Commit("1", []capacity.Placement{{Class: c, Pod: ref, Node: "node"}}, now)
	l.Take()
	if st, _ := l.Submit(ref, c, now); st != Open {
		t.Fatalf("the pod is %s after a cycle that was never pinned, want open", st)
	}
	if e := l.Take(); len(e.Activate) != 1 || e.Plan {
		t.Errorf("effects %+v, want the pod activated once more", e)
	}
	if node, wait := l.Pin("p"); node != "node" {
		t.Fatalf("pinned to %q (%s), want its slot", node, wait)
	}
	if st, _ := l.Submit(ref, c, now); st != Queued {
		t.Errorf("the pod is %s after its pinned cycle failed, want queued", st)
	}
}

// A node that joined and never becomes usable doesn't make its pods wait for ever, and doesn't make them buy another node.
func TestGateHasADeadline(t *testing.T) {
	now := time.Unix(0, 0)
	l := New()
	c := testClass("gpu", 100, 0)
	c.Bind = capacity.BindInitialized
	ref := capacity.PodRef{UID: "p"}
	l.Submit(ref, c, now)
	l.AddNode("claim", &capacity.Node{}, nil, false, now)
	l.Commit("1", []capacity.Placement{{Class: c, Pod: ref, Node: "claim"}}, now)
	l.Launching("claim", now)
	l.Named("claim", "node", "")
	l.Cached("node", NodeStatus{Managed: true, Registered: true}, now)
	l.Tick(now.Add(usualPatience.Gate))
	if closed, _ := l.Gate("p"); !closed {
		t.Fatal("the gate is open before its deadline")
	}
	l.Take()
	l.Tick(now.Add(usualPatience.Gate + time.Second))
	if closed, _ := l.Gate("p"); closed {
		t.Error("the gate is still closed after its deadline")
	}
	if e := l.Take(); e.Plan || len(e.Words) != 1 || len(e.Activate) != 1 {
		t.Errorf("effects %+v, want the pod let go with a word and no plan", e)
	}
	if err := check(l); err != nil {
		t.Error(err)
	}
}

// A pod that was refused because capacity was reserved for another pod is planned for again when that reservation ends.
func TestRefusedPodsHearOfRoomGivenBack(t *testing.T) {
	now := time.Unix(0, 0)
	l := New()
	c := testClass("a", 100, 0)
	for _, uid := range []types.UID{"kept", "refused"} {
		l.Submit(capacity.PodRef{UID: uid}, c, now)
	}
	l.Existing("node", NodeStatus{})
	l.Commit("1", []capacity.Placement{{Class: c, Pod: capacity.PodRef{UID: "kept"}, Node: "node"}}, now)
	l.Refuse([]types.UID{"refused"}, "no room", false, now)
	l.Tick(now)
	l.Take()
	l.Gone("kept")
	l.Tick(now.Add(backoff.First))
	if e := l.Take(); !e.Plan {
		t.Error("the refused pod is not planned for")
	}
	l.Refuse([]types.UID{"refused"}, "no room", false, now)
	l.Take()
	l.Tick(now)
	if e := l.Take(); e.Plan {
		t.Error("it is planned for again and again")
	}
}

// A reservation that was lost is made again, later each time. Unless that takes long, no other pod is evicted for the pod.
func TestPodsWhosePromiseWasBrokenArePlannedSoon(t *testing.T) {
	now := time.Unix(0, 0)
	l := New()
	c := testClass("a", 100, 0)
	ref := capacity.PodRef{UID: "p"}
	l.Submit(ref, c, now)
	if l.Refuse([]types.UID{"p"}, "nothing is large enough", true, now); l.PlannedSoon("p", now) {
		t.Error("a pod for which there is no machine seems to get one soon")
	}
	if l.Await([]types.UID{"p"}); !l.PlannedSoon("p", now) {
		t.Error("others are evicted for a pod that waits for what the first nodes show")
	}
	reopen(l, now.Add(time.Hour))
	var waits []bool
	for range 8 {
		now = now.Add(time.Hour)
		l.Tick(now)
		l.Existing("node", NodeStatus{})
		l.Commit("1", []capacity.Placement{{Class: c, Pod: ref, Node: "node"}}, now)
		l.Pin("p")
		if st, _ := l.Submit(ref, c, now); st == Refused {
			waits = append(waits, l.PlannedSoon("p", now))
		}
	}
	if len(waits) < 5 || !waits[0] || waits[len(waits)-1] {
		t.Errorf("planned soon after each broken promise: %v, want it at first and not for ever", waits)
	}
}

// A pod for which capacity is reserved takes it when it is first seen, before it looks for another place; preferably capacity that it can
// use now.
func TestAdopt(t *testing.T) {
	now := time.Unix(0, 0)
	l := New()
	c := testClass("a", 100, 0)
	c.Pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: "rs", Controller: new(true)}}}}
	if l.Adopt(capacity.PodRef{UID: "early"}, c, now) || l.Knows("early") {
		t.Error("a pod got room though none is held")
	}
	l.AddNode("claim", &capacity.Node{}, nil, false, now)
	l.Existing("node", NodeStatus{})
	l.Commit("1", []capacity.Placement{{Class: c, Owner: "rs", Node: "claim"}, {Class: c, Owner: "rs", Node: "node"}}, now)
	for _, want := range []struct {
		uid       types.UID
		node      string
		waits, ok bool
	}{{"first", "node", false, true}, {"second", "", true, true}, {"third", "", false, false}} {
		if got := l.Adopt(capacity.PodRef{UID: want.uid}, c, now); got != want.ok {
			t.Fatalf("%s: %v, want %v", want.uid, got, want.ok)
		}
		if node, wait := l.Pin(want.uid); node != want.node || (wait != "") != want.waits {
			t.Errorf("%s is pinned to %q (%s), want %q", want.uid, node, wait, want.node)
		}
	}
	if l.Adopt(capacity.PodRef{UID: "first"}, c, now) {
		t.Error("a pod was given room twice")
	}
	if adopted := l.Adopted()["rs"]; len(adopted) != 2 {
		t.Errorf("adopted %v, want two", adopted)
	}
	if err := check(l); err != nil {
		t.Error(err)
	}
}

// A node that is booting may lose its connection for a moment, and get a taint for that. Its pods wait, whether they were opened before
// or not: another instance would not be there any sooner.
func TestTaintOfABootingNodeIsWaitedFor(t *testing.T) {
	now := time.Unix(0, 0)
	unreachable := NodeStatus{Managed: true, Registered: true, Taints: []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule}}}
	for name, seen := range map[string]func(l *Ledger){
		"the ledger hears of it first": func(l *Ledger) {
			l.Cached("node", unreachable, now)
			if closed, _ := l.Gate("p"); !closed {
				t.Error("the gate stays open")
			}
		},
		"the pod's cycle fails first": func(l *Ledger) {
			l.Pin("p")
			l.byName["node"].status = unreachable
			if st, why := l.Submit(capacity.PodRef{UID: "p"}, l.pods["p"].class.Class, now); st != Planned || !strings.Contains(why, "unreachable") {
				t.Errorf("the pod is %s (%s), want it to wait for its node", st, why)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := New()
			c := testClass("a", 100, 0)
			l.Submit(capacity.PodRef{UID: "p"}, c, now)
			l.AddNode("claim", &capacity.Node{}, nil, false, now)
			l.Commit("1", []capacity.Placement{{Class: c, Pod: capacity.PodRef{UID: "p"}, Node: "claim"}}, now)
			l.Launching("claim", now)
			l.Named("claim", "node", "")
			l.Cached("node", NodeStatus{Managed: true, Registered: true}, now)
			l.Take()
			seen(l)
			if err := check(l); err != nil {
				t.Error(err)
			}
			if e := l.Take(); e.Plan {
				t.Error("a plan is made for it")
			}
			l.Cached("node", NodeStatus{Managed: true, Registered: true}, now)
			if e := l.Take(); len(e.Activate) != 1 || e.Plan {
				t.Errorf("effects %+v, want the pod let go", e)
			}
			if node, wait := l.Pin("p"); node != "node" {
				t.Errorf("pinned to %q (%s), want its node", node, wait)
			}
		})
	}
}

// Pods that are refused for the same reason again cost the scheduler no cycle, unless a query has made it leave them waiting meanwhile,
// or it has not tried them since the first refusal.
func TestPodsRefusedOnceMoreAreLeftWhereTheyAre(t *testing.T) {
	now := time.Unix(0, 0)
	c := testClass("a", 100, 0)
	ref := capacity.PodRef{UID: "p"}
	const first = "no offer is large enough"
	cycle := func(l *Ledger) { l.Submit(ref, c, now) }
	for _, tc := range []struct {
		name      string
		before    func(l *Ledger) // between the first refusal and the next plan
		meanwhile func(l *Ledger) // while that plan is made
		why       string
		woken     bool
	}{
		{name: "nothing has changed", before: cycle, why: first},
		{name: "there is another reason", before: cycle, why: "the pool's limit is reached", woken: true},
		{name: "it has not had its cycle yet", why: first, woken: true},
		{name: "its gate was asked, and closed", before: cycle, meanwhile: func(l *Ledger) { l.Gate("p") }, why: first, woken: true},
		{name: "an event passed it by", before: cycle, meanwhile: func(l *Ledger) { l.Gated("p") }, why: first, woken: true},
		{name: "a cycle of its was cut short", before: cycle, meanwhile: func(l *Ledger) { l.Pin("p") }, why: first, woken: true},
		{name: "promised room was given back", before: cycle, meanwhile: func(l *Ledger) {
			l.next.freed = true
			l.Tick(now.Add(time.Minute))
		}, why: first, woken: true},
		{name: "a cycle of its ended without preemption", before: cycle, meanwhile: cycle, why: first, woken: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := New()
			l.Submit(ref, c, now)
			if news := l.Refuse([]types.UID{"p"}, first, false, now); len(news) != 1 {
				t.Errorf("news for %v, want the pod", news)
			}
			if e := l.Take(); len(e.Activate) != 1 {
				t.Fatalf("effects %+v of the first refusal, want a cycle for preemption", e)
			}
			for _, do := range []func(*Ledger){tc.before, func(l *Ledger) { changed(l, now.Add(time.Minute)) }, tc.meanwhile} {
				if do != nil {
					do(l)
				}
			}
			if !l.Take().Plan {
				t.Fatal("the pod is not planned for again")
			}
			news := l.Refuse([]types.UID{"p"}, tc.why, false, now)
			if e := l.Take(); len(e.Activate) > 0 != tc.woken || len(news) > 0 != tc.woken {
				t.Errorf("woken: %v, news for %v; want %t", e.Activate, news, tc.woken)
			}
			if closed, _ := l.Gate("p"); closed {
				t.Error("its gate is closed")
			}
		})
	}
}
