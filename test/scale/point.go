package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/load"
	"github.com/dovetail-scheduler/dovetail/test/sandbox"
	"github.com/dovetail-scheduler/dovetail/test/scrape"
	"github.com/dovetail-scheduler/dovetail/test/standalone"
)

// What pods are for (labelFor).
const forProbe, forLoad, forBurst = "probe", "load", "burst"

// point is what was measured at one size.
type point struct {
	nodes, pods int
	// started is how long after its start a scheduler bound a pod, startCPU what it used for that.
	started, startCPU time.Duration
	// heap is the memory in use then, resident and peak what the process had after the load, and at most.
	heap, resident, peak float64
	// before and during are the times before the burst and until its last pod was bound, steady and bursting all pods of the load that came then.
	before, during   span
	steady, bursting []load.Binding
	// attempts are the scheduler's own histogram, before the burst.
	attempts *scrape.Histogram
	// cpu in seconds and requests are of a pod of the load, before the burst.
	cpu, requests float64
	// burst is how long it took until all pods of the burst were bound, machines how many instances were launched for them.
	burst    time.Duration
	machines int
	// planning and verifying are of the time of the burst, evaluations of that from the scheduler's start until then.
	planning, verifying, evaluations *scrape.Histogram
	problems                         []string
}

// span is a time in which pods come.
type span struct{ from, to time.Time }

func (p *point) wrong(format string, args ...any) {
	problem := fmt.Sprintf(format, args...)
	standalone.Say("WRONG: %s", problem)
	p.problems = append(p.problems, problem)
}

// measure measures at one size, with a scheduler that it returns running:
//  1. The scheduler starts, and binds a pod.
//  2. Pods come at a rate, and end; all of them fit.
//  3. A burst of pods comes beside them that fit nowhere.
//  4. All of these pods are deleted, and the instances of the burst end.
func (s *system) measure(ctx context.Context, p *part, at *point) (*cluster.SchedulerProcess, error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	seen, err := s.watch(watching)
	if err != nil {
		return nil, err
	}
	scheduler, err := s.start(ctx, process{}, seen, at)
	if err != nil {
		return nil, fmt.Errorf("starting a scheduler: %w", err)
	}
	loading := s.load(ctx, fmt.Sprintf("load-%d", at.nodes), p.perSec, seen)
	defer loading.end()
	before, err := s.bear(ctx, scheduler, seen, at)
	if err != nil {
		return nil, fmt.Errorf("under load: %w", err)
	}
	if err := s.burst(ctx, scheduler, seen, before, at); err != nil {
		return nil, fmt.Errorf("in the burst: %w", err)
	}
	if err := loading.end(); err != nil {
		return nil, err
	}
	s.judge(ctx, scheduler, seen, at, loading.Created())
	if err := s.clear(ctx, scheduler, at); err != nil {
		return nil, errors.Join(fmt.Errorf("after the burst: %w", err), scheduler.Failed())
	}
	used, err := scheduler.Usage()
	at.resident, at.peak = float64(used.Resident), float64(used.Peak)
	return scheduler, err
}

// start starts a scheduler and waits until it has bound a pod.
func (s *system) start(ctx context.Context, p process, seen *load.Bindings, at *point) (*cluster.SchedulerProcess, error) {
	_, before, _ := seen.Count(forProbe)
	if err := s.Create(ctx, sandbox.Pods(fmt.Sprintf("probe-%d", s.runs), 1, "10m", "16Mi", labelled(forProbe))...); err != nil {
		return nil, err
	}
	begun := time.Now()
	scheduler, err := s.schedule(ctx, p)
	if err != nil {
		return nil, err
	}
	ctx, cancel := s.whileRunning(ctx, scheduler)
	defer cancel()
	bound, err := seen.Until(ctx, forProbe, before+1, scheduler.Failed)
	if err != nil {
		return nil, err
	}
	used, err := scheduler.Usage()
	if err != nil {
		return nil, err
	}
	at.started, at.startCPU = bound.Sub(begun), used.CPU
	if at.heap, err = heap(ctx, scheduler); err != nil {
		return nil, err
	}
	standalone.Say("%d nodes: a pod was bound %s after the scheduler's start, which took %s of CPU time; heap in use %s, resident %s", at.nodes,
		at.started.Round(time.Millisecond), used.CPU.Round(time.Millisecond), mib(at.heap), mib(float64(used.Resident)))
	return scheduler, nil
}

