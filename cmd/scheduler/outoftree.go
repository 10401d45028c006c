package main

import (
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"sigs.k8s.io/scheduler-plugins/pkg/coscheduling"
)

// outOfTree returns the plugins of other projects that are compiled in. To use more, add them here: then profiles may name them, and those
// with a Filter check plans before anything is bought.
func outOfTree() frameworkruntime.Registry {
	return frameworkruntime.Registry{
		coscheduling.Name: coscheduling.New,
	}
}
