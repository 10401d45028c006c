package provision

import (
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
)

// Extenders are the URLs of the extenders that may refuse a pod a node. They are asked when a pod is scheduled, and not when a node is
// planned for it: a pod that they refuse has a node bought in vain.
func Extenders(configured []schedulerapi.Extender) []string {
	var out []string
	for _, e := range configured {
		if e.FilterVerb != "" {
			out = append(out, e.URLPrefix)
		}
	}
	return out
}
