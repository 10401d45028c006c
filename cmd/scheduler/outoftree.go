package main

import (
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"sigs.k8s.io/scheduler-plugins/pkg/coscheduling"
)

// outOfTree returns the plugins of other projects that are compiled in. To use more, add them here: profiles may name them then, and those
// that filter are asked before anything is bought.
func outOfTree() frameworkruntime.Registry {
	return frameworkruntime.Registry{
		coscheduling.Name: coscheduling.New,
	}
}
