package main

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/dovetail-scheduler/dovetail/test/chaos"
)

// storming is the whole scheduler with what a history has drawn for it: a third-party plugin, a profile without ours, a queue.
func storming(ctx context.Context, p chaos.Process) error {
	config := hostedConfig
	var more frameworkruntime.Registry
	if p.Refuses != nil {
		config = withPlugin(config)
		more = frameworkruntime.Registry{"Picky": func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
			return &picky{p.Refuses.Refuses}, nil
		}}
	}
	if p.Queue {
		config = withArg(config, "interruptionQueue: dovetail")
	}
	if p.Plain {
		config += "  - schedulerName: " + chaos.PlainScheduler + "\n"
	}
	return host(ctx, p, config, more)
}

func withArg(config, arg string) string {
	return strings.Replace(config, "region: us-west-2}", "region: us-west-2, "+arg+"}", 1)
}

func withPlugin(config string) string {
	return strings.Replace(config, "{name: Binder}]}\n      preFilter", "{name: Binder}, {name: Picky}]}\n      preFilter", 1)
}
