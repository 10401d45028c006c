package daemons

import (
	"cmp"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	listersv1 "k8s.io/client-go/listers/core/v1"
	nodelisters "k8s.io/client-go/listers/node/v1"
	schedulinglisters "k8s.io/client-go/listers/scheduling/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/admission"
)

// admissionRules are the objects that the API server's admission plugins read.
type admissionRules struct {
	ranges     listersv1.LimitRangeLister
	runtimes   nodelisters.RuntimeClassLister
	priorities schedulinglisters.PriorityClassLister
}

func newAdmissionRules(f informers.SharedInformerFactory) admissionRules {
	return admissionRules{f.Core().V1().LimitRanges().Lister(), f.Node().V1().RuntimeClasses().Lister(), f.Scheduling().V1().PriorityClasses().Lister()}
}

// admit changes a DaemonSet's pod as admission will. A missing RuntimeClass or PriorityClass changes nothing: admission rejects pods that
// name it until it exists.
func (r *admissionRules) admit(pod *corev1.Pod) {
	if name := pod.Spec.PriorityClassName; name != "" {
		class, _ := r.priorities.Get(name)
		admission.SetPriority(pod, class)
	} else if all, err := r.priorities.List(labels.Everything()); err == nil { // a lister on an informer's store doesn't fail
		admission.SetPriority(pod, admission.DefaultPriorityClass(all))
	}
	if name := pod.Spec.RuntimeClassName; name != nil {
		if class, err := r.runtimes.Get(*name); err == nil {
			// The DaemonSet controller chooses nodes by the template's tolerations, which don't include those of the RuntimeClass.
			own := slices.Clip(pod.Spec.Tolerations)
			admission.SetRuntimeClass(pod, class)
			pod.Spec.Tolerations = own
		}
	}
	if all, err := r.ranges.LimitRanges(pod.Namespace).List(labels.Everything()); err == nil {
		admission.LimitDefaults(pod, all)
	}
}

// daemonPod returns the pod as the DaemonSet controller creates it and the API server defaults it, without a node
// (AddOrUpdateDaemonPodTolerations in k8s.io/kubernetes/pkg/controller/daemon/util lists the tolerations).
func daemonPod(ds *appsv1.DaemonSet) *corev1.Pod {
	t := ds.Spec.Template.DeepCopy()
	pod := &corev1.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec}
	pod.Namespace, pod.Name, pod.UID = ds.Namespace, ds.Name, ds.UID
	yes := true
	pod.OwnerReferences = append(pod.OwnerReferences[:0:0], ownerRef(ds, &yes))
	for key, effect := range map[string]corev1.TaintEffect{
		corev1.TaintNodeNotReady: corev1.TaintEffectNoExecute, corev1.TaintNodeUnreachable: corev1.TaintEffectNoExecute,
		corev1.TaintNodeDiskPressure: corev1.TaintEffectNoSchedule, corev1.TaintNodeMemoryPressure: corev1.TaintEffectNoSchedule,
		corev1.TaintNodePIDPressure: corev1.TaintEffectNoSchedule, corev1.TaintNodeUnschedulable: corev1.TaintEffectNoSchedule,
	} {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect})
	}
	slices.SortFunc(pod.Spec.Tolerations, func(a, b corev1.Toleration) int { return cmp.Compare(a.Key, b.Key) })
	admission.Default(pod)
	if pod.Spec.HostNetwork {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: corev1.TaintNodeNetworkUnavailable,
			Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
	}
	return pod
}

// asAdmitted returns a DaemonSet's template pod with the requests and the priority of a live pod, which has been through admission and
// perhaps been resized. Where the next pods run follows from the template, since a live pod's affinity names its own node. The containers
// are shared with the live pod.
func asAdmitted(template, live *corev1.Pod) *corev1.Pod {
	out := *template
	out.Spec.InitContainers, out.Spec.Containers = live.Spec.InitContainers, live.Spec.Containers
	out.Spec.Overhead, out.Spec.Resources = live.Spec.Overhead, live.Spec.Resources
	out.Spec.Priority, out.Spec.PriorityClassName, out.Spec.PreemptionPolicy = live.Spec.Priority, live.Spec.PriorityClassName, live.Spec.PreemptionPolicy
	// A resized pod reports its resources in its status (k8s.io/component-helpers/resource, UseStatusResources).
	s := &live.Status
	out.Status = corev1.PodStatus{Conditions: s.Conditions, InitContainerStatuses: s.InitContainerStatuses, ContainerStatuses: s.ContainerStatuses,
		Resources: s.Resources, AllocatedResources: s.AllocatedResources}
	return &out
}

func ownerRef(ds *appsv1.DaemonSet, controller *bool) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "apps/v1", Kind: "DaemonSet", Name: ds.Name, UID: ds.UID, Controller: controller}
}
