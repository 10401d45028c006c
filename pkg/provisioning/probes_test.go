package provisioning

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
)

// Sixty classes of pods that no node can hold are older than the one that a breaker of machine faults stops: it is considered, too.
func TestProbeLooksAtAllWhoWait(t *testing.T) {
	w := newWorld()
	p := &Probes{reservations: w.reservations, pending: w.pending, namespaces: w.namespaces(), heldFrom: map[guard.Key]int{}}
	refused := func(pod *corev1.Pod, why string) {
		t.Helper()
		w.pending.Handler().OnAdd(pod, false)
		c, err := w.pending.Classes.Class(pod)
		if err != nil {
			t.Fatal(err)
		}
		w.reservations.Step(func(l *ledger.Ledger, now time.Time) { l.Submit(capacity.RefOf(pod), c, now) })
		w.refusals().Refuse(t.Context(), []types.UID{pod.UID}, why, true)
	}
	for i := range 60 {
		pod := unscheduled(0)
		pod.Name, pod.UID = fmt.Sprint("huge", i), types.UID(fmt.Sprintf("a%02d", i))
		pod.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = *resource.NewQuantity(int64(10_000+i), resource.DecimalSI)
		refused(pod, "nothing is that large")
	}
	refused(unscheduled(0), "paused")
	for range 2 {
		if slices.ContainsFunc(p.heldBack(guard.MachineKey("class", "ami-bad", "")), func(x ledger.Waiting) bool { return x.Ref.UID == unscheduled(0).UID }) {
			return
		}
	}
	t.Error("the pod that the breaker holds back is never looked at")
}

// Gangs of a plan are probed together.
func TestAProbeIsOnePodOrItsGang(t *testing.T) {
	pods := map[types.UID]*corev1.Pod{}
	var waiting []ledger.Waiting
	for uid, group := range map[types.UID]string{"a1": "a", "a2": "a", "b1": "b", "x": ""} {
		pods[uid] = &corev1.Pod{}
		pods[uid].Namespace, pods[uid].UID, pods[uid].Labels = "d", uid, map[string]string{pending.LabelGroup: group}
		waiting = append(waiting, ledger.Waiting{Ref: capacity.PodRef{UID: uid}})
	}
	get := func(uid types.UID) *corev1.Pod { return pods[uid] }
	for uid, want := range map[types.UID]string{"x": "x", "a1": "a1 a2", "b1": "b1"} {
		n := &capacity.PlannedNode{ID: "n"}
		got, gang := aloneOn(&capacity.Plan{Placements: []capacity.Placement{{Node: "other", Pod: capacity.PodRef{UID: "b1"}}, {Node: "n", Pod: capacity.PodRef{UID: uid}}}}, n, waiting, get)
		var uids []string
		for _, w := range got {
			uids = append(uids, string(w.Ref.UID))
		}
		slices.Sort(uids)
		if strings.Join(uids, " ") != want || gang != (uid != "x") {
			t.Errorf("%s: %v, gang: %v; want %s", uid, uids, gang, want)
		}
	}
}
