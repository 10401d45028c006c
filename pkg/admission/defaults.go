package admission

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// Default applies the API server's defaults that exist for pods but not for pod templates (k8s.io/kubernetes pkg/apis/core/v1,
// SetDefaults_Pod): requests follow limits, and ports of pods in the host network are host ports. It must run before the rest.
func Default(pod *corev1.Pod) {
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			r := &containers[i].Resources
			fill(&r.Requests, r.Limits)
		}
		if pod.Spec.HostNetwork {
			defaultHostPorts(containers)
		}
	}
	defaultPodLevel(pod)
}

// defaultPodLevel fills in pod-level requests: the sum of the containers' requests, or else the pod-level limits.
func defaultPodLevel(pod *corev1.Pod) {
	own := pod.Spec.Resources
	if own == nil || len(own.Limits)+len(own.Requests) == 0 {
		return
	}
	for name, q := range resourcehelper.AggregateContainerLimits(pod, resourcehelper.PodResourcesOptions{}) {
		if _, asked := own.Requests[name]; !asked && hugePages(name) && resourcehelper.IsSupportedPodLevelResource(name) {
			fill(&own.Limits, corev1.ResourceList{name: q})
		}
	}
	if len(own.Limits) == 0 {
		return
	}
	for name, q := range resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{}) {
		if !hugePages(name) && resourcehelper.IsSupportedPodLevelResource(name) {
			fill(&own.Requests, corev1.ResourceList{name: q})
		}
	}
	for name, q := range own.Limits {
		if resourcehelper.IsSupportedPodLevelResource(name) {
			fill(&own.Requests, corev1.ResourceList{name: q})
		}
	}
}

func hugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

func defaultHostPorts(containers []corev1.Container) {
	for i := range containers {
		for j := range containers[i].Ports {
			if p := &containers[i].Ports[j]; p.HostPort == 0 {
				p.HostPort = p.ContainerPort
			}
		}
	}
}

// fill adds the entries that are missing.
func fill(to *corev1.ResourceList, from corev1.ResourceList) {
	for name, q := range from {
		if _, ok := (*to)[name]; ok {
			continue
		}
		if *to == nil {
			*to = corev1.ResourceList{}
		}
		(*to)[name] = q.DeepCopy()
	}
}
