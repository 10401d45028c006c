package main

import (
	"bytes"
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
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/sandbox"
)

// bindings records when pods were bound.
type bindings struct {
	want int
	done chan struct{} // closed when all of them are

	mu    sync.Mutex
	bound map[types.UID]bool
	last  time.Time
}

// watch begins to record the bindings of so many pods.
func watch(ctx context.Context, kube kubernetes.Interface, want int) (*bindings, error) {
	b := &bindings{want: want, done: make(chan struct{}), bound: map[types.UID]bool{}}
	factory := informers.NewSharedInformerFactoryWithOptions(kube, 0, informers.WithNamespace(metav1.NamespaceDefault))
	if _, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { b.observe(o.(*corev1.Pod), time.Now()) },
		UpdateFunc: func(_, o any) { b.observe(o.(*corev1.Pod), time.Now()) },
	}); err != nil {
		return nil, fmt.Errorf("watching pods: %w", err)
	}
	factory.StartWithContext(ctx)
	factory.WaitForCacheSync(ctx.Done())
	return b, nil
}

func (b *bindings) observe(pod *corev1.Pod, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if pod.Spec.NodeName == "" || b.bound[pod.UID] {
		return
	}
	b.bound[pod.UID], b.last = true, now
	if len(b.bound) == b.want {
		close(b.done)
	}
}

// until waits until all pods are bound, and returns when the last one was. failed returns an error if a process has ended.
func (b *bindings) until(ctx context.Context, failed func() error) (time.Time, error) {
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for {
		select {
		case <-b.done:
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.last, nil
		case <-ctx.Done():
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.last, fmt.Errorf("%d of %d pods are bound: %w", len(b.bound), b.want, context.Cause(ctx))
		case <-look.C:
			if err := failed(); err != nil {
				return time.Time{}, err
			}
		}
	}
}

// priced waits until the scheduler knows what instances cost, and its pool is ready.
func priced(ctx context.Context, box *sandbox.Sandbox, scheduler *cluster.SchedulerProcess) error {
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for {
		text, err := scheduler.Get(ctx, "/metrics")
		if err == nil && bytes.Contains(text, []byte("\nkarpenter_cloudprovider_instance_type_offering_price_estimate{")) {
			pool := &karpv1.NodePool{}
			if err = box.Client().Get(ctx, client.ObjectKey{Name: "default"}, pool); err == nil && pool.StatusConditions().Root().IsTrue() {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for prices and a pool that is ready: %w (last: %v)", context.Cause(ctx), err)
		case <-look.C:
		}
		if err := scheduler.Failed(); err != nil {
			return err
		}
	}
}
