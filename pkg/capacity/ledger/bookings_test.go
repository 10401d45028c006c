package ledger

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// naming returns a class whose pods name a ProvisioningRequest.
func naming(request, key string, cpu int64) *capacity.Class {
	c := testClass(key, cpu, 0)
	c.Request = request
	return c
}

// bookedOn returns a ledger with capacity booked for pods that name the request "train": one on each of the nodes, which are there.
func bookedOn(t *testing.T, c *capacity.Class, nodes ...string) (*Ledger, time.Time) {
	t.Helper()
	now, l := time.Unix(0, 0), New()
	var placements []capacity.Placement
	for _, n := range nodes {
		l.Existing(n, NodeStatus{Managed: true, Initialized: true})
		placements = append(placements, capacity.Placement{Class: c, Owner: "uid", Node: n, Group: 1})
	}
	if !l.Book("1", "uid", placements, now.Add(10*time.Minute), now) {
		t.Fatal("nothing is booked")
	}
	return l, now
}

// room is a node of which nothing is used.
type room int64

func (r room) Requested(corev1.ResourceName) int64   { return 0 }
func (r room) Allocatable(corev1.ResourceName) int64 { return int64(r) }
func (r room) Volumes(string) int64                  { return 0 }
func (r room) Daemon(string) bool                    { return false }

func mustAgree(t *testing.T, l *Ledger) {
	t.Helper()
	if err := check(l); err != nil {
		t.Error(err)
	}
}

func TestBookedCapacityIsForThePodsThatNameTheRequest(t *testing.T) {
	l, now := bookedOn(t, naming("train", "a", 100), "n1", "n2")
	if s, ok := l.Booked("uid"); !ok || s.Pods != 2 || s.Kept != 2 || s.Up != 2 || s.Gone != 0 || !slices.Equal(s.Nodes, []string{"n1", "n2"}) {
		t.Errorf("booked: %+v", s)
	}
	for name, c := range map[string]*capacity.Class{"no request": testClass("b", 50, 0), "another request": naming("other", "c", 50), "another namespace": func() *capacity.Class {
		c := naming("train", "d", 50)
		c.Namespace = "elsewhere"
		return c
	}(), "too large": naming("train", "e", 101)} {
		if l.Expects(c) || l.Adopt(capacity.PodRef{UID: "stranger"}, c, now) {
			t.Errorf("%s: it takes booked capacity", name)
		}
		if err := l.Object("n1", &Ask{UID: "stranger", Class: c}, room(100)); err == nil {
			t.Errorf("%s: it may go where capacity is booked", name)
		}
	}
	if l.Fence("n1") {
		t.Error("a node with booked capacity can be ended")
	}
	// The first pod has the template's labels, the second one has others and is smaller.
	for uid, c := range map[types.UID]*capacity.Class{"first": naming("train", "a", 100), "second": naming("train", "labelled", 60)} {
		if !l.Adopt(capacity.PodRef{UID: uid}, c, now) {
			t.Fatalf("%s gets no booked capacity", uid)
		}
		node, wait := l.Pin(uid)
		if node == "" {
			t.Fatalf("%s waits: %s", uid, wait)
		}
		if err := l.Object(node, &Ask{UID: uid, Class: c}, room(100)); err != nil {
			t.Errorf("%s may not go to its node: %v", uid, err)
		}
		mustAgree(t, l)
	}
	if s, _ := l.Booked("uid"); s.Kept != 0 || s.Taken() != 2 {
		t.Errorf("booked after the pods have come: %+v", s)
	}
	if l.Adopt(capacity.PodRef{UID: "third"}, naming("train", "a", 100), now) {
		t.Error("a third pod gets capacity that was booked for two")
	}
	l.Unbook("uid", false, now)
	if node, _ := l.Pin("first"); node == "" {
		t.Error("the end of the booking takes a pod's capacity")
	}
	mustAgree(t, l)
}

// A pod prefers what was booked for its own class, and otherwise the smallest that is enough.
func TestWhichBookedCapacityAPodGets(t *testing.T) {
	now, l := time.Unix(0, 0), New()
	small, large := naming("train", "small", 100), naming("train", "large", 400)
	l.Existing("n", NodeStatus{})
	if !l.Book("1", "uid", []capacity.Placement{{Class: large, Owner: "uid", Node: "n"}, {Class: small, Owner: "uid", Node: "n"}}, now.Add(time.Minute), now) {
		t.Fatal("nothing is booked")
	}
	if s := l.bookedFor(naming("train", "labelled", 80)); s == nil || s.class.Key != "small" {
		t.Errorf("a small pod gets %+v", s)
	}
	if s := l.bookedFor(naming("train", "labelled", 300)); s == nil || s.class.Key != "large" {
		t.Errorf("a large pod gets %+v", s)
	}
	if s := l.bookedFor(large); s == nil || s.class.Key != "large" {
		t.Errorf("a pod of the class gets %+v", s)
	}
}

