package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/load"
	"github.com/dovetail-scheduler/dovetail/test/scrape"
	"github.com/dovetail-scheduler/dovetail/test/standalone"
)

// part puts a load on a scheduler for the given time and samples the scheduler meanwhile.
func (s *system) part(ctx context.Context, scheduler *cluster.SchedulerProcess, p part, lasts time.Duration, l *load.Load) (part, error) {
	l.Kube, l.Life = s.kube, s.set.podLife()
	standalone.Say("%s: %g pods per second for %s, each for %s", p.name, l.PerSec, lasts, l.Life)
	read, err := scrape.Look(ctx, scheduler)
	if err != nil {
		return p, err
	}
	first := sample{Sample: read}
	loading, end := context.WithTimeout(ctx, lasts)
	defer end()
	over := make(chan struct{})
	go func() {
		defer close(over)
		l.Run(loading)
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
		read, err := scrape.Look(ctx, scheduler)
		if err != nil {
			end()
			<-over
			return p, err
		}
		now := sample{Sample: read, created: float64(l.Created())}
		p.samples = append(p.samples, now)
		if time.Since(said) >= 30*time.Second {
			said = time.Now()
			standalone.Say("%s: %d pods created, %.0f scheduled; heap %s, resident %s, %.0f goroutines, %.2f requests per pod", p.name, l.Created(),
				now.Scheduled-first.Scheduled, mib(now.Heap), mib(now.RSS), now.Goroutines,
				(now.AllRequests()-first.AllRequests())/max(1, now.Scheduled-first.Scheduled))
		}
	}
	if err := ctx.Err(); err != nil {
		return p, fmt.Errorf("%s: %w", p.name, err)
	}
	if err := l.Err(); err != nil {
		return p, err
	}
	if err := s.Failed(); err != nil {
		return p, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return p, load.Sweep(ctx, s.Sandbox, s.kube, metav1.DeleteOptions{}, s.set.nodes)
}
