package ledger

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger/backoff"
)

// Pods that wait for a limit don't get a scheduling cycle whenever the rest of the limit is another number.
func TestOtherNumbersInAReasonAreNoNewReason(t *testing.T) {
	now := time.Unix(0, 0)
	l := New()
	c := testClass("web", 100, 0)
	const pods, plans = 100, 12
	uids := make([]types.UID, pods)
	for i := range uids {
		uids[i] = types.UID(fmt.Sprint("p-", i))
	}
	submit := func() {
		for _, uid := range uids {
			l.Submit(capacity.PodRef{UID: uid}, c, now)
		}
	}
	submit()
	activated, told := 0, 0
	for plan := range plans {
		told += len(l.Refuse(uids, fmt.Sprintf("limit of cpu 1000 reached: %d left", 20-plan), true, now))
		activated += len(l.Take().Activate)
		submit() // its own cycle, if it had one: that changes nothing
		now = now.Add(2 * backoff.Longest)
		l.Tick(now)
		if st := l.pods["p-0"].state; st != Queued {
			t.Fatalf("the pod is %s, want queued", st)
		}
	}
	if activated != pods || told != pods {
		t.Errorf("%d activations and %d words for %d pods, want one each", activated, told, pods)
	}
}

// Capacity below a limit is a reason to plan again for the pods that may be waiting for it, and only for them.
func TestRelieved(t *testing.T) {
	now := time.Unix(0, 0)
	l := New()
	for _, name := range []string{"limit", "good", "broken"} {
		l.Submit(capacity.PodRef{UID: types.UID(name)}, testClass(name, 100, 0), now)
	}
	for range 12 {
		l.Refuse([]types.UID{"limit"}, "the limit", true, now)
		now = now.Add(2 * backoff.Longest)
		l.Tick(now)
	}
	l.Refuse([]types.UID{"limit"}, "the limit", true, now)
	l.Refuse([]types.UID{"good"}, "no pool has such a label", false, now)
	l.pods["broken"].failed = 10
	l.again(l.pods["broken"], "its node did not come", now)
	l.Take()
	now = now.Add(time.Second)
	if l.Tick(now); l.pods["limit"].state != Refused {
		t.Fatal("the pod does not wait for its back-off")
	}
	relieved(l, now)
	for name, want := range map[types.UID]State{"limit": Queued, "good": Refused, "broken": Refused} {
		if got := l.pods[name].state; got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if !l.Take().Plan {
		t.Error("no plan is asked for")
	}
}

// Whatever changes in the moment between a refusal and the cycle that reports it, that cycle reports the refusal, not that the pod is planned for
// again: the recorder of events would keep that text.
func TestTheCycleAfterARefusalReportsIt(t *testing.T) {
	for name, change := range map[string]func(l *Ledger, now time.Time){"room": reopen, "offerings": changed, "limit": relieved} {
		for _, retryable := range []bool{false, true} {
			now := time.Unix(0, 0)
			l := New()
			c, ref := testClass("web", 100, 0), capacity.PodRef{UID: "p"}
			l.Submit(ref, c, now)
			l.Refuse([]types.UID{"p"}, "no pool has such devices", retryable, now)
			now = now.Add(10 * time.Millisecond)
			change(l, now)
			if state, why := l.Submit(ref, c, now); state != Refused || why != "no pool has such devices" {
				t.Errorf("%s, retryable %t: its cycle reports that it is %s: %s", name, retryable, state, why)
			}
			l.Take()
			if now = now.Add(backoff.First); name != "limit" || retryable { // a limit is no reason for pods whose refusal doesn't pass
				l.Tick(now)
				if e := l.Take(); l.pods["p"].state != Queued || !e.Plan {
					t.Errorf("%s, retryable %t: the pod is %s a second later, plan %t", name, retryable, l.pods["p"].state, e.Plan)
				}
			}
		}
	}
}

// A cycle that ends when the pod is due to be planned for again reports no refusal, so the next refusal activates the pod, although its reason is the same.
func TestALateCycleReportsNoRefusal(t *testing.T) {
	now := time.Unix(0, 0)
	l := New()
	c, ref := testClass("web", 100, 0), capacity.PodRef{UID: "p"}
	l.Submit(ref, c, now)
	l.Refuse([]types.UID{"p"}, "no pool has such devices", false, now)
	changed(l, now.Add(10*time.Millisecond))
	now = now.Add(backoff.First + 100*time.Millisecond)
	if state, why := l.Submit(ref, c, now); state != Queued {
		t.Fatalf("the pod is %s: %s", state, why)
	}
	l.Take()
	if fresh := l.Refuse([]types.UID{"p"}, "no pool has such devices", false, now); len(fresh) != 1 || len(l.Take().Activate) != 1 {
		t.Error("nothing reports the refusal")
	}
}

// A pod that was refused for the same reason before and after reserved capacity was released is activated, so that preemption may help it, also if
// it was planned for again for another reason.
func TestReleasedCapacityIsLookedAtAfterARefusal(t *testing.T) {
	now := time.Unix(0, 0)
	l := New()
	c, ref := testClass("web", 100, 0), capacity.PodRef{UID: "p"}
	l.Submit(ref, c, now)
	l.Refuse([]types.UID{"p"}, "no room", false, now)
	changed(l, now.Add(10*time.Millisecond))
	l.Submit(ref, c, now.Add(20*time.Millisecond)) // its cycle fails before the release
	reopen(l, now.Add(900*time.Millisecond))
	now = now.Add(2 * backoff.First)
	l.Tick(now)
	l.Take()
	if fresh := l.Refuse([]types.UID{"p"}, "no room", false, now); len(fresh) != 1 || len(l.Take().Activate) != 1 {
		t.Error("the scheduler does not look at the pod after the release")
	}
}

// Pods that were refused together are planned for together, whether or not their cycles have failed since.
func TestPodsRefusedTogetherAreQueuedTogether(t *testing.T) {
	now := time.Unix(0, 0)
	l := New()
	c := testClass("web", 100, 0)
	for _, uid := range []types.UID{"a", "b"} {
		l.Submit(capacity.PodRef{UID: uid}, c, now)
	}
	l.Refuse([]types.UID{"a", "b"}, "no offer", false, now)
	l.Submit(capacity.PodRef{UID: "b"}, c, now)
	for _, at := range []time.Duration{10 * time.Millisecond, backoff.First} {
		changed(l, now.Add(at))
		if a, b := l.pods["a"].state, l.pods["b"].state; a != b {
			t.Errorf("after %v a is %s, b is %s", at, a, b)
		}
	}
	if a := l.pods["a"].state; a != Queued {
		t.Errorf("a is %s after a second, want queued", a)
	}
}
