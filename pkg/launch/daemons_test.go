package launch

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// The API server defaults the pods of a DaemonSet further than their template; their room must be that of the pods.
func TestDaemonRoomIsThatOfThePods(t *testing.T) {
	limits := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m"), corev1.ResourceMemory: resource.MustParse("1Gi")}
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "agent", UID: "agent"}}
	ds.Spec.Template.Spec = corev1.PodSpec{
		HostNetwork: true,
		Containers: []corev1.Container{
			{Name: "limited", Resources: corev1.ResourceRequirements{Limits: limits}, Ports: []corev1.ContainerPort{{ContainerPort: 9100}}},
			{Name: "both", Resources: corev1.ResourceRequirements{Limits: limits, Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m")}}},
		},
	}
	before := ds.DeepCopy()
	f := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	lister := f.Apps().V1().DaemonSets()
	if err := lister.Informer().GetStore().Add(ds); err != nil {
		t.Fatal(err)
	}
	class := Daemons(lister.Lister())()[0].Class
	want := capacity.Resources{corev1.ResourceCPU: 250, corev1.ResourceMemory: 2 << 30, corev1.ResourcePods: 1}
	if diff := cmp.Diff(want, class.Requests); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if len(class.HostPorts) != 1 || class.HostPorts[0].HostPort != 9100 {
		t.Errorf("host ports %v, want 9100: it is in the node's network", class.HostPorts)
	}
	if diff := cmp.Diff(before, ds); diff != "" {
		t.Errorf("the DaemonSet itself was changed:\n%s", diff)
	}
}
