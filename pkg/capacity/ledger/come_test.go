package ledger

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Two controllers with identical pods, such as two ReplicaSets without Deployments, share a class. A reservation that a plan makes for
// the next pod of one of them is for that pod if it is created while the plan is made, and not for the other's.
func TestPodsThatComeWhileAPlanIsMadeAreKnownByTheirOwnOwners(t *testing.T) {
	of := func(owner types.UID) *capacity.Class {
		c := testClass("same", 100, 0)
		c.Pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: owner, Controller: new(true)}}}}
		return c
	}
	for name, come := range map[string]func(l *Ledger, ref capacity.PodRef, c *capacity.Class){
		"found no node":          func(l *Ledger, ref capacity.PodRef, c *capacity.Class) { l.Submit(ref, c, epoch) },
		"is a member of a group": func(l *Ledger, ref capacity.PodRef, c *capacity.Class) { l.Join(ref, c, epoch) },
	} {
		t.Run(name, func(t *testing.T) {
			l := New()
			l.Submit(capacity.PodRef{UID: "a0"}, of("A"), epoch)
			l.Submit(capacity.PodRef{UID: "b0"}, of("B"), epoch)
			come(l, capacity.PodRef{UID: "a1"}, of("A"))
			come(l, capacity.PodRef{UID: "b1"}, of("B"))
			l.AddNode("claim", &capacity.Node{}, nil, false, epoch)
			l.Commit("1", []capacity.Placement{
				{Class: of("A"), Pod: capacity.PodRef{UID: "a0"}, Node: "claim"},
				{Class: of("B"), Pod: capacity.PodRef{UID: "b0"}, Node: "claim"},
				{Class: of("B"), Owner: "B", Node: "claim"},
			}, epoch)
			for uid, want := range map[types.UID]State{"b1": Planned, "a1": Queued} {
				if got := l.pods[uid].state; got != want {
					t.Errorf("%s is %s, want %s", uid, got, want)
				}
			}
			if err := check(l); err != nil {
				t.Error(err)
			}
		})
	}
}

// A gang's pod may have had its cycle, which ended for want of its siblings, before capacity was reserved for it as one of its owner's next
// pods. It takes that capacity when its gang is gathered.
func TestMembersTakeWhatIsReservedForTheirOwner(t *testing.T) {
	c := testClass("same", 100, 0)
	c.Pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: "A", Controller: new(true)}}}}
	l := New()
	l.Submit(capacity.PodRef{UID: "a0"}, c, epoch)
	l.AddNode("claim", &capacity.Node{}, nil, false, epoch)
	l.Commit("1", []capacity.Placement{{Class: c, Pod: capacity.PodRef{UID: "a0"}, Node: "claim"}, {Class: c, Owner: "A", Node: "claim"}}, epoch)
	if got := l.Join(capacity.PodRef{UID: "a1"}, c, epoch); got != Planned {
		t.Errorf("a1, for which capacity is reserved, is %s", got)
	}
	if got := l.Join(capacity.PodRef{UID: "a2"}, c, epoch); got != Queued {
		t.Errorf("a2, for which nothing is reserved, is %s", got)
	}
	if err := check(l); err != nil {
		t.Error(err)
	}
}
