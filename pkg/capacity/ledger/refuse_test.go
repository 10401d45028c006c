package ledger

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func TestSameReason(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want bool
	}{
		{"limit of cpu 100 reached: 2 left", "limit of cpu 100 reached: 2 left", true},
		{"limit of cpu 100 reached: 2 left", "limit of cpu 100 reached: 500m left", true},
		{"limit of cpu 100 reached: 12 left", "limit of cpu 100 reached: 13 left", true},
		{"limit of memory 8Gi reached: 0 left, up to 16Gi needed", "limit of memory 8Gi reached: 1536Mi left, up to 4Gi needed", true},
		{"998 nodes are being launched already, the limit is 1000", "1000 nodes are being launched already, the limit is 1000", true},
		{"nodes cost up to $4.00 an hour already", "nodes cost up to $13.50 an hour already", true},
		{"paused until 12:30:05", "paused until 13:02:00", true},
		{"limit of cpu 100 reached: 2 left", "limit of memory 100Gi reached: 2 left", false},
		{"limit of cpu 100 reached: 2 left", "taint a:NoSchedule is not tolerated", false},
		{"pool-1: no offer", "pool-2: no offer", false},
		{"pool-1: no offer", "pool-12: no offer", false},
		{"none has node.kubernetes.io/instance-type in c5.large", "none has node.kubernetes.io/instance-type in c6.large", false},
		{"no offer", "no offer 3", false},
		{"3 types", "3 types in zone a", false},
		{"", "no offer", false},
	} {
		if got := sameReason(tc.a, tc.b); got != tc.want {
			t.Errorf("%q and %q: %t, want %t", tc.a, tc.b, got, tc.want)
		}
		if got := sameReason(tc.b, tc.a); got != tc.want {
			t.Errorf("%q and %q: %t, want %t", tc.b, tc.a, got, tc.want)
		}
	}
}

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
		now = now.Add(2 * maxBackoff)
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
		now = now.Add(2 * maxBackoff)
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
	l.Relieved(now)
	for name, want := range map[types.UID]State{"limit": Queued, "good": Refused, "broken": Refused} {
		if got := l.pods[name].state; got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if !l.Take().Plan {
		t.Error("no plan is asked for")
	}
}
