package ledger

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger/backoff"
)

var epoch = time.Unix(1_000_000, 0)

func one(l *Ledger, c *capacity.Class, node string) {
	l.Commit("p", []capacity.Placement{{Class: c, Pod: capacity.PodRef{UID: "u"}, Node: node}}, epoch)
}

// A pod that was planned for while it was being bound leaves nothing behind: its slot would keep a node for ever.
func TestSettledGivesBackWhatWasPlannedMeanwhile(t *testing.T) {
	l, c := New(), testClass("c", 1000, 0)
	if why := l.Assume("u", "old", false); why != nil {
		t.Fatal(why)
	}
	l.Submit(capacity.PodRef{UID: "u"}, c, epoch)
	l.AddNode("claim", &capacity.Node{}, nil, false, epoch)
	one(l, c, "claim")
	l.Settled("u", "old")
	l.Bound("u", "old", epoch)
	if l.Launching("claim", epoch) {
		t.Error("a node is launched for a pod that is bound elsewhere")
	}
}

// A plan that was made before a node was fenced makes no reservation there: its pods would wait for a node that is being removed.
func TestNothingIsBookedOnAFencedNode(t *testing.T) {
	l, c := New(), testClass("c", 1000, 0)
	l.Submit(capacity.PodRef{UID: "u"}, c, epoch)
	if !l.Fence("n") {
		t.Fatal("no fence")
	}
	l.Take()
	l.Existing("n", NodeStatus{Managed: true, Registered: true, Initialized: true})
	one(l, c, "n")
	if len(l.QueuedPods(l.Queue())) != 1 || !l.Take().Plan {
		t.Errorf("want the pod planned for anew:\n%s", l)
	}
	l.Unfence("n")
	l.Existing("n", NodeStatus{Managed: true, Registered: true, Initialized: true})
	one(l, c, "n")
	if closed, why := l.Gate("u"); closed {
		t.Errorf("the fence has gone, and the pod still waits: %s", why)
	}
}

// A reservation that a pod loses at its gate's deadline is no reason to plan for the pod again: that would buy a node each time.
func TestGateDeadlineIsTheEndOfIt(t *testing.T) {
	l, c := New(), testClass("c", 1000, 0)
	l.Submit(capacity.PodRef{UID: "u"}, c, epoch)
	l.AddNode("claim", &capacity.Node{}, nil, true, epoch)
	one(l, c, "claim")
	at := epoch.Add(l.patience.Gate + time.Second)
	l.Tick(at)
	for range 3 {
		at = at.Add(time.Second)
		l.Tick(at)
	}
	if closed, why := l.Gate("u"); closed || len(l.QueuedPods(l.Queue())) > 0 {
		t.Errorf("gate closed=%t (%s), %d pods queued", closed, why, len(l.QueuedPods(l.Queue())))
	}
}

// Refusals cost only time: as soon as pools or offerings change, no pod waits for the end of a back-off.
func TestAChangeEndsTheBackoffOfRefusals(t *testing.T) {
	l, c, now := New(), testClass("c", 1000, 0), epoch
	l.Submit(capacity.PodRef{UID: "u"}, c, now)
	refusals := 0
	for end := now.Add(12 * time.Minute); now.Before(end); now = now.Add(time.Second) {
		if len(l.QueuedPods(l.Queue())) > 0 {
			refusals++
			l.Refuse([]types.UID{"u"}, "the pool's limit is reached", true, now)
		}
		l.Tick(now)
	}
	if refusals > 12 {
		t.Errorf("planned for %d times in 12 minutes", refusals)
	}
	if len(l.QueuedPods(l.Queue())) > 0 {
		l.Refuse([]types.UID{"u"}, "the pool's limit is reached", true, now)
	}
	changed(l, now)
	l.Tick(now.Add(backoff.First))
	if len(l.QueuedPods(l.Queue())) != 1 {
		t.Error("not planned for after the limit was raised")
	}
	l.AddNode("claim", &capacity.Node{}, nil, false, now)
	one(l, c, "claim")
	l.ClaimGone("claim", "the launch failed", false, now)
	if len(l.QueuedPods(l.Queue())) != 1 {
		t.Error("refusals of before count as failed launches")
	}
}

