package admission

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// LimitDefaults gives containers the requests and limits that they don't set themselves, from the LimitRanges of the pod's namespace
// as the API server returns them: with missing values of min, max and default already filled in from each other (k8s.io/kubernetes
// plugin/pkg/admission/limitranger). If there are several LimitRanges, the API server's order is random; here they are sorted by name.
func LimitDefaults(pod *corev1.Pod, ranges []*corev1.LimitRange) {
	byName := slices.SortedFunc(slices.Values(ranges), func(a, b *corev1.LimitRange) int { return strings.Compare(a.Name, b.Name) })
	for _, r := range byName {
		for i := range r.Spec.Limits {
			item := &r.Spec.Limits[i]
			if item.Type != corev1.LimitTypeContainer {
				continue
			}
			for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
				for j := range containers {
					fill(&containers[j].Resources.Limits, item.Default)
					fill(&containers[j].Resources.Requests, item.DefaultRequest)
				}
			}
		}
	}
}
