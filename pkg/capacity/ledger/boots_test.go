package ledger

import (
	"fmt"
	"testing"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// boot makes a node register after that time; launched returns one that is in flight.
func boot(l *Ledger, kind, claim string, now time.Time, takes time.Duration) {
	registers(l, launched(l, kind, claim, now), now.Add(takes))
}

func launched(l *Ledger, kind, claim string, now time.Time) string {
	l.AddNode(claim, &capacity.Node{Kind: capacity.NodeKind{Boot: kind}}, nil, true, now)
	return appears(l, claim, now)
}

func appears(l *Ledger, claim string, now time.Time) string {
	l.Named(claim, "node-"+claim, claim)
	l.Cached("node-"+claim, NodeStatus{Managed: true, ProviderID: claim}, now)
	return claim
}

func registers(l *Ledger, claim string, now time.Time) {
	l.Cached("node-"+claim, NodeStatus{Managed: true, Registered: true, ProviderID: claim}, now)
}

func late(l *Ledger, claim string) bool {
	for _, f := range l.InFlight() {
		if f.Claim == claim {
			return f.Late
		}
	}
	panic("there is no claim " + claim)
}

// lateAfter returns after how many seconds a node that was launched at the given time is late; 0: not within an hour.
func lateAfter(l *Ledger, claim string, at time.Time) int {
	for s := range 3600 {
		if l.Tick(at.Add(time.Duration(s) * time.Second)); late(l, claim) {
			return s
		}
	}
	return 0
}

func TestWhatIsLateIsLearnedPerKind(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	for _, tc := range []struct {
		name  string
		kind  string
		seen  int
		takes time.Duration
		want  int
	}{
		{"nothing is known: as long as the arguments say", "", 0, 0, 181},
		{"fast ones, too few to judge by", "linux", 29, 20 * time.Second, 181},
		{"fast ones: not below a minute", "linux", 40, 10 * time.Second, 61},
		{"ordinary ones: half as long again, and 30 s", "linux", 40, time.Minute, 121},
		{"slow ones: the first already gives them time", "linux", 1, 6 * time.Minute, 571},
		{"others don't count", "windows", 40, 20 * time.Second, 181},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := New()
			for i := range tc.seen {
				kind := tc.kind
				if kind == "windows" {
					kind = "linux"
				}
				boot(l, kind, fmt.Sprint("seen", i), start, tc.takes)
			}
			now := start.Add(time.Hour)
			if got := lateAfter(l, launched(l, tc.kind, "c", now), now); got != tc.want {
				t.Errorf("late after %d s, want %d", got, tc.want)
			}
		})
	}
}

// The slowest healthy node is not late.
func TestOneOfAHundredIsNotLate(t *testing.T) {
	l, start := New(), time.Unix(1_000_000, 0)
	for i := range 200 {
		boot(l, "linux", fmt.Sprint("seen", i), start, 40*time.Second+time.Duration(i%100)*200*time.Millisecond)
	}
	now := start.Add(time.Hour)
	if s := lateAfter(l, launched(l, "linux", "c", now), now); s <= 80 {
		t.Errorf("late after %d s, where nodes take 40 to 60 s", s)
	}
}

// The process was down for an hour. The ledger learns nothing from that about boot times, and nodes that registered meanwhile are not
// late.
func TestDowntimeIsNoBootTime(t *testing.T) {
	l, start := New(), time.Unix(1_000_000, 0)
	for i := range 40 {
		claim := fmt.Sprint("c", i)
		l.RecoverNode(claim, &capacity.Node{Kind: capacity.NodeKind{Boot: "linux"}}, nil, start)
		appears(l, claim, start)
	}
	l.Tick(start.Add(10 * time.Second))
	if late(l, "c0") {
		t.Error("late before anybody could look at it")
	}
	for i := range 39 {
		registers(l, fmt.Sprint("c", i), start.Add(10*time.Second))
	}
	if len(l.boots) > 0 {
		t.Errorf("learned %v", l.boots["linux"])
	}
	if s := lateAfter(l, "c39", start); s != 181 {
		t.Errorf("the one that never came is late after %d s, want 181", s)
	}
}