// Pods that are created before there is capacity for their request get it when it is booked.
func TestEarlyPodsGetWhatIsBooked(t *testing.T) {
	now, l, c := time.Unix(0, 0), New(), naming("train", "a", 100)
	l.Submit(capacity.PodRef{UID: "queued"}, c, now)
	l.Submit(capacity.PodRef{UID: "refused"}, c, now)
	l.Postpone("refused", "the request has no capacity yet", now.Add(time.Minute), now)
	l.Existing("n", NodeStatus{})
	two := []capacity.Placement{{Class: c, Owner: "uid", Node: "n"}, {Class: c, Owner: "uid", Node: "n"}}
	if !l.Book("1", "uid", two, now.Add(time.Minute), now) {
		t.Fatal("nothing is booked")
	}
	mustAgree(t, l)
	for _, uid := range []types.UID{"queued", "refused"} {
		if node, wait := l.Pin(uid); node != "n" {
			t.Errorf("%s is pinned to %q (%s)", uid, node, wait)
		}
	}
}

// The nodes of a booking are launched together: if one can't be had, nothing stays booked, and what was launched is given back.
func TestBookingThatCantBeHadIsGivenBack(t *testing.T) {
	now, l, c := time.Unix(0, 0), New(), naming("train", "a", 100)
	var placements []capacity.Placement
	for _, claim := range []string{"c1", "c2", "c3"} {
		l.AddNode(claim, &capacity.Node{}, nil, false, now)
		placements = append(placements, capacity.Placement{Class: c, Owner: "uid", Node: claim, Group: 1})
	}
	if !l.Book("1", "uid", placements, now.Add(time.Hour), now) {
		t.Fatal("nothing is booked")
	}
	l.Launching("c1", now)
	l.Launching("c2", now)
	if s, _ := l.Booked("uid"); s.Kept != 3 || s.Up != 0 {
		t.Errorf("booked on nodes that are launched: %+v", s)
	}
	l.ClaimGone("c2", "insufficient capacity", true, now)
	if s, ok := l.Booked("uid"); !ok || s.Kept != 0 || s.Gone != 3 || s.Lost["a"] != 3 || s.Why != "insufficient capacity" {
		t.Errorf("booked after one node could not be had: %+v", s)
	}
	l.Unbook("uid", true, now)
	if e := l.Take(); !slices.Equal(e.Cancel, []string{"c3"}) || e.Plan {
		t.Errorf("effects: %+v", e)
	}
	l.Tick(now.Add(unneededFor))
	if e := l.Take(); !slices.Equal(e.End, []string{"c1"}) {
		t.Errorf("ended %v, want the instance that was launched", e.End)
	}
	mustAgree(t, l)
}

// A booking whose request is deleted leaves launched nodes to others, and cancels the rest.
func TestUnbook(t *testing.T) {
	now, l, c := time.Unix(0, 0), New(), naming("train", "a", 100)
	l.AddNode("launched", &capacity.Node{}, nil, false, now)
	l.AddNode("planned", &capacity.Node{}, nil, false, now)
	l.Book("1", "uid", []capacity.Placement{{Class: c, Owner: "uid", Node: "launched"}, {Class: c, Owner: "uid", Node: "planned"}}, now.Add(time.Hour), now)
	l.Launching("launched", now)
	l.Unbook("uid", false, now)
	if e := l.Take(); !slices.Equal(e.Cancel, []string{"planned"}) {
		t.Errorf("cancelled %v", e.Cancel)
	}
	l.Tick(now.Add(time.Hour))
	if e := l.Take(); len(e.End) > 0 || !l.Has("launched") {
		t.Errorf("ended %v; a node that another request may use should stay", e.End)
	}
	if _, ok := l.Booked("uid"); ok {
		t.Error("something is still booked")
	}
}

// All is booked or nothing, and what nobody extends ends.
func TestBookingsAreWholeAndEnd(t *testing.T) {
	now, l, c := time.Unix(0, 0), New(), naming("train", "a", 100)
	l.Existing("n", NodeStatus{})
	both := []capacity.Placement{{Class: c, Owner: "uid", Node: "n"}, {Class: c, Owner: "uid", Node: "gone"}}
	if l.Book("1", "uid", both, now.Add(time.Minute), now) {
		t.Error("half of it is booked")
	}
	if _, ok := l.Booked("uid"); ok || l.Expects(c) {
		t.Error("something is booked")
	}
	l, now = bookedOn(t, c, "n")
	l.KeepBooked("uid", now.Add(time.Hour))
	l.Tick(now.Add(59 * time.Minute))
	if s, _ := l.Booked("uid"); s.Kept != 1 {
		t.Errorf("after an extension: %+v", s)
	}
	l.Tick(now.Add(time.Hour))
	if s, _ := l.Booked("uid"); s.Kept != 0 || s.Gone != 1 || s.Taken() != 0 {
		t.Errorf("after its time: %+v", s)
	}
	l.Mend("uid")
	if s, _ := l.Booked("uid"); s.Pods != 0 || s.Gone != 0 {
		t.Errorf("after it was mended: %+v", s)
	}
	mustAgree(t, l)
}

