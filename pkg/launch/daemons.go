package launch

import (
	"cmp"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	appslisters "k8s.io/client-go/listers/apps/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Daemons gives the DaemonSets as the planner wants them, worked out anew only for those that changed. It may be called from
// several goroutines.
func Daemons(lister appslisters.DaemonSetLister) func() []*capacity.DaemonSet {
	type entry struct {
		template corev1.PodTemplateSpec
		daemon   *capacity.DaemonSet
	}
	var mu sync.Mutex
	known := map[types.UID]entry{}
	return func() []*capacity.DaemonSet {
		mu.Lock()
		defer mu.Unlock()
		sets, err := lister.List(labels.Everything())
		if err != nil { // a lister on an informer's store doesn't fail
			return nil
		}
		fresh := make(map[types.UID]entry, len(sets))
		var out []*capacity.DaemonSet
		for _, ds := range sets {
			if ds.DeletionTimestamp != nil {
				continue
			}
			e, ok := known[ds.UID]
			if !ok || !equality.Semantic.DeepEqual(e.template, ds.Spec.Template) {
				class, err := capacity.ClassOf(daemonPod(ds), capacity.VolumeFacts{})
				if err != nil {
					continue // its pods can't be planned for; they find their own place
				}
				e = entry{template: ds.Spec.Template, daemon: &capacity.DaemonSet{Namespace: ds.Namespace, Name: ds.Name, Class: class}}
			}
			fresh[ds.UID] = e
			out = append(out, e.daemon)
		}
		known = fresh
		slices.SortFunc(out, func(a, b *capacity.DaemonSet) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
		})
		return out
	}
}

// daemonPod is the pod as the DaemonSet controller makes it, without a node (k8s.io/kubernetes
// pkg/controller/daemon/util, AddOrUpdateDaemonPodTolerations lists the tolerations).
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
	defaultRequests(pod.Spec.InitContainers)
	defaultRequests(pod.Spec.Containers)
	if pod.Spec.HostNetwork {
		defaultHostPorts(pod.Spec.InitContainers)
		defaultHostPorts(pod.Spec.Containers)
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: corev1.TaintNodeNetworkUnavailable,
			Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
	}
	return pod
}

// defaultRequests lets requests follow limits, which the API server does to pods but not to templates.
func defaultRequests(containers []corev1.Container) {
	for i := range containers {
		r := &containers[i].Resources
		for name, q := range r.Limits {
			if _, ok := r.Requests[name]; ok {
				continue
			}
			if r.Requests == nil {
				r.Requests = corev1.ResourceList{}
			}
			r.Requests[name] = q
		}
	}
}

// defaultHostPorts does what the API server does to pods in their node's network: their ports are the node's.
func defaultHostPorts(containers []corev1.Container) {
	for i := range containers {
		for j := range containers[i].Ports {
			if p := &containers[i].Ports[j]; p.HostPort == 0 {
				p.HostPort = p.ContainerPort
			}
		}
	}
}

func ownerRef(ds *appsv1.DaemonSet, controller *bool) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "apps/v1", Kind: "DaemonSet", Name: ds.Name, UID: ds.UID, Controller: controller}
}
