package binder

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

const ebs = "ebs.csi.aws.com"

// withVolumes is a classifier that counts every claim as a volume of one driver.
type withVolumes struct{}

func (withVolumes) Class(pod *corev1.Pod) (*capacity.Class, error) {
	facts := capacity.VolumeInfo{Attach: map[string]int64{}}
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			facts.Attach[ebs]++
		}
	}
	return capacity.ClassOf(pod, facts)
}

func volumes(n int) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for range n {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}})
		}
	}
}

func TestFilterKeepsAttachments(t *testing.T) {
	kept := answer{"Unschedulable", "attachments of " + ebs + " are reserved for pods planned for the node"}
	for _, tc := range []struct {
		name    string
		planned *corev1.Pod
		limits  map[string]int64
		pod     *corev1.Pod
		used    []*corev1.Pod
		want    answer
	}{
		{name: "a stranger can't take planned attachments", planned: pod("db", nothing, volumes(3)), limits: map[string]int64{ebs: 4},
			pod: pod("stranger", nothing, volumes(2)), want: kept},
		{name: "bound pods' volumes count, too", planned: pod("db", nothing, volumes(2)), limits: map[string]int64{ebs: 4},
			used: []*corev1.Pod{pod("bound", nothing, volumes(1))}, pod: pod("stranger", nothing, volumes(2)), want: kept},
		{name: "it may have what is left", planned: pod("db", nothing, volumes(2)), limits: map[string]int64{ebs: 4},
			used: []*corev1.Pod{pod("bound", nothing, volumes(1))}, pod: pod("stranger", nothing, volumes(1)), want: success},
		{name: "a driver without a limit has room for all", planned: pod("db", nothing, volumes(3)), limits: map[string]int64{"other": 1},
			pod: pod("stranger", nothing, volumes(20)), want: success},
		{name: "a pod without volumes takes none", planned: pod("db", nothing, volumes(4)), limits: map[string]int64{ebs: 4},
			pod: pod("stranger", nothing), want: success},
		{name: "a higher priority may take them", planned: pod("db", nothing, volumes(4)), limits: map[string]int64{ebs: 4},
			pod: pod("stranger", nothing, volumes(1), priority(10)), want: success},
		{name: "who they are for has them", planned: pod("db", nothing, volumes(4)), limits: map[string]int64{ebs: 4},
			pod: pod("db", nothing, volumes(4)), want: success},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.class = withVolumes{}
			class, err := w.class.Class(tc.planned)
			if err != nil {
				t.Fatal(err)
			}
			w.reservations.Submit(refOf(tc.planned), class)
			w.reservations.Step(func(l *ledger.Ledger, now time.Time) {
				l.Existing("node", ledger.NodeStatus{Drivers: []string{ebs}, VolumeLimits: tc.limits})
				l.Commit("p", []capacity.Placement{{Class: class, Pod: refOf(tc.planned), Node: "node"}}, now)
			})
			state := framework.NewCycleState()
			if _, status := w.PreFilter(t.Context(), state, tc.pod, nil); !status.IsSuccess() {
				t.Fatal(status)
			}
			got := answerOf(w.Filter(t.Context(), state, tc.pod, nodeInfo("node", tc.used...)))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}
