package main

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/dovetail-scheduler/dovetail/test/standalone"
)

// weights are what a node and a pod take of the scheduler's heap, by difference at the smallest size: with three nodes, with all nodes and no pods, and
// with the pods.
type weights struct {
	few, nodes, pods float64 // heap in use, bytes
	added            int     // nodes
	perNode, perPod  float64
	// metrics is the size of /metrics in bytes with series for each of the nodes and their pods, metricsFor how long it takes to read it once.
	metrics    float64
	metricsFor time.Duration
}

// weighNodes starts a scheduler while the nodes have no pods.
func (s *system) weighNodes(ctx context.Context, w *weights) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	seen, err := s.watch(watching)
	if err != nil {
		return err
	}
	at := &point{nodes: s.nodes}
	scheduler, err := s.start(ctx, process{}, seen, at)
	if err != nil {
		return fmt.Errorf("starting a scheduler without pods: %w", err)
	}
	if n := len(s.EC2.Live()); n != s.nodes {
		return fmt.Errorf("%d instances live without pods, want %d: the pool's budget keeps empty nodes", n, s.nodes)
	}
	w.nodes, w.added = at.heap, s.nodes-len(s.models)
	w.perNode = (w.nodes - w.few) / math.Max(1, float64(w.added))
	standalone.Say("a node takes %.1f KiB of the heap", w.perNode/1024)
	return s.end(ctx, scheduler)
}

// weighMetrics starts a scheduler whose metrics have series for each node and pod.
func (s *system) weighMetrics(ctx context.Context, w *weights) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	seen, err := s.watch(watching)
	if err != nil {
		return err
	}
	scheduler, err := s.start(ctx, process{series: true}, seen, &point{nodes: s.nodes})
	if err != nil {
		return fmt.Errorf("starting a scheduler with all metrics: %w", err)
	}
	asked := time.Now()
	text, err := scheduler.Get(ctx, "/metrics")
	if err != nil {
		return err
	}
	w.metrics, w.metricsFor = float64(len(text)), time.Since(asked)
	standalone.Say("/metrics with series for each of %d nodes and their pods has %s, and takes %s to read", s.nodes, mib(w.metrics), w.metricsFor.Round(time.Millisecond))
	return s.end(ctx, scheduler)
}

// weighPods computes what a pod takes.
func (w *weights) weighPods(at *point) {
	w.pods = at.heap
	w.perPod = (w.pods - w.nodes) / float64(at.pods)
	standalone.Say("a pod takes %.1f KiB of the heap", w.perPod/1024)
}
