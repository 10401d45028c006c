package main

import (
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"sigs.k8s.io/scheduler-plugins/pkg/coscheduling"
)

// outOfTree are the plugins of others that are compiled in. Whoever needs more adds them here: profiles may name them then, and what
// filters there is asked before anything is bought.
func outOfTree() frameworkruntime.Registry {
	return frameworkruntime.Registry{
		coscheduling.Name: coscheduling.New,
	}
}
