package provision

import (
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
)

// Extenders returns the URLs of the extenders that may reject a node for a pod. They are called when a pod is scheduled, but not when a
// node is planned for it: for a pod that they reject a node may be bought in vain.
func Extenders(configured []schedulerapi.Extender) []string {
	var out []string
	for _, e := range configured {
		if e.FilterVerb != "" {
			out = append(out, e.URLPrefix)
		}
	}
	return out
}