const (
	// idle is the share of a processor below which a scheduler has done what there was to do after its start, for most at most.
	idle = 0.2
	most = time.Minute
)

// heap returns the memory in use after a garbage collection, when the scheduler knows what instances cost and has come to rest.
func heap(ctx context.Context, scheduler *cluster.SchedulerProcess) (float64, error) {
	if err := scrape.Priced(ctx, scheduler, 5*time.Second); err != nil {
		return 0, err
	}
	for begun := time.Now(); time.Since(begun) < most; {
		was, err := scheduler.Usage()
		if err != nil {
			return 0, err
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(2 * time.Second):
		}
		is, err := scheduler.Usage()
		if err != nil {
			return 0, err
		}
		if (is.CPU - was.CPU).Seconds() < 2*idle {
			break
		}
	}
	if _, err := scheduler.Get(ctx, "/debug/pprof/heap?gc=1"); err != nil {
		return 0, err
	}
	now, err := scrape.Look(ctx, scheduler)
	return now.Heap, err
}

// labelled makes a pod one of those that are for something.
func labelled(what string) func(int, *corev1.Pod) {
	return func(_ int, p *corev1.Pod) {
		p.Labels[labelFor] = what
		p.Spec.RestartPolicy = corev1.RestartPolicyAlways
	}
}

// running is a load that runs.
type running struct {
	*load.Load
	stop context.CancelFunc
	over chan struct{}
}

// load begins to create pods that fit.
func (s *system) load(ctx context.Context, name string, perSec float64, seen *load.Bindings) *running {
	l := &running{over: make(chan struct{}), Load: &load.Load{
		Kube: s.kube, Name: name, PerSec: perSec, Life: s.set.life, Keep: seen.Unplaced, Change: func(p *corev1.Pod) { labelled(forLoad)(0, p) },
	}}
	ctx, l.stop = context.WithCancel(ctx)
	go func() {
		defer close(l.over)
		l.Run(ctx)
	}()
	return l
}

// end stops the load, and returns the error of the first call that failed.
func (r *running) end() error {
	r.stop()
	<-r.over
	return r.Err()
}

// bear measures the load until the number of its pods is constant and for a time after that. It returns the scheduler's metrics at the end of that.
func (s *system) bear(ctx context.Context, scheduler *cluster.SchedulerProcess, seen *load.Bindings, at *point) (*scrape.Sample, error) {
	if err := s.pass(ctx, scheduler, seen, s.set.life); err != nil {
		return nil, err
	}
	first, err := scrape.Look(ctx, scheduler)
	if err != nil {
		return nil, err
	}
	was, err := scheduler.Usage() // after the metrics were read, and again before: that costs CPU time
	if err != nil {
		return nil, err
	}
	_, earlier, _ := seen.Count(forLoad)
	begun := time.Now()
	if err := s.pass(ctx, scheduler, seen, s.set.steady); err != nil {
		return nil, err
	}
	is, err := scheduler.Usage()
	if err != nil {
		return nil, err
	}
	_, later, _ := seen.Count(forLoad)
	at.before = span{begun, time.Now()}
	last, err := scrape.Look(ctx, scheduler)
	if err != nil {
		return nil, err
	}
	at.cpu = (is.CPU - was.CPU).Seconds() / max(1, float64(later-earlier))
	at.requests = (last.AllRequests() - first.AllRequests()) / max(1, last.Scheduled-first.Scheduled)
	at.attempts, at.evaluations = last.Since(&first, scrape.Attempts), last.Since(&scrape.Sample{}, scrape.Evaluations)
	if n := len(s.EC2.Live()); n != s.nodes {
		at.wrong("%d instances live before the burst, want %d: all pods fit on the nodes that are there", n, s.nodes)
	}
	return &last, nil
}

// pass lets time pass, and says now and then how far the load is.
func (s *system) pass(ctx context.Context, scheduler *cluster.SchedulerProcess, seen *load.Bindings, d time.Duration) error {
	end := time.After(d)
	for {
		select {
		case <-end:
			return s.failed(scheduler)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(20 * time.Second):
		}
		if err := s.failed(scheduler); err != nil {
			return err
		}
		have, bound, _ := seen.Count(forLoad)
		used, err := scheduler.Usage()
		if err != nil {
			return err
		}
		standalone.Say("%d pods of the load so far, %d bound; resident %s", have, bound, mib(float64(used.Resident)))
	}
}

