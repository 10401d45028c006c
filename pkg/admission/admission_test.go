package admission

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install" // the API server's defaults
	"k8s.io/kubernetes/plugin/pkg/admission/limitranger"
)

// list returns a resource list from alternating names and amounts.
func list(of ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(of); i += 2 {
		out[corev1.ResourceName(of[i])] = resource.MustParse(of[i+1])
	}
	return out
}

func limitRange(name string, item corev1.LimitRangeItem) *corev1.LimitRange {
	if item.Type == "" {
		item.Type = corev1.LimitTypeContainer
	}
	return &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{item}}}
}

// The results are the same as those of the API server's own code for the same pod.
func TestRequestsAsTheAPIServerMakesThem(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	container := func(requests, limits corev1.ResourceList) corev1.Container {
		return corev1.Container{Name: "c", Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}
	}
	for _, tc := range []struct {
		name   string
		spec   corev1.PodSpec
		ranges []*corev1.LimitRange
		want   corev1.ResourceList
	}{
		{name: "nothing is said", spec: corev1.PodSpec{Containers: []corev1.Container{{}}}, want: list()},
		{name: "requests follow limits", spec: corev1.PodSpec{Containers: []corev1.Container{container(list("cpu", "1"), list("cpu", "2", "memory", "1Gi"))}},
			want: list("cpu", "1", "memory", "1Gi")},
		{name: "requests by default", spec: corev1.PodSpec{Containers: []corev1.Container{{}, container(list("cpu", "100m"), nil)}},
			ranges: []*corev1.LimitRange{limitRange("a", corev1.LimitRangeItem{DefaultRequest: list("cpu", "2")})}, want: list("cpu", "2100m")},
		{name: "the default limit is the default request, too", spec: corev1.PodSpec{Containers: []corev1.Container{{}}},
			ranges: []*corev1.LimitRange{limitRange("a", corev1.LimitRangeItem{Default: list("cpu", "2")})}, want: list("cpu", "2")},
		{name: "a maximum is the default limit", spec: corev1.PodSpec{Containers: []corev1.Container{{}}},
			ranges: []*corev1.LimitRange{limitRange("a", corev1.LimitRangeItem{Max: list("cpu", "3")})}, want: list("cpu", "3")},
		{name: "a minimum is the default request", spec: corev1.PodSpec{Containers: []corev1.Container{{}}},
			ranges: []*corev1.LimitRange{limitRange("a", corev1.LimitRangeItem{Min: list("cpu", "50m"), Max: list("memory", "1Gi")})}, want: list("cpu", "50m", "memory", "1Gi")},
		{name: "bounds don't change what is said", spec: corev1.PodSpec{Containers: []corev1.Container{container(list("cpu", "5"), nil)}},
			ranges: []*corev1.LimitRange{limitRange("a", corev1.LimitRangeItem{Min: list("cpu", "50m"), Max: list("cpu", "1")})}, want: list("cpu", "5")},
		{name: "the limit that is said counts before the default request", spec: corev1.PodSpec{Containers: []corev1.Container{container(nil, list("cpu", "1"))}},
			ranges: []*corev1.LimitRange{limitRange("a", corev1.LimitRangeItem{Default: list("cpu", "3"), DefaultRequest: list("cpu", "2")})}, want: list("cpu", "1")},
		{name: "sidecars and init containers", spec: corev1.PodSpec{InitContainers: []corev1.Container{{Name: "init"}, {Name: "side", RestartPolicy: &always}}, Containers: []corev1.Container{{}}},
			ranges: []*corev1.LimitRange{limitRange("a", corev1.LimitRangeItem{DefaultRequest: list("cpu", "1")})}, want: list("cpu", "2")},
		{name: "of several the first by name", spec: corev1.PodSpec{Containers: []corev1.Container{{}}},
			ranges: []*corev1.LimitRange{limitRange("a", corev1.LimitRangeItem{DefaultRequest: list("cpu", "1")}),
				limitRange("b", corev1.LimitRangeItem{DefaultRequest: list("cpu", "2", "memory", "2Gi")})}, want: list("cpu", "1", "memory", "2Gi")},
		{name: "limits of pods and claims say nothing of containers", spec: corev1.PodSpec{Containers: []corev1.Container{{}}},
			ranges: []*corev1.LimitRange{limitRange("a", corev1.LimitRangeItem{Type: corev1.LimitTypePod, Max: list("cpu", "2")}),
				limitRange("b", corev1.LimitRangeItem{Type: corev1.LimitTypePersistentVolumeClaim, Max: list("storage", "2Gi")})}, want: list()},
		{name: "the pod's own limits", spec: corev1.PodSpec{Resources: &corev1.ResourceRequirements{Limits: list("cpu", "3", "memory", "1Gi")},
			Containers: []corev1.Container{container(list("cpu", "1"), nil)}}, want: list("cpu", "1", "memory", "1Gi")},
		{name: "and huge pages", spec: corev1.PodSpec{Resources: &corev1.ResourceRequirements{Requests: list("cpu", "3", "memory", "1Gi")},
			Containers: []corev1.Container{container(nil, list("hugepages-2Mi", "4Mi", "cpu", "4", "memory", "2Gi"))}}, want: list("cpu", "3", "memory", "1Gi", "hugepages-2Mi", "4Mi")},
		{name: "a node's network", spec: corev1.PodSpec{HostNetwork: true, Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{ContainerPort: 80}, {ContainerPort: 81, HostPort: 82}}}}}, want: list()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, r := range tc.ranges {
				legacyscheme.Scheme.Default(r)
			}
			pod := &corev1.Pod{Spec: tc.spec}
			theirs := apiServers(t, pod.DeepCopy(), tc.ranges)
			Default(pod)
			LimitDefaults(pod, tc.ranges)
			got := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
			if !equality.Semantic.DeepEqual(tc.want, got) {
				t.Errorf("requests (-want +got):\n%s", cmp.Diff(tc.want, got))
			}
			for i, c := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
				want := [][]corev1.Container{theirs.Spec.InitContainers, theirs.Spec.Containers}[i]
				for j := range c {
					if !equality.Semantic.DeepEqual(want[j].Resources.Requests, c[j].Resources.Requests) || !equality.Semantic.DeepEqual(want[j].Resources.Limits, c[j].Resources.Limits) {
						t.Errorf("container %s: %v, the API server makes it %v", c[j].Name, c[j].Resources, want[j].Resources)
					}
					for k := range c[j].Ports {
						if c[j].Ports[k].HostPort != want[j].Ports[k].HostPort {
							t.Errorf("host port %d, the API server makes it %d", c[j].Ports[k].HostPort, want[j].Ports[k].HostPort)
						}
					}
				}
			}
			if !equality.Semantic.DeepEqual(theirs.Spec.Resources, pod.Spec.Resources) {
				t.Errorf("the pod's own: %v, the API server makes it %v", pod.Spec.Resources, theirs.Spec.Resources)
			}
		})
	}
}

