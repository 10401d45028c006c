package bench

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/sandbox"
)

const (
	idleNodes  = 500
	idlePods   = 2000 // measured ones
	idleWarmUp = 500  // ones before them, while watches catch up
	idleTail   = 100  // ones after them
)

var (
	idleTurns    = flag.Int("idle.pairs", 4, "pairs of turns, with and without plugins, of BenchmarkIdle")
	hopelessPods = flag.Int("hopeless.pods", 10_000, "pods of BenchmarkHopeless that no node and no machine can host")
	profiles     = flag.String("profiles", "", "folder for CPU profiles of the schedulers that BenchmarkIdle and BenchmarkHopeless compare")
)

// BenchmarkIdle measures what our plugins cost when there is nothing for them to do: 2,000 pods on 500 nodes with capacity for all,
// scheduled with the shipped configuration (with a pool that could launch) and by the same binary without our plugins, in turns on one
// API server, after one turn that doesn't count: A/B, B/A, A/B, B/A, because later turns tend to be slower. The scheduler has started
// and become idle, and is frozen while the pods are created, so that it finds all of them waiting. with-pods/s and without-pods/s are
// medians, ratio is the median of the pairs' ratios (below one: Dovetail is slower), cpu-ratio that of the CPU time the scheduler
// processes used (above one: Dovetail uses more), between whose low and high it is with a probability of 95 %.
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

// schedule is one turn: how long the measured pods take, and the scheduler's CPU time meanwhile. Both are taken from the scheduler's
// metrics: a watch of the API lags behind when CPUs are scarce, all the more while the scheduler is busy.
func (e *env) schedule(plugins bool, hopeless int) (took, cpu time.Duration) {
	e.Helper()
	began := time.Now()
	s := e.run(plugins)
	e.until("all hopeless pods to have been tried", func() bool {
		return sum(e.metrics(s), "scheduler_pending_pods", `queue="unschedulable"`) >= float64(hopeless)
	})
	e.quiet(s)
	quiet := time.Since(began)
	before := sum(e.metrics(s), "scheduler_schedule_attempts_total", `result="scheduled"`)
	failedBefore := sum(e.metrics(s), "scheduler_schedule_attempts_total", `result="unschedulable"`)
	s.Pause()
	e.pods(idleWarmUp+idlePods+idleTail, "100m", "128Mi")
	s.Resume()
	profiled := e.profile(s, fmt.Sprintf("%s-%d-plugins-%t", e.Name(), e.runs, plugins))
	var seen []progress
	e.until("all pods to be scheduled", func() bool {
		m := e.metrics(s)
		seen = append(seen, progress{
			pods: sum(m, "scheduler_schedule_attempts_total", `result="scheduled"`) - before, at: time.Now(), cpu: sum(m, "process_cpu_seconds_total", "")})
		return seen[len(seen)-1].pods >= idleWarmUp+idlePods+idleTail
	})
	unschedulable := sum(e.metrics(s), "scheduler_schedule_attempts_total", `result="unschedulable"`) - failedBefore
	e.Logf("plugins %t: quiet after %v, all done after %v; meanwhile %v cycles found no node", plugins, quiet.Round(time.Second), time.Since(began).Round(time.Second), unschedulable)
	<-profiled
	s.Stop()
	e.noPods("bench")
	from, to := when(seen, idleWarmUp), when(seen, idleWarmUp+idlePods)
	return to.at.Sub(from.at), time.Duration((to.cpu - from.cpu) * float64(time.Second))
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

// progress is the number of scheduled pods at a moment, and the CPU seconds used until then.
type progress struct {
	pods float64
	at   time.Time
	cpu  float64
}

// when returns the moment at which this many pods were scheduled, interpolated between the samples before and after it.
func when(seen []progress, pods float64) progress {
	for i, after := range seen {
		if after.pods < pods {
			continue
		}
		if i == 0 || after.pods == pods {
			return after
		}
		before := seen[i-1]
		part := (pods - before.pods) / (after.pods - before.pods)
		return progress{pods: pods, at: before.at.Add(time.Duration(part * float64(after.at.Sub(before.at)))), cpu: before.cpu + part*(after.cpu-before.cpu)}
	}
	return progress{}
}

func TestWhen(t *testing.T) {
	start := time.Unix(1000, 0)
	seen := []progress{{0, start, 1}, {100, start.Add(time.Second), 2}, {300, start.Add(2 * time.Second), 4}}
	want := progress{200, start.Add(1500 * time.Millisecond), 3}
	if got := when(seen, 200); got != want {
		t.Errorf("200 pods were scheduled at %+v, want %+v", got, want)
	}
}