// A pod gets booked capacity only where it may go: one with another label or selector than the template is of another class.
func TestBookedCapacityOnNodesThatAPodMayUse(t *testing.T) {
	now, l, template := time.Unix(0, 0), New(), naming("train", "a", 100)
	zone := func(value string) map[string]string { return map[string]string{"zone": value} }
	l.Existing("tainted", NodeStatus{Labels: zone("a"), Taints: []corev1.Taint{{Key: "cordoned", Effect: corev1.TaintEffectNoSchedule}}})
	l.Existing("a", NodeStatus{Labels: zone("a")})
	l.Existing("b", NodeStatus{Labels: zone("b")})
	var placements []capacity.Placement
	for _, n := range []string{"tainted", "a", "b"} {
		placements = append(placements, capacity.Placement{Class: template, Owner: "uid", Node: n})
	}
	if !l.Book("1", "uid", placements, now.Add(time.Minute), now) {
		t.Fatal("nothing is booked")
	}
	for value, want := range map[string]string{"a": "a", "b": "b", "c": ""} {
		in, err := capacity.NewRequirement("zone", capacity.In, value)
		if err != nil {
			t.Fatal(err)
		}
		c := naming("train", "selects "+value, 100)
		c.Terms = []capacity.Requirements{{"zone": in}}
		got := ""
		if s := l.bookedFor(c); s != nil {
			got = s.node.name
		}
		if got != want {
			t.Errorf("a pod that selects zone %s gets capacity on %q, want %q", value, got, want)
		}
	}
}

// The pods of a booking start together, also those whose labels are not the template's.
func TestPodsOfABookingStartTogether(t *testing.T) {
	now, l, template := time.Unix(0, 0), New(), naming("train", "a", 100)
	var placements []capacity.Placement
	for _, claim := range []string{"c1", "c2"} {
		l.AddNode(claim, &capacity.Node{}, nil, true, now)
		placements = append(placements, capacity.Placement{Class: template, Owner: "uid", Node: claim, Group: 1})
	}
	if !l.Book("1", "uid", placements, now.Add(time.Hour), now) {
		t.Fatal("nothing is booked")
	}
	labelled := naming("train", "labelled", 100)
	for _, uid := range []types.UID{"first", "second"} {
		if !l.Adopt(capacity.PodRef{UID: uid}, labelled, now) {
			t.Fatalf("%s gets nothing", uid)
		}
	}
	up := NodeStatus{Managed: true, Registered: true, Initialized: true}
	l.Named("c1", "n1", "")
	l.Cached("n1", up, now)
	if closed, _ := l.Gate("first"); !closed {
		t.Error("one pod starts when only its node is there")
	}
	mustAgree(t, l)
	l.Named("c2", "n2", "")
	l.Cached("n2", up, now)
	for _, uid := range []types.UID{"first", "second"} {
		if closed, why := l.Gate(uid); closed {
			t.Errorf("both nodes are there, and %s waits: %s", uid, why)
		}
	}
	mustAgree(t, l)
}

// A pod that names a request is asked about in its scheduling cycle: however much is booked, that takes the same time.
func BenchmarkBookedFor(b *testing.B) {
	now, l, template := time.Unix(0, 0), New(), naming("train", "a", 100)
	var placements []capacity.Placement
	for i := range 10_000 {
		node := fmt.Sprint("n", i)
		l.Existing(node, NodeStatus{})
		placements = append(placements, capacity.Placement{Class: template, Owner: "uid", Node: node})
	}
	if !l.Book("1", "uid", placements, now.Add(time.Minute), now) {
		b.Fatal("nothing is booked")
	}
	labelled := naming("train", "labelled", 80)
	for b.Loop() {
		if l.bookedFor(labelled) == nil {
			b.Fatal("it gets nothing")
		}
	}
}

// Where none of the nodes with booked capacity is for a pod, it is not looked at all of them.
func TestFewNodesAreTriedForBookedCapacity(t *testing.T) {
	now, l, template := time.Unix(0, 0), New(), naming("train", "a", 100)
	var placements []capacity.Placement
	for i := range mostTried + 1 {
		node := fmt.Sprint("n", i)
		status := NodeStatus{Taints: []corev1.Taint{{Key: "cordoned", Effect: corev1.TaintEffectNoSchedule}}}
		if i == mostTried {
			status.Taints = nil
		}
		l.Existing(node, status)
		placements = append(placements, capacity.Placement{Class: template, Owner: "uid", Node: node})
	}
	if !l.Book("1", "uid", placements, now.Add(time.Minute), now) {
		t.Fatal("nothing is booked")
	}
	if s := l.bookedFor(naming("train", "labelled", 80)); s != nil {
		t.Errorf("%d nodes were tried, up to %s", mostTried+1, s.node.name)
	}
}
