package check

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/kubernetes/pkg/scheduler"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/profile"
)

// filters are those of upstream's default profile, built by upstream's own constructor. Each call of refusal brings its own snapshot.
type filters struct {
	framework framework.Framework
	snapshot  *internalcache.Snapshot
	stop      context.CancelFunc
}

// newFilters builds filters that know the given objects about volumes, which must not change.
func newFilters(ctx context.Context, volumes ...runtime.Object) (*filters, error) {
	ctx, stop := context.WithCancel(ctx)
	client := fake.NewClientset(volumes...)
	factory := informers.NewSharedInformerFactory(client, 0)
	s, err := scheduler.New(ctx, client, factory, nil, profile.NewRecorderFactory(events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})))
	if err != nil {
		stop()
		return nil, fmt.Errorf("building fresh filters: %w", err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	f := &filters{framework: s.Profiles[corev1.DefaultSchedulerName], stop: stop}
	var ok bool
	if f.snapshot, ok = f.framework.SnapshotSharedLister().(*internalcache.Snapshot); !ok {
		stop()
		return nil, fmt.Errorf("building fresh filters: the framework's snapshot is a %T", f.framework.SnapshotSharedLister())
	}
	return f, nil
}

// refusal returns why the pod may not be placed on the node, given all nodes and bound pods; empty if it may.
func (f *filters) refusal(ctx context.Context, p *corev1.Pod, to string, nodes map[string]*corev1.Node, bound []*corev1.Pod) string {
	list := make([]*corev1.Node, 0, len(nodes))
	for _, n := range nodes {
		list = append(list, n)
	}
	on := make([]*corev1.Pod, 0, len(bound))
	for _, b := range bound {
		if nodes[b.Spec.NodeName] != nil { // a snapshot would otherwise create a node with just the name
			on = append(on, b)
		}
	}
	*f.snapshot = *internalcache.NewSnapshot(on, list)
	info, err := f.snapshot.Get(to)
	if err != nil {
		return "there is no such node"
	}
	free := p.DeepCopy()
	free.Spec.NodeName = ""
	state := framework.NewCycleState()
	result, status, _ := f.framework.RunPreFilterPlugins(ctx, state, free)
	if !status.IsSuccess() {
		return status.Message()
	}
	if !result.AllNodes() && !result.NodeNames.Has(to) {
		return "it must go to another node"
	}
	if status := f.framework.RunFilterPlugins(ctx, state, free, info); !status.IsSuccess() {
		return fmt.Sprintf("%s: %s", status.Plugin(), status.Message())
	}
	return ""
}
