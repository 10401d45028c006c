package check

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-scheduler/dovetail/test/record"
)

// A pod of each of two nodes is deleted while the first is repaired.
func TestWhatIsWrongWithRepairs(t *testing.T) {
	for name, tc := range map[string]struct {
		job     batchv1.JobConditionType
		evicted bool
		wrong   bool
	}{
		"deleted on a healthy node":                         {wrong: true},
		"evicted on a healthy node":                         {evicted: true, wrong: true},
		"deleted by the Job controller, its Job has failed": {job: batchv1.JobFailed},
		"deleted by the Job controller, its Job will fail":  {job: batchv1.JobFailureTarget},
		"deleted, its Job is complete":                      {job: batchv1.JobComplete, wrong: true},
		"evicted, its Job has failed":                       {job: batchv1.JobFailed, evicted: true, wrong: true},
	} {
		t.Run(name, func(t *testing.T) {
			node := func(name string) *corev1.Node {
				return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: "instance-of-" + name}}
			}
			yes := true
			pod := func(name string) *corev1.Pod {
				return &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), OwnerReferences: []metav1.OwnerReference{{Kind: "Job", UID: "job", Controller: &yes}}},
					Spec:       corev1.PodSpec{NodeName: "node-of-" + name},
				}
			}
			gone := func(name string, evicted bool) *corev1.Pod {
				p := pod(name)
				p.DeletionTimestamp = &metav1.Time{}
				if evicted {
					p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI"}}
				}
				return p
			}
			job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "job", UID: "job"}}
			if tc.job != "" {
				job.Status.Conditions = []batchv1.JobCondition{{Type: tc.job, Status: corev1.ConditionTrue}}
			}
			p := &Repair{Since: 4, ProviderID: "instance-of-node-of-a", Launched: 1}
			for i, o := range []client.Object{node("node-of-a"), node("node-of-b"), pod("a"), pod("b"), gone("a", true), gone("b", tc.evicted), job} {
				p.Events = append(p.Events, record.Event{Revision: uint64(i + 1), Type: watch.Modified, Object: o})
			}
			r := &Report{}
			p.judge(r)
			want := 0
			if tc.wrong {
				want = 1
			}
			if len(r.Disrupted) != want || want == 1 && !strings.Contains(r.Disrupted[0], "pod b of node node-of-b was evicted") {
				t.Errorf("found %q", r.Disrupted)
			}
		})
	}
}
