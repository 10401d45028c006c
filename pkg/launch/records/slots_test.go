package records

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func slot(pod types.UID, order int) capacity.Slot {
	return capacity.Slot{Pod: capacity.PodRef{UID: pod}, Order: order}
}

func TestWhichReservationsHoldOnAnInitializedNode(t *testing.T) {
	plain := &capacity.Class{Requests: capacity.Resources{corev1.ResourceCPU: 1000}}
	zone := func(value string) *capacity.Class {
		in, err := capacity.NewRequirement("zone", capacity.In, value)
		if err != nil {
			t.Fatal(err)
		}
		c := *plain
		c.Terms = []capacity.Requirements{{"zone": in}}
		return &c
	}
	node := Node{Labels: map[string]string{"zone": "a"}, Free: capacity.Resources{corev1.ResourceCPU: 2000}}
	tainted := node
	tainted.Taints = []corev1.Taint{{Key: "cordoned", Effect: corev1.TaintEffectNoSchedule}}
	for name, c := range map[string]struct {
		slots  []capacity.Slot
		others []*capacity.Claim
		node   Node
		pods   map[types.UID]*capacity.Class
		want   []types.UID
	}{
		"in the order of the plans, as long as there is room": {[]capacity.Slot{slot("third", 9), slot("second", 5), slot("first", 2)}, nil, node,
			map[types.UID]*capacity.Class{"first": plain, "second": plain, "third": plain}, []types.UID{"first", "second"}},
		"a pod that is bound or gone takes no room": {[]capacity.Slot{slot("bound", 1), slot("first", 2), slot("second", 5)}, nil, node,
			map[types.UID]*capacity.Class{"first": plain, "second": plain}, []types.UID{"first", "second"}},
		"a pod that was planned elsewhere later": {[]capacity.Slot{slot("moved", 1), slot("first", 2)}, []*capacity.Claim{{Slots: []capacity.Slot{slot("moved", 3)}}}, node,
			map[types.UID]*capacity.Class{"moved": plain, "first": plain}, []types.UID{"first"}},
		"a pod that was planned elsewhere before": {[]capacity.Slot{slot("moved", 4)}, []*capacity.Claim{{Slots: []capacity.Slot{slot("moved", 3)}}}, node,
			map[types.UID]*capacity.Class{"moved": plain}, []types.UID{"moved"}},
		"a pod that must not go there any more": {[]capacity.Slot{slot("there", 1), slot("elsewhere", 2)}, nil, node,
			map[types.UID]*capacity.Class{"there": zone("a"), "elsewhere": zone("b")}, []types.UID{"there"}},
		"a node that takes no pods": {[]capacity.Slot{slot("first", 1)}, nil, tainted, map[types.UID]*capacity.Class{"first": plain}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			orders := OrdersOf(append(c.others, &capacity.Claim{Slots: c.slots}))
			var got []types.UID
			for _, s := range orders.Holding(c.slots, c.node, func(uid types.UID) *capacity.Class { return c.pods[uid] }) {
				got = append(got, s.Pod.UID)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("reservations that hold (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHowLongReservationsAreKept(t *testing.T) {
	now := time.Unix(1e9, 0)
	for name, c := range map[string]struct {
		claim capacity.Claim
		want  bool
	}{
		"not initialized":        {capacity.Claim{}, true},
		"just now":               {capacity.Claim{Initialized: true, InitializedAt: now.Add(-time.Second)}, true},
		"some time ago":          {capacity.Claim{Initialized: true, InitializedAt: now.Add(-KeptFor)}, false},
		"it is being ended":      {capacity.Claim{Initialized: true, InitializedAt: now, Deleting: true}, false},
		"ended before it was up": {capacity.Claim{Deleting: true}, false},
	} {
		if got := Kept(&c.claim, now); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