// The Node of a claim that ends exists a moment longer: nothing may be planned there.
func TestTheNodeOfAClaimThatEndsIsClosed(t *testing.T) {
	l, c := New(), testClass("c", 1000, 0)
	status := NodeStatus{ProviderID: "id", Managed: true}
	l.AddNode("claim", &capacity.Node{}, nil, true, epoch)
	l.Named("claim", "n", "id")
	l.Cached("n", status, epoch)
	l.ClaimGone("claim", "its NodeClaim was deleted", false, epoch)
	if why := l.Assume("u", "n", false); why == nil {
		t.Error("a pod may still go to the node")
	}
	l.Submit(capacity.PodRef{UID: "u"}, c, epoch)
	l.Existing("n", status)
	if one(l, c, "n"); len(l.QueuedPods(l.Queue())) != 1 {
		t.Errorf("planned on a node that ends:\n%s", l)
	}
	l.Uncached("n", "id", epoch)
	l.Gone("u")
	if !l.Empty() {
		t.Errorf("left behind:\n%s", l)
	}

	// The name is free for another instance, even if the Node's deletion was not observed.
	l.AddNode("claim", &capacity.Node{}, nil, true, epoch)
	l.Named("claim", "n", "id")
	l.Cached("n", status, epoch)
	l.ClaimGone("claim", "its NodeClaim was deleted", false, epoch)
	l.AddNode("next", &capacity.Node{}, nil, true, epoch)
	l.Named("next", "n", "id2")
	l.Cached("n", NodeStatus{ProviderID: "id2", Managed: true}, epoch)
	if why := l.Assume("v", "n", false); why != nil {
		t.Errorf("the next machine of that name: %s", why)
	}
}

// The end of an instance that no pod needs is requested until it has happened: the first call may have failed.
func TestTheEndOfAnUnneededMachineIsAskedForAgain(t *testing.T) {
	l := New()
	l.AddNode("claim", &capacity.Node{}, nil, true, epoch)
	l.nodes["claim"].unneededSince = epoch
	asked := 0
	for i := range 60 {
		l.Tick(epoch.Add(time.Duration(i) * time.Second))
		asked += len(l.Take().End)
	}
	if asked < 3 {
		t.Errorf("asked %d times", asked)
	}
	l.ClaimGone("claim", "gone", true, epoch)
	l.Tick(epoch.Add(time.Hour))
	if len(l.Take().End) > 0 {
		t.Error("asked for the end of a claim that has gone")
	}
}

// AllSlots for many claims takes as long as for one, also where each pod is a class of its own.
func BenchmarkAllSlots(b *testing.B) {
	b.Run("one class", func(b *testing.B) { benchmarkAllSlots(b, 1) })
	b.Run("a class per pod", func(b *testing.B) { benchmarkAllSlots(b, 10000) })
}

func benchmarkAllSlots(b *testing.B, kinds int) {
	l := New()
	const pods, per = 10000, 10
	var classes []*capacity.Class
	for i := range kinds {
		classes = append(classes, testClass(fmt.Sprint("class", i), 1000, 0))
	}
	var placements []capacity.Placement
	var claims []string
	for i := range pods {
		ref := capacity.PodRef{UID: types.UID(fmt.Sprint("u", i))}
		c := classes[i%kinds]
		l.Submit(ref, c, epoch)
		placements = append(placements, capacity.Placement{Class: c, Pod: ref, Node: fmt.Sprint("c", i/per)})
	}
	for i := range pods / per {
		claims = append(claims, fmt.Sprint("c", i))
		l.AddNode(claims[i], &capacity.Node{}, nil, false, epoch)
	}
	l.Commit("p", placements, epoch)
	for _, n := range []int{1, len(claims)} {
		b.Run(fmt.Sprint(n, "claims"), func(b *testing.B) {
			for b.Loop() {
				if got := l.AllSlots(claims[:n]); len(got[claims[0]]) != per {
					b.Fatal(len(got))
				}
			}
		})
	}
}

// A pod that its controller creates while a plan is made that reserves capacity for it takes that reservation. If it were planned for
// again, another instance would be bought for it, and the reservation would stay unused.
func TestPodsThatComeWhileRoomIsPlannedForThem(t *testing.T) {
	l, c := New(), ownedClass("c")
	for _, uid := range []types.UID{"first", "second", "third"} {
		l.Submit(capacity.PodRef{UID: uid}, c, epoch)
	}
	l.AddNode("claim", &capacity.Node{}, nil, false, epoch)
	l.Commit("p", []capacity.Placement{
		{Class: c, Pod: capacity.PodRef{UID: "first"}, Node: "claim"}, {Class: c, Owner: "rs", Node: "claim"},
	}, epoch)
	if queued := l.QueuedPods(l.Queue()); len(queued) != 1 || queued[0].Ref.UID != "third" {
		t.Errorf("want the third pod planned for, and it alone:\n%s", l)
	}
	if l.Holds("rs", "") {
		t.Error("room is held for a pod that is there")
	}
	if err := check(l); err != nil {
		t.Error(err)
	}
}
