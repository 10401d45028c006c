package bench

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

const (
	// postFilterBound is the design's bound: the scheduling loop does not wait for us.
	postFilterBound = time.Millisecond
	// What is planned meanwhile.
	plannedPods  = 1000
	plannedNodes = 60
)

// BenchmarkPostFilter calls the profile's PostFilter chain for pods that fit on none of 5,000 full nodes while 1,000 pods are planned
// on 60 future nodes. Each pod is new to the plugin, so that its class has to be computed. p50-us and p99-us are one PostFilter;
// control-p99-us is a computation of about the same length, in turns with it: what exceeds its usual few microseconds is caused by the
// machine. of-cycle-% is what PostFilter's median adds to the rest of such a pod's scheduling cycle.
func BenchmarkPostFilter(b *testing.B) {
	r := newRig(b)
	r.addNodes(5000, 8)
	r.snapshot()
	r.plan("planned", r.mixed("planned", plannedPods), plannedNodes)
	for _, kind := range kinds {
		b.Run(kind.name, func(b *testing.B) { r.postFilter(b, kind.name, kind.shape, fwk.Success) })
	}
	b.Run("late-comers", func(b *testing.B) {
		// A thousand of its class are planned already.
		var siblings []*corev1.Pod
		for i := range plannedPods {
			siblings = append(siblings, r.pod(fmt.Sprintf("late-%d", i%20), "2", kinds[0].shape))
		}
		r.plan("late", siblings, plannedNodes)
		defer r.gone(siblings)
		r.postFilter(b, "late", kinds[0].shape, fwk.Success)
	})
	b.Run("while-planning", func(b *testing.B) {
		stop := r.keepPlanning()
		defer stop()
		r.postFilter(b, "busy", kinds[0].shape, fwk.Success)
	})
	b.Run("refused", func(b *testing.B) { r.refused(b) })
}

// batch is how many pods the ledger records before they are forgotten again, so that its size stays the same.
const batch = 500

// postFilter measures pods of twenty applications.
func (r *rig) postFilter(b *testing.B, name string, shape func(*corev1.Pod), want fwk.Code) {
	f := r.profile(withPlugins)
	cycle, state, statuses := r.failedCycle(b, r.pod(name+"-0", "2", shape))
	var took, control samples
	var taken []*corev1.Pod
	for i := 0; b.Loop(); i++ {
		p := r.pod(fmt.Sprintf("%s-%d", name, i%20), "2", shape)
		start := time.Now()
		_, status := f.RunPostFilterPlugins(r.ctx, state, p, statuses)
		took = append(took, time.Since(start))
		control = append(control, compute())
		if status.Code() != want {
			b.Fatalf("PostFilter: %v, want %s", status, want)
		}
		if taken = append(taken, p); len(taken) == batch {
			r.gone(taken)
			taken = taken[:0]
		}
	}
	r.gone(taken)
	reportPostFilter(b, took, control, cycle)
}

// refused measures pods that were refused before and are tried again: Provision answers with the reason, and preemption follows, at
// upstream's cost. Only Provision's answer is measured.
func (r *rig) refused(b *testing.B) {
	p := r.pod("refused", "2", kinds[0].shape)
	c := r.class(p)
	cycle, _, _ := r.failedCycle(b, p)
	r.reservations.Submit(refOf(p), c)
	r.reservations.Step(func(l *ledger.Ledger, now time.Time) {
		l.Refuse([]types.UID{p.UID}, "no pool allows it", false, now)
	})
	defer r.gone([]*corev1.Pod{p})
	var took, control samples
	for b.Loop() {
		start := time.Now()
		_, status := r.provision.PostFilter(r.ctx, nil, p, framework.NewDefaultNodeToStatus())
		took = append(took, time.Since(start))
		control = append(control, compute())
		if !status.IsRejected() {
			b.Fatalf("PostFilter: %v, want a refusal", status)
		}
	}
	reportPostFilter(b, took, control, cycle)
}

func reportPostFilter(b *testing.B, took, control samples, cycle time.Duration) {
	b.Helper()
	p99, noise := took.quantile(0.99), control.quantile(0.99)
	report(b, map[string]float64{
		"p50-us": microseconds(took.quantile(0.5)), "p99-us": microseconds(p99), "control-p99-us": microseconds(noise),
		"of-cycle-%": 100 * float64(took.quantile(0.5)) / float64(cycle),
	})
	if len(took) >= 1000 && p99 >= postFilterBound && noise < postFilterBound {
		b.Errorf("p99 of PostFilter is %v, must be below %v", p99, postFilterBound)
	}
}

var page [8 << 10]byte

// compute takes about as long as PostFilter, and always the same time if it isn't interrupted.
func compute() time.Duration {
	start := time.Now()
	page[0] = sha256.Sum256(page[:])[0]
	return time.Since(start)
}

// failedCycle runs scheduling cycles that find no node, and returns their median time and the input of PostFilter.
func (r *rig) failedCycle(b *testing.B, p *corev1.Pod) (time.Duration, fwk.CycleState, *framework.NodeToStatus) {
	b.Helper()
	info, err := framework.NewPodInfo(p)
	if err != nil {
		b.Fatal(err)
	}
	var took samples
	var state fwk.CycleState
	var unfit *framework.FitError
	for range 15 {
		state = framework.NewCycleState()
		start := time.Now()
		_, err := r.sched.SchedulePod(r.ctx, r.profile(plain), state, &framework.QueuedPodInfo{PodInfo: info})
		took = append(took, time.Since(start))
		if !errors.As(err, &unfit) {
			b.Fatalf("the cycle ended with %v, want no node", err)
		}
	}
	return took.quantile(0.5), state, unfit.Diagnosis.NodeToStatus
}

// keepPlanning changes the ledger as the launcher does for bursts of 1,000 pods, again and again at a burst's pace: it lists the
// waiting pods, reserves capacity for them, and removes the nodes again.
func (r *rig) keepPlanning() (stop func()) {
	ctx, cancel := context.WithCancel(r.ctx)
	pods := r.mixed("burst", plannedPods)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			r.reservations.Step(func(l *ledger.Ledger, _ time.Time) { l.QueuedPods(l.Queue()) })
			r.reservations.Step(func(l *ledger.Ledger, _ time.Time) { l.InFlight() })
			r.plan("burst", pods, plannedNodes)
			for i := range plannedNodes {
				r.reservations.Step(func(l *ledger.Ledger, now time.Time) {
					l.ClaimGone(fmt.Sprintf("burst-%d", i), "lost", true, now)
				})
			}
			for _, p := range pods {
				r.gone([]*corev1.Pod{p})
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}
