package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/dovetail-scheduler/dovetail/test/chaos"
)

// picky stands for a third-party plugin that looks up what it knows about nodes in a resource of its own: it accepts every node that is
// only planned, and refuses it once it exists.
type picky struct {
	refuses func(*corev1.Pod, *corev1.Node) bool
}

var _ fwk.FilterPlugin = &picky{}

func (*picky) Name() string { return "Picky" }

func (p *picky) Filter(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, n fwk.NodeInfo) *fwk.Status {
	if p.refuses(pod, n.Node()) {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "node has no topology report")
	}
	return nil
}

// withPicky is the whole scheduler with the plugin compiled in.
func withPicky(app string, fault *chaos.Fault) chaos.Program {
	config := withPlugin(hostedConfig)
	refusal := &chaos.Refusal{Fault: fault, App: app}
	more := frameworkruntime.Registry{"Picky": func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
		return &picky{refusal.Refuses}, nil
	}}
	return func(ctx context.Context, p chaos.Process) error { return host(ctx, p, config, more) }
}