func (s *system) failed(scheduler *cluster.SchedulerProcess) error {
	if err := s.Failed(); err != nil {
		return err
	}
	return scheduler.Failed()
}

// burstShapes are the applications of a burst. Pods of every fifth are spread over the zones.
const burstShapes = 10

// burst creates the pods of a burst, and waits until they are bound.
func (s *system) burst(ctx context.Context, scheduler *cluster.SchedulerProcess, seen *load.Bindings, before *scrape.Sample, at *point) error {
	ctx, cancel := context.WithTimeout(ctx, s.set.patience)
	defer cancel()
	_, bound, _ := seen.Count(forBurst)
	launched, begun := len(s.EC2.Instances()), time.Now()
	group, creating := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range burstShapes {
		n := (s.set.burst + burstShapes - 1 - i) / burstShapes
		for _, pod := range sandbox.Pods(fmt.Sprintf("burst-%d-%d", at.nodes, i), n, fmt.Sprintf("%dm", 900+50*i), "1536Mi", labelled(forBurst), spread(i)) {
			group.Go(func() error { return s.createPod(creating, pod.(*corev1.Pod)) })
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	created := time.Since(begun)
	last, err := seen.Until(ctx, forBurst, bound+s.set.burst, func() error { return s.failed(scheduler) })
	if err != nil {
		return err
	}
	at.burst, at.machines = last.Sub(begun), len(s.EC2.Instances())-launched
	at.during = span{begun, last}
	now, err := scrape.Look(ctx, scheduler)
	if err != nil {
		return err
	}
	at.planning, at.verifying = now.Since(before, scrape.Planning), now.Since(before, scrape.Verifying)
	standalone.Say("%d nodes: the burst of %d pods was created within %s and bound within %s, on %d new nodes; %.0f plans took %.2f s, their verification %.2f s",
		at.nodes, s.set.burst, created.Round(time.Second), at.burst.Round(100*time.Millisecond), at.machines, at.planning.Count, at.planning.Sum, at.verifying.Sum)
	return s.used(ctx, at)
}

// spread has every fifth application's pods spread over the zones.
func spread(i int) func(int, *corev1.Pod) {
	return func(_ int, p *corev1.Pod) {
		if i%5 == 0 {
			p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: corev1.LabelTopologyZone,
				WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": p.Labels["app"]}}}}
		}
	}
}

// used counts the new nodes that pods of the burst are on: the others were launched for nothing.
func (s *system) used(ctx context.Context, at *point) error {
	pods, err := s.kube.CoreV1().Pods(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{LabelSelector: labelFor + "=" + forBurst})
	if err != nil {
		return fmt.Errorf("listing the pods of the burst: %w", err)
	}
	nodes := map[string]bool{}
	for i := range pods.Items {
		nodes[pods.Items[i].Spec.NodeName] = true
	}
	if why := needless(at.machines, len(nodes)); why != "" {
		at.wrong("%s", why)
	}
	return nil
}

// atOnce deletes pods without their kubelets: thousands that end gracefully take minutes on a computer that does everything else, too.
var atOnce = *metav1.NewDeleteOptions(0)

// clear deletes the pods of the load and of the burst, and waits until what was launched for them is gone.
func (s *system) clear(ctx context.Context, scheduler *cluster.SchedulerProcess, at *point) error {
	ctx, cancel := s.whileRunning(ctx, scheduler)
	defer cancel()
	standalone.Say("%d nodes: the pods are deleted, and %d nodes have to end", at.nodes, len(s.EC2.Live())-s.nodes)
	if err := load.Sweep(ctx, s.Sandbox, s.kube, atOnce, s.nodes); err != nil {
		return err
	}
	for _, in := range s.EC2.Live() {
		if !s.own[in.ID] {
			at.wrong("instance %s (%s) lives instead of one of those that were there before", in.ID, in.Type)
		}
	}
	return s.consistent(ctx)
}

// consistent waits until NodeClaims and Nodes are as many as instances.
func (s *system) consistent(ctx context.Context) error {
	_, err := cluster.Until(ctx, s.Client(), &karpv1.NodeClaimList{}, func(claims []*karpv1.NodeClaim) (bool, string, error) {
		return len(claims) == s.nodes, fmt.Sprintf("%d claims, want %d", len(claims), s.nodes), nil
	})
	if err != nil {
		return err
	}
	_, err = cluster.UntilNodes(ctx, s.Client(), s.nodes, func(*corev1.Node) bool { return true })
	return err
}