// apiServers returns the pod after the API server's defaults and its LimitRanger.
func apiServers(t *testing.T, pod *corev1.Pod, ranges []*corev1.LimitRange) *corev1.Pod {
	t.Helper()
	legacyscheme.Scheme.Default(pod)
	var internal core.Pod
	if err := legacyscheme.Scheme.Convert(pod, &internal, nil); err != nil {
		t.Fatal(err)
	}
	for _, r := range ranges {
		if err := limitranger.PodMutateLimitFunc(r, &internal); err != nil {
			t.Fatal(err)
		}
	}
	out := &corev1.Pod{}
	if err := legacyscheme.Scheme.Convert(&internal, out, nil); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestPriority(t *testing.T) {
	never, said := corev1.PreemptNever, int32(3)
	usual := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "usual"}, Value: 7, GlobalDefault: true}
	more := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "more"}, Value: 9, GlobalDefault: true}
	high := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1000, PreemptionPolicy: &never}
	if got := DefaultPriorityClass([]*schedulingv1.PriorityClass{high, more, usual}); got != usual {
		t.Errorf("the default class is %v, want the lower of two", got)
	}
	for name, tc := range map[string]struct {
		has    *int32
		class  *schedulingv1.PriorityClass
		want   int32
		policy corev1.PreemptionPolicy
	}{
		"of its class":         {class: high, want: 1000, policy: never},
		"of the default class": {class: usual, want: 7, policy: corev1.PreemptLowerPriority},
		"of no class":          {want: 0, policy: corev1.PreemptLowerPriority},
		"its own":              {has: &said, class: high, want: 3},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{Priority: tc.has}}
			SetPriority(pod, tc.class)
			if *pod.Spec.Priority != tc.want || tc.policy != "" && *pod.Spec.PreemptionPolicy != tc.policy {
				t.Errorf("priority %d and preemption %v, want %d and %s", *pod.Spec.Priority, pod.Spec.PreemptionPolicy, tc.want, tc.policy)
			}
		})
	}
}

func TestRuntimeClass(t *testing.T) {
	vm := &nodev1.RuntimeClass{Overhead: &nodev1.Overhead{PodFixed: list("cpu", "250m")},
		Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"vm": "yes"}, Tolerations: []corev1.Toleration{{Key: "vm"}, {Key: "own"}}}}
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeSelector: map[string]string{"a": "b"}, Tolerations: []corev1.Toleration{{Key: "own"}}}}
	SetRuntimeClass(pod, vm)
	want := corev1.PodSpec{Overhead: list("cpu", "250m"), NodeSelector: map[string]string{"a": "b", "vm": "yes"}, Tolerations: []corev1.Toleration{{Key: "own"}, {Key: "vm"}}}
	if diff := cmp.Diff(want, pod.Spec); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
