package load

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Bindings records when the pods of namespace default appeared and when they were bound, both as one watch shows them.
type Bindings struct {
	of func(*corev1.Pod) string

	mu     sync.Mutex
	pods   map[types.UID]*Binding // those that exist
	placed map[string]bool        // of these the bound ones, by name
	groups map[string]*group
	change chan struct{} // closed and replaced when a pod is bound
}

// Binding is when a pod was seen first, and when it was seen with a node; Bound is zero before that, and a bound one doesn't change.
type Binding struct{ Seen, Bound time.Time }

type group struct {
	seen  []*Binding // in the order in which they were seen first
	bound []*Binding // in the order in which they were bound
	lost  int        // deleted without having been bound
}

// Watch begins to record. of says to which group a pod belongs; nil: all are of the group "".
func Watch(ctx context.Context, kube kubernetes.Interface, of func(*corev1.Pod) string) (*Bindings, error) {
	if of == nil {
		of = func(*corev1.Pod) string { return "" }
	}
	b := newBindings(of)
	factory := informers.NewSharedInformerFactoryWithOptions(kube, 0, informers.WithNamespace(metav1.NamespaceDefault))
	seen, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { b.observe(o.(*corev1.Pod), time.Now()) },
		UpdateFunc: func(_, o any) { b.observe(o.(*corev1.Pod), time.Now()) },
		DeleteFunc: b.forget,
	})
	if err != nil {
		return nil, fmt.Errorf("watching pods: %w", err)
	}
	factory.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), seen.HasSynced) { // the pods that are there already have been recorded, too
		return nil, fmt.Errorf("watching pods: %w", context.Cause(ctx))
	}
	return b, nil
}

func newBindings(of func(*corev1.Pod) string) *Bindings {
	return &Bindings{of: of, pods: map[types.UID]*Binding{}, placed: map[string]bool{}, groups: map[string]*group{}, change: make(chan struct{})}
}

func (b *Bindings) group(name string) *group {
	g := b.groups[name]
	if g == nil {
		g = &group{}
		b.groups[name] = g
	}
	return g
}

func (b *Bindings) observe(pod *corev1.Pod, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, g := b.pods[pod.UID], b.group(b.of(pod))
	if p == nil {
		p = &Binding{Seen: now}
		b.pods[pod.UID] = p
		g.seen = append(g.seen, p)
	}
	if pod.Spec.NodeName == "" || !p.Bound.IsZero() {
		return
	}
	p.Bound = now
	b.placed[pod.Name] = true
	g.bound = append(g.bound, p)
	close(b.change)
	b.change = make(chan struct{})
}

func (b *Bindings) forget(o any) {
	if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = unknown.Obj
	}
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	b.observe(pod, time.Now()) // its last state may be news
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pods[pod.UID].Bound.IsZero() {
		b.group(b.of(pod)).lost++
	}
	delete(b.pods, pod.UID)
	delete(b.placed, pod.Name)
}

// Unplaced reports whether a pod was not seen with a node; perhaps it was not seen at all yet.
func (b *Bindings) Unplaced(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.placed[name]
}

// Count returns how many pods of a group were seen, how many were bound, and how many were deleted without having been bound.
func (b *Bindings) Count(name string) (seen, bound, lost int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.group(name)
	return len(g.seen), len(g.bound), g.lost
}

// Between returns all pods of a group that were seen first in that time, in that order. Bound is zero for those that wait and for those that were
// deleted without having been bound: leaving them out would leave out the slowest.
func (b *Bindings) Between(name string, from, to time.Time) (out []Binding) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, one := range b.group(name).seen {
		if !one.Seen.Before(from) && one.Seen.Before(to) {
			out = append(out, *one)
		}
	}
	return out
}

// Until waits until n pods of a group have been bound, and returns when the last one was. failed returns an error if a process has ended.
func (b *Bindings) Until(ctx context.Context, name string, n int, failed func() error) (time.Time, error) {
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for {
		b.mu.Lock()
		bound, change := b.group(name).bound, b.change
		b.mu.Unlock()
		if len(bound) >= n {
			return bound[n-1].Bound, nil
		}
		select {
		case <-change:
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("%d of %d pods are bound: %w", len(bound), n, context.Cause(ctx))
		case <-look.C:
			if err := failed(); err != nil {
				return time.Time{}, err
			}
		}
	}
}
