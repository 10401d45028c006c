package pending

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// A profile may have its pods bound later than would be safe, never sooner.
func TestEarliestBinding(t *testing.T) {
	classes := NewClasses(informers.NewSharedInformerFactory(fake.NewClientset(), 0))
	classes.SetEarliest("patient", capacity.BindRegistered)
	for _, tc := range []struct {
		scheduler string
		resource  corev1.ResourceName
		want      capacity.BindTime
	}{
		{"usual", "cpu", capacity.BindEarly},
		{"patient", "cpu", capacity.BindRegistered},
		{"patient", "nvidia.com/gpu", capacity.BindInitialized},
	} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: "web", UID: types.UID(tc.scheduler + string(tc.resource)),
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "web", Controller: ptr.To(true)}},
			},
			Spec: corev1.PodSpec{SchedulerName: tc.scheduler, Tolerations: admitted(), Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{tc.resource: resource.MustParse("1")}}}}},
		}
		for range 2 { // the second time from the cache
			class, err := classes.Class(pod)
			if err != nil {
				t.Fatal(err)
			}
			if class.Bind != tc.want || (class.BindReason == "") != (tc.want == capacity.BindEarly) {
				t.Errorf("a pod of %s that asks for %s is bound at %v (%s), want %v", tc.scheduler, tc.resource, class.Bind, class.BindReason, tc.want)
			}
		}
	}
}

// Pods of different Jobs are of one class until a pod comes whose selector names a label of Jobs, even if that is bound already, and also after it
// has gone: its class must not change for that.
func TestSelectorOfAnotherPodMakesLabelsCount(t *testing.T) {
	job := func(i int, name string) *corev1.Pod {
		p := unscheduled(i)
		p.Labels = map[string]string{"job-name": name}
		return p
	}
	for name, see := range map[string]func(q queue, selecting *corev1.Pod){
		"it is bound": func(q queue, selecting *corev1.Pod) {
			selecting.Spec.NodeName = "n"
			q.Handler().OnAdd(selecting, true)
			q.Handler().OnDelete(selecting)
		},
		"its class is asked for": func(q queue, selecting *corev1.Pod) {
			if _, err := q.Classes.Class(selecting); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := newQueue(Config{})
			same := func() bool {
				a, err := q.Classes.Class(job(0, "a"))
				if err != nil {
					t.Fatal(err)
				}
				b, err := q.Classes.Class(job(1, "b"))
				if err != nil {
					t.Fatal(err)
				}
				return a.Key == b.Key
			}
			if !same() {
				t.Error("Jobs of one shape are of two classes")
			}
			selecting := unscheduled(2)
			selecting.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
				{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"job-name": "a"}}}}}}
			if see(q, selecting); same() {
				t.Error("a pod selects the pods of one Job, and both are of one class")
			}
		})
	}
}
