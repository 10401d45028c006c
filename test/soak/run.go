package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/standalone"
)

// part puts a load on a scheduler for the given time and samples the scheduler meanwhile.
func (s *system) part(ctx context.Context, scheduler *cluster.SchedulerProcess, p part, lasts time.Duration, l *load) (part, error) {
	l.kube, l.life = s.kube, s.set.podLife()
	standalone.Say("%s: %g pods per second for %s, each for %s", p.name, l.perSec, lasts, l.life)
	first, err := look(ctx, scheduler)
	if err != nil {
		return p, err
	}
	loading, end := context.WithTimeout(ctx, lasts)
	defer end()
	over := make(chan struct{})
	go func() {
		defer close(over)
		l.run(loading)
	}()
	every := time.NewTicker(s.set.sampleEvery())
	defer every.Stop()
	p.samples = []sample{first}
	for said, running := time.Now(), true; running; {
		select {
		case <-over:
			running = false
		case <-every.C:
		}
		now, err := look(ctx, scheduler)
		if err != nil {
			end()
			<-over
			return p, err
		}
		now.created = float64(l.created.Load())
		p.samples = append(p.samples, now)
		if time.Since(said) >= 30*time.Second {
			said = time.Now()
			standalone.Say("%s: %d pods created, %.0f scheduled; heap %s, resident %s, %.0f goroutines, %.2f requests per pod", p.name, l.created.Load(),
				now.scheduled-first.scheduled, mib(now.heap), mib(now.rss), now.goroutines,
				(now.allRequests()-first.allRequests())/max(1, now.scheduled-first.scheduled))
		}
	}
	if err := ctx.Err(); err != nil {
		return p, fmt.Errorf("%s: %w", p.name, err)
	}
	if err := l.error(); err != nil {
		return p, err
	}
	if err := s.Failed(); err != nil {
		return p, err
	}
	return p, s.sweep(ctx)
}

// look reads a scheduler's metrics. It tries again if there is no answer, because the host may be busy, unless the scheduler has
// exited.
func look(ctx context.Context, scheduler *cluster.SchedulerProcess) (sample, error) {
	for try := 1; ; try++ {
		text, err := scheduler.Get(ctx, "/metrics")
		if err == nil {
			return parse(string(text), time.Now()), nil
		}
		if try == tries || ctx.Err() != nil || scheduler.Failed() != nil {
			return sample{}, err
		}
	}
}

// sweep deletes the remaining pods and waits until they are gone, and with them the nodes of the nodes part.
func (s *system) sweep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var err error
	for range tries { // a busy API server may not manage to delete thousands at once within its own time limit
		if err = s.kube.CoreV1().Pods(metav1.NamespaceDefault).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err == nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("deleting the pods that are left: %w", err)
	}
	if _, err := cluster.UntilPods(ctx, s.Client(), 0, cluster.Bound, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		return err
	}
	for {
		live := len(s.EC2.Live())
		if live == s.set.nodes {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d instances live, want %d: %w", live, s.set.nodes, ctx.Err())
		case <-time.After(time.Second):
		}
	}
}
