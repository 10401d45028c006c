package ledger

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// A node that never suits, in the wrong zone, say, is given up however many other pods of its class come and are placed.
func TestUselessSlotIsGivenUp(t *testing.T) {
	now := time.Unix(0, 0)
	l, c := New(), spreadClass()
	up := NodeStatus{Managed: true, Registered: true, Initialized: true}
	var live []capacity.PodRef
	gaveUp := false
	for i := range 400 { // a pod each 5 s, whose node boots for 20 s; n0 is always refused
		r := capacity.PodRef{UID: types.UID(fmt.Sprint("p", i))}
		live = append(live, r)
		l.Submit(r, c, now)
		if q := l.QueuedPods(l.Queue()); len(q) > 0 {
			claim := fmt.Sprint("c", i)
			l.AddNode(claim, nil, nil, false, now)
			l.Launching(claim, now)
			l.Named(claim, fmt.Sprint("n", i), "")
			l.Commit(claim, []capacity.Placement{{Class: c, Pod: q[0].Ref, Node: claim}}, now)
		}
		if i >= 4 {
			l.Cached(fmt.Sprint("n", i-4), up, now)
		}
		for range 5 {
			now = now.Add(time.Second)
			l.Tick(now)
			live = slices.DeleteFunc(live, func(ref capacity.PodRef) bool {
				node, _ := l.Pin(ref.UID)
				if node == "n0" {
					state, _ := l.SubmitRefused(ref, c, bySpread, now)
					gaveUp = gaveUp || state == Queued || state == Refused
				}
				if node == "" || node == "n0" || l.Assume(ref.UID, node, false) != nil {
					return false
				}
				l.Settled(ref.UID, node)
				return true
			})
		}
	}
	if !gaveUp {
		t.Errorf("n0 is kept for ever:\n%s", l)
	}
}

// The pods that are waited for never come. In the end, the one that waits is planned for again.
func TestWaitForOthersEndsInAPlan(t *testing.T) {
	now := time.Unix(0, 0)
	l, c, a, _ := onOneOfTwoNodes("c1", now)
	l.SubmitRefused(a, c, bySpread, now)
	for i := range 120 {
		l.Tick(now.Add(time.Duration(i) * time.Minute))
	}
	if l.Refused(a.UID) {
		t.Errorf("nothing plans for it:\n%s", l)
	}
}

// Pods of two zones wait for those of a third, whose nodes come one by one. The number of attempts grows with the pods, not with their square.
func TestPodsThatWaitAreNotAllTriedEachTime(t *testing.T) {
	const n = 300
	now := time.Unix(0, 0)
	l, c := New(), spreadClass()
	var placements []capacity.Placement
	for i := range 3 * n { // the nodes of zones 0 and 1 are there, and those of zone 2 come later
		ref, claim := capacity.PodRef{UID: types.UID(fmt.Sprint("p", i))}, fmt.Sprint("c", i)
		l.Submit(ref, c, now)
		l.AddNode(claim, nil, nil, false, now)
		l.Launching(claim, now)
		l.Named(claim, fmt.Sprint("n", i), "")
		placements = append(placements, capacity.Placement{Class: c, Pod: ref, Node: claim})
	}
	l.Commit("p", placements, now)
	zoneOf := func(node string) int {
		i, err := strconv.Atoi(node[1:])
		if err != nil {
			t.Fatal(err)
		}
		return i / n
	}
	zones, tried, left := [3]int{}, 0, len(placements)
	for step := 0; step < 3*n && left > 0; step++ {
		now = now.Add(time.Second)
		up := func(i int) {
			labels := map[string]string{corev1.LabelTopologyZone: fmt.Sprint(i / n)}
			l.Cached(fmt.Sprint("n", i), NodeStatus{Managed: true, Registered: true, Initialized: true, Labels: labels}, now)
		}
		for i := 0; i < 2*n && step == 0; i++ {
			up(i)
		}
		for i := 3 * step; i < min(3*step+3, n); i++ {
			up(2*n + i)
		}
		l.Tick(now)
		for i := range placements {
			ref := placements[i].Pod
			node, _ := l.Pin(ref.UID)
			if node == "" {
				continue
			}
			tried++
			if zone := zoneOf(node); zones[zone] > min(zones[0], zones[1], zones[2]) {
				l.SubmitRefused(ref, c, bySpread, now)
			} else if err := l.Assume(ref.UID, node, false); err == nil {
				l.Settled(ref.UID, node)
				zones[zone]++
				left--
			}
		}
	}
	if left > 0 || tried > 3*n*(triesPerPod+3) {
		t.Errorf("%d attempts for %d pods, of which %d are left: %v", tried, 3*n, left, zones)
	}
}

// Where more pods wait than are tried at once, each gets its turn, though others of the class are placed all the time, and none gives up because
// the rest has not been tried yet.
func TestAllThatWaitGetTheirTurn(t *testing.T) {
	now := time.Unix(0, 0)
	l, c := New(), spreadClass()
	const n = 3 * triesPerPod
	var refs []capacity.PodRef
	var placements []capacity.Placement
	for i := range n {
		ref, node := capacity.PodRef{UID: types.UID(fmt.Sprint("p", i))}, fmt.Sprint("n", i)
		l.Submit(ref, c, now)
		l.Existing(node, NodeStatus{Managed: true, Registered: true, Initialized: true})
		refs, placements = append(refs, ref), append(placements, capacity.Placement{Class: c, Pod: ref, Node: node})
	}
	l.Commit("p", placements, now)
	tried := map[string]int{}
	for step := range 20 {
		now = now.Add(time.Second)
		other := fmt.Sprint("other", step) // one that is placed
		waiting(l, c, now, 0, map[string]capacity.PodRef{other: {UID: types.UID(other)}}, other)
		l.Launching(other, now)
		l.Named(other, other, "")
		l.Cached(other, NodeStatus{Managed: true, Registered: true, Initialized: true}, now)
		l.Tick(now)
		refs = append(refs, capacity.PodRef{UID: types.UID(other)})
		refs = slices.DeleteFunc(refs, func(ref capacity.PodRef) bool {
			node, _ := l.Pin(ref.UID)
			if len(node) > 5 {
				if err := l.Assume(ref.UID, node, false); err != nil {
					t.Fatal(err)
				}
				l.Bound(ref.UID, node, now) // the informer may be faster than the end of the binding cycle
				l.Settled(ref.UID, node)
				return true
			}
			if node != "" {
				tried[node]++
				if state, why := l.SubmitRefused(ref, c, bySpread, now); state == Queued || state == Refused {
					t.Fatalf("in step %d %s on %s is %v: %s", step, ref.UID, node, state, why)
				}
			}
			return false
		})
	}
	for i := range n {
		if node := fmt.Sprint("n", i); tried[node] < 3 {
			t.Errorf("%s was tried %d times: %v", node, tried[node], tried)
		}
	}
}
