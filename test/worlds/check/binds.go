package check

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/record"
)

// slack is how much earlier than its write a bind may have been decided. Decisions are made one after the other but written in
// parallel, so the writes may have another order, and the scheduler may not have seen the writes of the last moments.
const slack = 5 * time.Second

// replay is the cluster as it was after each write.
type replay struct {
	nodes map[string]*corev1.Node
	bound map[types.UID]*corev1.Pod
	// past are the nodes as they were within slack, oldest first, each valid until its at. A map is never changed once it is in here.
	past []view
	// late are binds that fresh filters refused; binds that were decided before them may not have been written yet.
	late []bind
	// volumes are all objects about volumes that the filters need, by kind and name. filters were built with the volumes as they were
	// at the last pod that has any.
	volumes map[string]runtime.Object
	changed bool
	filters *filters
}

type view struct {
	at    time.Time
	nodes map[string]*corev1.Node
}

type bind struct {
	pod    *corev1.Pod
	at     time.Time
	reason string
	views  []view
}

// judgeBinds checks every bind with fresh filters, against the cluster at the time of the bind.
func (h *history) judgeBinds(ctx context.Context, r *Report) error {
	p, err := newReplay(ctx)
	if err != nil {
		return err
	}
	defer func() { p.filters.stop() }()
	for _, e := range h.events {
		if err := p.take(ctx, r, e); err != nil {
			return err
		}
	}
	p.giveUp(r, time.Time{})
	return nil
}

func newReplay(ctx context.Context) (*replay, error) {
	f, err := newFilters(ctx)
	if err != nil {
		return nil, err
	}
	return &replay{nodes: map[string]*corev1.Node{}, bound: map[types.UID]*corev1.Pod{}, volumes: map[string]runtime.Object{}, filters: f}, nil
}

// take applies a write to the cluster.
func (p *replay) take(ctx context.Context, r *Report, e record.Event) error {
	p.giveUp(r, e.At.Add(-slack))
	for len(p.past) > 0 && p.past[0].at.Before(e.At.Add(-slack)) {
		p.past = p.past[1:]
	}
	switch o := e.Object.(type) {
	case *corev1.Node:
		p.past = append(p.past, view{at: e.At, nodes: p.nodes})
		p.nodes = maps.Clone(p.nodes)
		if p.nodes[o.Name] = seen(o); e.Type == watch.Deleted {
			delete(p.nodes, o.Name)
		}
	case *corev1.Pod:
		return p.takePod(ctx, r, e, o)
	case *corev1.PersistentVolume, *corev1.PersistentVolumeClaim, *storagev1.CSINode, *storagev1.StorageClass:
		key := fmt.Sprintf("%T %s/%s", o, e.Object.GetNamespace(), e.Object.GetName())
		if p.volumes[key] = e.Object; e.Type == watch.Deleted {
			delete(p.volumes, key)
		}
		p.changed = true
	}
	return nil
}

func (p *replay) takePod(ctx context.Context, r *Report, e record.Event, o *corev1.Pod) error {
	before, was := p.bound[o.UID]
	switch {
	case e.Type == watch.Deleted || over(o):
		delete(p.bound, o.UID)
		p.late = slices.DeleteFunc(p.late, func(b bind) bool { return b.pod.UID == o.UID })
		if o.Status.Phase == corev1.PodFailed && strings.HasPrefix(o.Status.Message, "Pod was rejected") && was {
			r.Wrong = append(r.Wrong, fmt.Sprintf("%s/%s on %s: its kubelet rejected it: %s", o.Namespace, o.Name, o.Spec.NodeName, o.Status.Message))
		}
		return nil
	case o.Spec.NodeName == "" || slices.ContainsFunc(p.late, func(b bind) bool { return b.pod.UID == o.UID }):
		return nil
	case was && before.Spec.NodeName == o.Spec.NodeName:
		p.bound[o.UID] = o
		return nil
	}
	r.Binds++
	if err := p.refresh(ctx, o); err != nil {
		return err
	}
	b := bind{pod: o, at: e.At, views: append([]view{{at: e.At, nodes: p.nodes}}, slices.Collect(backward(p.past))...)}
	if b.reason = p.refusal(ctx, b); b.reason != "" {
		p.late = append(p.late, b)
		return nil
	}
	p.bound[o.UID] = o
	// A bind that was refused before may have been decided after this one.
	for again := true; again; {
		again = false
		for i, b := range p.late {
			if p.refusal(ctx, b) == "" {
				r.Late++
				p.bound[b.pod.UID] = b.pod
				p.late = slices.Delete(p.late, i, i+1)
				again = true
				break
			}
		}
	}
	return nil
}

// refusal is empty if the filters accept the bind, with the nodes of any moment since it may have been decided, beside the pods that
// are bound now.
func (p *replay) refusal(ctx context.Context, b bind) string {
	first := ""
	for _, v := range b.views {
		why := p.filters.refusal(ctx, b.pod, b.pod.Spec.NodeName, v.nodes, slices.Collect(maps.Values(p.bound)))
		if why == "" {
			return ""
		}
		if first == "" {
			first = why
		}
	}
	return first
}

// giveUp reports the late binds before a moment as wrong; the zero moment means all of them.
func (p *replay) giveUp(r *Report, before time.Time) {
	for len(p.late) > 0 && (before.IsZero() || p.late[0].at.Before(before)) {
		b := p.late[0]
		p.late = p.late[1:]
		p.bound[b.pod.UID] = b.pod
		r.Wrong = append(r.Wrong, fmt.Sprintf("%s/%s on %s: %s", b.pod.Namespace, b.pod.Name, b.pod.Spec.NodeName, b.reason))
	}
}

// refresh rebuilds the filters if the pod has volumes and an object about volumes has changed.
func (p *replay) refresh(ctx context.Context, o *corev1.Pod) error {
	if !p.changed || !slices.ContainsFunc(o.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil }) {
		return nil
	}
	f, err := newFilters(ctx, slices.Collect(maps.Values(p.volumes))...)
	if err != nil {
		return err
	}
	p.filters.stop()
	p.filters, p.changed = f, false
	return nil
}

// seen returns a Node as a scheduler that binds to booting nodes must see it: while it is initializing, without the taints that are
// removed by themselves, and without a taint about its readiness that its Ready condition contradicts. The node lifecycle controller taints
// a Node unreachable before its kubelet was there; a kubelet that was there and isn't heard from any more is unreachable indeed.
func seen(n *corev1.Node) *corev1.Node {
	if n.Labels[karpv1.NodePoolLabelKey] == "" {
		return n
	}
	young := n.Labels[karpv1.NodeInitializedLabelKey] != "true"
	var ready corev1.NodeCondition
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			ready = c
		}
	}
	isReady := ready.Status == corev1.ConditionTrue
	awaited := young && (n.Status.NodeInfo.KubeletVersion == "" || ready.Status == corev1.ConditionFalse)
	out := n.DeepCopy()
	out.Spec.Taints = slices.DeleteFunc(out.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == corev1.TaintNodeNotReady && (young || isReady) ||
			t.Key == corev1.TaintNodeUnreachable && t.Effect == corev1.TaintEffectNoSchedule && (awaited || isReady) ||
			young && (t.Key == karpv1.UnregisteredTaintKey || t.Key == "node.cloudprovider.kubernetes.io/uninitialized")
	})
	return out
}

func backward(views []view) func(func(view) bool) {
	return func(yield func(view) bool) {
		for _, v := range slices.Backward(views) {
			if !yield(v) {
				return
			}
		}
	}
}
