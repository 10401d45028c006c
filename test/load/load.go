package load

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/dovetail-scheduler/dovetail/test/sandbox"
)

const (
	// calls is the maximum number of parallel calls of the load, tries how often each is attempted. A busy host slows the load down
	// but doesn't stop it.
	calls = 32
	tries = 5
	// tick is how often pods are created and deleted.
	tick = 100 * time.Millisecond
)

// Load creates pods at a rate and deletes each after its lifetime.
type Load struct {
	Kube kubernetes.Interface
	// Name begins the names of the pods, which are labelled app=NAME.
	Name   string
	PerSec float64
	Life   time.Duration
	// Bursts: all pods of one lifetime are created at once, and the next ones after one further lifetime, in which the nodes of the
	// first are terminated. Created one by one, pods would use the nodes of those that have just ended.
	Bursts bool
	// Keep reports whether a pod is kept although its life is over; it is asked again later. Nil: none is.
	Keep func(name string) bool
	// Change changes a pod before it is created; nil: all are alike.
	Change func(*corev1.Pod)

	created atomic.Int64
	failed  atomic.Pointer[error]
}

// Created returns how many pods were created so far.
func (l *Load) Created() int { return int(l.created.Load()) }

// Run creates and deletes pods until ctx is done, then waits for the calls that are still running.
func (l *Load) Run(ctx context.Context) {
	slots := make(chan struct{}, calls)
	var wg sync.WaitGroup
	call := func(f func(context.Context) error) {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			var err error
			for range tries {
				// A call that was begun is finished even if ctx is done: an unknown pod would otherwise remain.
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
				err = f(ctx)
				cancel()
				if err == nil {
					return
				}
			}
			l.failed.CompareAndSwap(nil, &err)
		})
	}
	defer wg.Wait()
	clock := time.NewTicker(tick)
	defer clock.Stop()
	begin, made, ended := time.Now(), 0, 0
	var kept []int
	for {
		select {
		case <-ctx.Done():
			return
		case <-clock.C:
		}
		for due := l.due(time.Since(begin)); made < due && ctx.Err() == nil; made++ {
			i := made
			call(func(ctx context.Context) error { return l.create(ctx, i) })
		}
		for due := l.due(time.Since(begin) - l.Life); ended < due; ended++ {
			kept = append(kept, ended)
		}
		kept = slices.DeleteFunc(kept, func(i int) bool {
			if ctx.Err() != nil || l.Keep != nil && l.Keep(l.pod(i)) {
				return false
			}
			call(func(ctx context.Context) error { return l.delete(ctx, i) })
			return true
		})
	}
}

// due returns how many pods are to be created within that time from the beginning.
func (l *Load) due(since time.Duration) int {
	if since < 0 {
		return 0
	}
	if l.Bursts {
		return (int(since/(2*l.Life)) + 1) * max(1, int(l.Life.Seconds()*l.PerSec))
	}
	return int(since.Seconds() * l.PerSec)
}

func (l *Load) create(ctx context.Context, i int) error {
	pod := sandbox.Pods(fmt.Sprintf("%s-%d", l.Name, i), 1, "50m", "64Mi")[0].(*corev1.Pod)
	pod.Labels = map[string]string{"app": l.Name}
	grace := int64(30)
	pod.Spec.TerminationGracePeriodSeconds = &grace
	if l.Change != nil {
		l.Change(pod)
	}
	if _, err := l.Kube.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating pod %s: %w", pod.Name, err)
	}
	l.created.Add(1)
	return nil
}

func (l *Load) delete(ctx context.Context, i int) error {
	name := l.pod(i)
	err := l.Kube.CoreV1().Pods(metav1.NamespaceDefault).Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting pod %s: %w", name, err)
	}
	return nil
}

// pod returns the name of a pod.
func (l *Load) pod(i int) string { return fmt.Sprintf("%s-%d-0", l.Name, i) }

// Err returns the error of the first call that failed.
func (l *Load) Err() error {
	if err := l.failed.Load(); err != nil {
		return *err
	}
	return nil
}
