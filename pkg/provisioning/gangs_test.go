package provisioning

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

// Pods of one class may belong to different gangs, or to none.
func TestDemandIsTakenApartByGang(t *testing.T) {
	pods := map[types.UID]*corev1.Pod{}
	var refs []capacity.PodRef
	for uid, group := range map[types.UID]string{"a1": "a", "a2": "a", "b1": "b", "x": ""} {
		pods[uid] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "d", UID: uid, Labels: map[string]string{pending.LabelGroup: group}}}
	}
	for _, uid := range []types.UID{"a1", "x", "b1", "a2"} {
		refs = append(refs, capacity.PodRef{UID: uid})
	}
	class := &capacity.Class{Key: "c"}
	got := withGangs([]capacity.Demand{{Class: class, Pods: refs}, {Class: class, Owner: "rs", Ahead: 3}}, func(uid types.UID) *corev1.Pod { return pods[uid] },
		map[pending.Group]*Gang{{Namespace: "d", Name: "a"}: {min: 5, placed: 2}})
	want := []capacity.Demand{
		{Class: class, Pods: []capacity.PodRef{{UID: "a1"}, {UID: "a2"}}, Gang: &capacity.Gang{Key: "d/a", Missing: 3}},
		{Class: class, Pods: []capacity.PodRef{{UID: "x"}, {UID: "b1"}}},
		{Class: class, Owner: "rs", Ahead: 3},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b *capacity.Class) bool { return a == b })); diff != "" {
		t.Errorf("demand (-want +got):\n%s", diff)
	}
}

type noGangs struct{}

func (noGangs) Min(pending.Group) (int, bool) { return 0, false }

// Where no profile has Coscheduling, one pod of each group gets an event, once, and all pods are planned one by one.
func TestGroupsWithoutASchedulerAreReported(t *testing.T) {
	w := newWorld()
	m := &gangPlans{plugin: noGangs{}, reservations: w.reservations, pending: w.pending, events: w, refusals: w.refusals(), triggers: newTriggers(w.reservations),
		clock: w.clock}
	var waiting []ledger.Waiting
	for i, group := range []string{"a", "a", "b", ""} {
		pod := unscheduled(i).DeepCopy()
		pod.Labels = map[string]string{}
		if group != "" {
			pod.Labels[pending.LabelGroup] = group
		}
		w.pending.Handler().OnAdd(pod, false)
		waiting = append(waiting, ledger.Waiting{Ref: capacity.RefOf(pod)})
	}
	for range 2 {
		if gangs := m.gangsOf(t.Context(), waiting); len(gangs) > 0 {
			t.Errorf("gangs %v", gangs)
		}
	}
	const says = " GroupIgnored no profile of the scheduler has the plugin Coscheduling: pods of group "
	want := []string{unscheduled(0).Name + says + unscheduled(0).Namespace + "/a are planned and started one by one", unscheduled(2).Name + says + unscheduled(2).Namespace + "/b are planned and started one by one"}
	if diff := cmp.Diff(want, w.notes); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// A gang that could not be placed backs off, longer each time; a new member or other offerings end the back-off.
func TestGangsThatWereRefusedRest(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Unix(1_000_000, 0))
	reservations := reservations.New(clock)
	m := &gangPlans{clock: clock, reservations: reservations, triggers: newTriggers(reservations), pauses: map[pending.Group]pause{}}
	group := pending.Group{Namespace: "d", Name: "g"}
	gangs := func(members int) map[pending.Group]*Gang {
		g := &Gang{min: 3}
		for i := range members {
			uid := types.UID(rune('a' + i))
			g.waiting = append(g.waiting, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}})
			reservations.Step(func(l *ledger.Ledger, now time.Time) {
				l.Join(capacity.PodRef{UID: uid}, &capacity.Class{Key: "c"}, now)
			})
		}
		return map[pending.Group]*Gang{group: g}
	}
	tried := func(members int) bool {
		t.Helper()
		gs := gangs(members)
		m.rest(gs)
		queued := 0
		reservations.Read(func(l ledger.Reader) { queued = len(l.QueuedPods(l.Queue())) })
		if want := members * len(gs); queued != want {
			t.Errorf("%d pods queued, want %d", queued, want)
		}
		if len(gs) == 0 {
			return false
		}
		var refused capacity.Refusal
		for _, p := range gs[group].waiting {
			refused.Pods = append(refused.Pods, capacity.PodRef{UID: p.UID})
		}
		m.paused(&capacity.Plan{Refused: []capacity.Refusal{refused}}, gs)
		return true
	}
	for i, step := range []struct {
		after   time.Duration
		members int
		anew    bool
		want    bool
	}{
		{0, 2, false, true},
		{firstPause / 2, 2, false, false},
		{firstPause / 2, 2, false, true},
		{firstPause, 2, false, false},
		{0, 3, false, true}, // one more member
		{0, 3, false, false},
		{0, 3, true, true}, // other offerings
	} {
		clock.Step(step.after)
		m.triggers.gangsAnew.Store(step.anew)
		if got := tried(step.members); got != step.want {
			t.Errorf("step %d: tried %t, want %t", i, got, step.want)
		}
	}
}
