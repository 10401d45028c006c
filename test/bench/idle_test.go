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

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/load"
	"github.com/dovetail-scheduler/dovetail/test/sandbox"
)

const (
	idleNodes = 500
	idlePods  = 1250 // of each scheduler in each pair
	idleRest  = time.Second
	// idleRate is how many pods per second a scheduler may bind. Without a limit more requests are under way than the API server takes, and what would be
	// measured is how many it refuses (429), which is another number each time, and how often they are sent again.
	idleRate = 150
)

var (
	idlePairs    = flag.Int("idle.pairs", 4, "pairs of schedulers, with and without plugins, of BenchmarkIdle")
	hopelessPods = flag.Int("hopeless.pods", 10_000, "pods of BenchmarkHopeless that no node and no machine can host, for each of its two schedulers")
	profiles     = flag.String("profiles", "", "folder for CPU profiles of the schedulers that BenchmarkIdle and BenchmarkHopeless compare")
)

// BenchmarkIdle measures what our plugins cost when there is nothing for them to do: 1,250 pods on 500 nodes with capacity for all,
// scheduled with the shipped configuration (with a pool that could launch), and 1,250 by the same binary without our plugins. In each pair two new
// processes do that side by side, on one API server and in the same seconds: the speed of a virtual machine may double from one second to the next.
// Each sees the other's pods, too. Both have started and become idle, and are frozen while the pods are created, so that they find all of them
// waiting; they bind 150 per second.
//
// cpu-ratio is the median of the pairs' ratios of the CPU time that the processes use until a second after the last binding (above one:
// Dovetail uses more), between whose low and high it is with a probability of 95 %; with-ms and without-ms are the medians per pod.
func BenchmarkIdle(b *testing.B) {
	for b.Loop() {
		compare(b, *idlePairs, 0)
	}
}

// BenchmarkHopeless is the same with 10,000 more pods in the queue of either scheduler that fit on no node and no instance type, as it
// has found out before.
func BenchmarkHopeless(b *testing.B) {
	for b.Loop() {
		compare(b, 2, *hopelessPods)
	}
}

func compare(b *testing.B, pairs, hopeless int) {
	b.Helper()
	e := newEnv(b)
	var nodes []*corev1.Node
	for i := range idleNodes {
		nodes = append(nodes, node(fmt.Sprintf("node-%d", i), e.EC2.Zones()[i%3], room("8", "32Gi")))
	}
	e.addNodes(nodes)
	contenders := []*contender{{name: "with", scheduler: sandbox.SchedulerName, plugins: true}, {name: "without", scheduler: plainName}}
	with, without := contenders[0], contenders[1]
	for _, c := range contenders {
		if err := e.Create(e.ctx, append(sandbox.Pods("hopeless-"+c.name, hopeless, "5000", "1Gi", c.own), replicaSet(c.name))...); err != nil {
			b.Fatal(err)
		}
	}
	for pair := range pairs {
		e.pair(contenders, hopeless)
		slices.Reverse(contenders)
		// Not by b.Log, which leaves out most of many lines.
		fmt.Fprintf(os.Stderr, "pair %d: CPU time with plugins %v, without %v, ratio %.3f; requests refused: %v and %v\n", pair+1,
			with.cpu[pair], without.cpu[pair], with.cpu.ratios(without.cpu)[pair], with.refused, without.refused)
	}
	if calls := e.EC2.Calls("CreateFleet"); len(calls) > 0 {
		b.Errorf("launched %d times though every pod fits or none ever will", len(calls))
	}
	e.Stop()
	low, high := interval(with.cpu.ratios(without.cpu))
	report(b, map[string]float64{
		"with-ms": with.cpu.seconds() * 1000 / idlePods, "without-ms": without.cpu.seconds() * 1000 / idlePods,
		"cpu-ratio": with.cpu.to(without.cpu), "cpu-ratio-low": low, "cpu-ratio-high": high,
	})
}

// contender is the scheduler with our plugins or the one without, with the CPU time that its processes have used.
type contender struct {
	name, scheduler string
	plugins         bool
	process         *cluster.SchedulerProcess // the one of this pair
	cpu             samples
	refused         float64 // requests of this pair that the API server has refused
}

func (c *contender) own(_ int, pod *corev1.Pod) { pod.Spec.SchedulerName = c.scheduler }

// replicaSet returns the owner of the pods of that name. Pods have one, in a cluster; it's looked up when they are bound.
func replicaSet(name string) client.Object {
	labels := map[string]string{"app": name}
	template := sandbox.Pods(name, 1, "100m", "128Mi")[0].(*corev1.Pod)
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: ptr.To[int32](0), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: template.Spec},
		},
	}
}

// pair starts both schedulers, gives them pods and measures them. Nothing is asked of them meanwhile: reading metrics takes CPU time, too.
func (e *env) pair(contenders []*contender, hopeless int) {
	e.Helper()
	for _, c := range contenders {
		c.process = e.run(c.plugins, c.scheduler, idleRate)
	}
	for _, c := range contenders {
		e.until("all hopeless pods to have been tried", func() bool {
			return sum(e.metrics(c.process), "scheduler_pending_pods", `queue="unschedulable"`) >= float64(hopeless)
		})
	}
	for _, c := range contenders {
		e.quiet(c.process)
	}
	ctx, stop := context.WithTimeout(e.ctx, patience)
	defer stop()
	seen, err := load.Watch(ctx, e.kube, func(p *corev1.Pod) string { return p.Labels["app"] })
	if err != nil {
		e.Fatal(err)
	}
	for _, c := range contenders {
		// What was read until now is garbage, and isn't to be collected later.
		if _, err := c.process.Get(ctx, "/debug/pprof/heap?gc=1"); err != nil {
			e.Fatal(err)
		}
		c.process.Pause()
	}
	var before []time.Duration
	var profiled []<-chan struct{}
	for _, c := range contenders {
		if err := e.Create(ctx, sandbox.Pods(c.name, idlePods, "100m", "128Mi", c.own)...); err != nil {
			e.Fatal(err)
		}
		before = append(before, e.used(c.process))
	}
	for _, c := range contenders {
		c.process.Resume()
		profiled = append(profiled, e.profile(c.process, fmt.Sprintf("%s-%d-%s", e.Name(), len(c.cpu)+1, c.name)))
	}
	for _, c := range contenders {
		if _, err := seen.Until(ctx, c.name, idlePods, c.process.Failed); err != nil {
			e.Fatal(err)
		}
	}
	select {
	case <-ctx.Done():
		e.Fatal(context.Cause(ctx))
	case <-time.After(idleRest):
	}
	for i, c := range contenders {
		c.cpu = append(c.cpu, e.used(c.process)-before[i])
	}
	for i, c := range contenders {
		<-profiled[i]
		c.refused = sum(e.metrics(c.process), "rest_client_requests_total", `code="429"`)
		c.process.Stop()
	}
	for _, c := range contenders {
		e.noPods(c.name)
	}
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
		data, err := s.Get(e.ctx, "/debug/pprof/profile?seconds=8")
		if err == nil {
			err = os.WriteFile(filepath.Join(*profiles, name+".pprof"), data, 0o644)
		}
		if err != nil {
			e.Logf("no profile %s: %v", name, err)
		}
	}()
	return done
}
