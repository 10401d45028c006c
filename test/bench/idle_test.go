package bench

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/load"
	"github.com/dovetail-scheduler/dovetail/test/sandbox"
)

const (
	idleNodes  = 500
	idlePods   = 2000 // measured ones
	idleWarmUp = 500  // ones before them, while watches catch up
	idleTail   = 100  // ones after them
	idleRest   = time.Second
)

var (
	idleTurns    = flag.Int("idle.pairs", 4, "pairs of turns, with and without plugins, of BenchmarkIdle")
	hopelessPods = flag.Int("hopeless.pods", 10_000, "pods of BenchmarkHopeless that no node and no machine can host")
	profiles     = flag.String("profiles", "", "folder for CPU profiles of the schedulers that BenchmarkIdle and BenchmarkHopeless compare")
)

// BenchmarkIdle measures what our plugins cost when there is nothing for them to do: 2,000 pods on 500 nodes with capacity for all,
// scheduled with the shipped configuration (with a pool that could launch) and by the same binary without our plugins, in turns on one
// API server, after one turn that doesn't count: A/B, B/A, A/B, B/A, because later turns tend to be slower. The scheduler has started
// and become idle, and is frozen while the pods are created, so that it finds all of them waiting. Series per node and pod are left out of its
// metrics, unlike as shipped. with-pods/s and without-pods/s are
// medians, ratio is the median of the pairs' ratios (below one: Dovetail is slower), cpu-ratio that of the CPU time the scheduler
// processes used for all 2,600 pods (above one: Dovetail uses more), between whose low and high it is with a probability of 95 %.
func BenchmarkIdle(b *testing.B) {
	for b.Loop() {
		compare(b, *idleTurns, 0)
	}
}

// BenchmarkHopeless is the same with 10,000 more pods in the queue that fit on no node and no instance type, as either scheduler has
// found out before. They are there from the first turn to the last.
func BenchmarkHopeless(b *testing.B) {
	for b.Loop() {
		compare(b, 2, *hopelessPods)
	}
}

func compare(b *testing.B, turnsOfEach, hopeless int) {
	b.Helper()
	e := newEnv(b)
	var nodes []*corev1.Node
	for i := range idleNodes {
		nodes = append(nodes, node(fmt.Sprintf("node-%d", i), e.EC2.Zones()[i%3], room("8", "32Gi")))
	}
	e.addNodes(nodes)
	if err := e.Create(e.ctx, sandbox.Pods("hopeless", hopeless, "5000", "1Gi")...); err != nil {
		e.Fatal(err)
	}
	var with, without, cpuWith, cpuWithout samples
	e.schedule(false, hopeless)
	turns := []func(){
		func() {
			took, cpu := e.schedule(true, hopeless)
			with, cpuWith = append(with, took), append(cpuWith, cpu)
		},
		func() {
			took, cpu := e.schedule(false, hopeless)
			without, cpuWithout = append(without, took), append(cpuWithout, cpu)
		},
	}
	for range turnsOfEach {
		for _, turn := range turns {
			turn()
		}
		slices.Reverse(turns)
	}
	if calls := e.EC2.Calls("CreateFleet"); len(calls) > 0 {
		b.Errorf("launched %d times though every pod fits or none ever will", len(calls))
	}
	e.Stop()
	for i := range with {
		b.Logf("turn %d: with %v (CPU %v), without %v (CPU %v)", i, with[i], cpuWith[i], without[i], cpuWithout[i])
	}
	low, high := interval(cpuWith.ratios(cpuWithout))
	report(b, map[string]float64{
		"with-pods/s": idlePods / with.seconds(), "without-pods/s": idlePods / without.seconds(),
		"ratio": without.to(with), "cpu-ratio": cpuWith.to(cpuWithout), "cpu-ratio-low": low, "cpu-ratio-high": high,
	})
}

// schedule is one turn: how long the measured pods take, and the CPU time of the scheduler's process for all pods of the turn, with what
// remains to be done when the last is bound. Nothing is asked of the scheduler meanwhile: reading its metrics takes CPU time, too.
func (e *env) schedule(plugins bool, hopeless int) (took, cpu time.Duration) {
	e.Helper()
	began := time.Now()
	s := e.run(plugins)
	e.until("all hopeless pods to have been tried", func() bool {
		return sum(e.metrics(s), "scheduler_pending_pods", `queue="unschedulable"`) >= float64(hopeless)
	})
	e.quiet(s)
	quiet := time.Since(began)
	failedBefore := sum(e.metrics(s), "scheduler_schedule_attempts_total", `result="unschedulable"`)
	if _, err := s.Get(e.ctx, "/debug/pprof/heap?gc=1"); err != nil { // what was read until now is garbage, and isn't to be collected later
		e.Fatal(err)
	}
	ctx, stop := context.WithTimeout(e.ctx, patience)
	defer stop()
	seen, err := load.Watch(ctx, e.kube, func(p *corev1.Pod) string { return p.Labels["app"] })
	if err != nil {
		e.Fatal(err)
	}
	s.Pause()
	e.pods(idleWarmUp+idlePods+idleTail, "100m", "128Mi")
	before := e.used(s)
	s.Resume()
	profiled := e.profile(s, fmt.Sprintf("%s-%d-plugins-%t", e.Name(), e.runs, plugins))
	bound := func(n int) time.Time {
		at, err := seen.Until(ctx, "bench", n, s.Failed)
		if err != nil {
			e.Fatal(err)
		}
		return at
	}
	from, to := bound(idleWarmUp), bound(idleWarmUp+idlePods)
	bound(idleWarmUp + idlePods + idleTail)
	select {
	case <-ctx.Done():
		e.Fatal(context.Cause(ctx))
	case <-time.After(idleRest):
	}
	cpu = e.used(s) - before
	unschedulable := sum(e.metrics(s), "scheduler_schedule_attempts_total", `result="unschedulable"`) - failedBefore
	e.Logf("plugins %t: quiet after %v, all done after %v; meanwhile %v cycles found no node", plugins, quiet.Round(time.Second), time.Since(began).Round(time.Second), unschedulable)
	<-profiled
	s.Stop()
	e.noPods("bench")
	return to.Sub(from), cpu
}

// used returns the CPU time of the scheduler's process until now.
func (e *env) used(s *cluster.SchedulerProcess) time.Duration {
	e.Helper()
	usage, err := s.Usage()
	if err != nil {
		e.Fatal(err)
	}
	return usage.CPU
}

// profile writes a CPU profile of the scheduler's next seconds into a file of that name, if a folder for it was given. The channel is
// closed when the profile is complete.
func (e *env) profile(s *cluster.SchedulerProcess, name string) <-chan struct{} {
	done := make(chan struct{})
	if *profiles == "" {
		close(done)
		return done
	}
	go func() {
		defer close(done)
		data, err := s.Get(e.ctx, "/debug/pprof/profile?seconds=5")
		if err == nil {
			err = os.WriteFile(filepath.Join(*profiles, name+".pprof"), data, 0o644)
		}
		if err != nil {
			e.Logf("no profile %s: %v", name, err)
		}
	}()
	return done
}
