package bench

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

// filteredNodes is the size of the cluster. kube-scheduler itself would stop when it has found a tenth of that number; here every node
// is filtered, so that the results are per node.
const filteredNodes = 5000

// reserve reserves capacity for 1,000 pods on 60 existing nodes that are still initializing.
func (r *rig) reserve() (forget func()) {
	r.Helper()
	pods := r.mixed("reserved", plannedPods)
	for _, p := range pods {
		r.reservations.Submit(refOf(p), r.class(p))
	}
	placements := r.placements("node", pods, plannedNodes)
	there := ledger.NodeStatus{Managed: true, Registered: true}
	r.reservations.Step(func(l *ledger.Ledger, now time.Time) {
		for i := range plannedNodes {
			l.Existing(fmt.Sprintf("node-%d", i), there)
		}
		l.Commit("plan", placements, now)
	})
	return func() {
		r.gone(pods)
		there.Initialized = true
		r.reservations.Step(func(l *ledger.Ledger, now time.Time) {
			for i := range plannedNodes {
				l.Cached(fmt.Sprintf("node-%d", i), there, now)
			}
		})
		if !r.reservations.Idle() {
			r.Fatal("the ledger is not idle though nothing is planned any more")
		}
	}
}

// BenchmarkFilter runs PreFilter and Filter for a pod without a plan on 5,000 nodes that have capacity for it, with an empty ledger
// and with one that has reservations for 1,000 pods on 60 of the nodes. In turns: upstream's plugins alone, the same with Binder among
// them, and Binder by itself; of each the fastest tenth counts. binder-ns/node and others-ns/node are PreFilter and Filter together;
// binder/others is their ratio, with/without that of the whole profile with our plugins to the one without.
func BenchmarkFilter(b *testing.B) {
	r := newRig(b)
	r.addNodes(filteredNodes, 2)
	nodes := r.snapshot()
	measure := func(ledger string) {
		for _, kind := range kinds {
			b.Run(fmt.Sprintf("%s/ledger=%s", kind.name, ledger), func(b *testing.B) {
				p := r.pod("stranger-"+kind.name, "1", kind.shape)
				var others, with, alone samples
				turns := []func(){
					func() { others = append(others, r.filterAll(b, r.profile(plain), p, nodes)) },
					func() { with = append(with, r.filterAll(b, r.profile(withPlugins), p, nodes)) },
					func() { alone = append(alone, r.binderAll(b, p, nodes)) },
				}
				for b.Loop() {
					for _, turn := range turns {
						turn()
					}
					slices.Reverse(turns) // so that it isn't always the same one that collects the other's garbage
				}
				report(b, map[string]float64{
					"binder-ns/node": alone.undisturbed() / filteredNodes, "others-ns/node": others.undisturbed() / filteredNodes,
					"binder/others": alone.undisturbed() / others.undisturbed(), "with/without": with.undisturbed() / others.undisturbed(),
				})
			})
		}
	}
	measure("empty")
	forget := r.reserve()
	measure("1000-on-60")
	forget()
}

// filterAll runs PreFilter and Filter like a cycle, on all nodes, in parallel.
func (r *rig) filterAll(b *testing.B, f framework.Framework, p *corev1.Pod, nodes []fwk.NodeInfo) time.Duration {
	b.Helper()
	start := time.Now()
	state := framework.NewCycleState()
	if _, status, _ := f.RunPreFilterPlugins(r.ctx, state, p); !status.IsSuccess() {
		b.Fatalf("PreFilter: %v", status)
	}
	refused := make([]bool, len(nodes))
	f.Parallelizer().Until(r.ctx, len(nodes), func(i int) {
		refused[i] = !f.RunFilterPluginsWithNominatedPods(r.ctx, state, p, nodes[i]).IsSuccess()
	}, "Filter")
	took := time.Since(start)
	for i, no := range refused {
		if no {
			b.Fatalf("node %s is refused; all of them have room", nodes[i].Node().Name)
		}
	}
	return took
}

// binderAll runs Binder's part of filterAll.
func (r *rig) binderAll(b *testing.B, p *corev1.Pod, nodes []fwk.NodeInfo) time.Duration {
	b.Helper()
	start := time.Now()
	state := framework.NewCycleState()
	_, status := r.binder.PreFilter(r.ctx, state, p, nodes)
	if status.IsSkip() {
		return time.Since(start) // then the framework does not call Filter
	}
	if !status.IsSuccess() {
		b.Fatalf("PreFilter: %v", status)
	}
	r.profile(withPlugins).Parallelizer().Until(r.ctx, len(nodes), func(i int) {
		r.binder.Filter(r.ctx, state, p, nodes[i])
	}, "Filter")
	return time.Since(start)
}

// BenchmarkCycle is a whole scheduling cycle up to the choice of a node, on 5,000 nodes, with reservations for 1,000 pods on 60 of
// them: for a pod pinned to its planned node and for a pod without a plan, each compared with the same pod and upstream's plugins
// alone. A ratio below one is what the pin saves, above one what the reservations cost.
func BenchmarkCycle(b *testing.B) {
	r := newRig(b)
	r.addNodes(filteredNodes, 2)
	r.snapshot()
	forget := r.reserve()
	defer forget()
	for i, kind := range kinds {
		b.Run(kind.name+"/pinned", func(b *testing.B) {
			node := fmt.Sprintf("node-%d", i)
			p := r.pod("pinned-"+kind.name, "1", kind.shape)
			r.reservations.Submit(refOf(p), r.class(p))
			r.reservations.Step(func(l *ledger.Ledger, now time.Time) {
				l.Commit(node, []capacity.Placement{{Class: r.class(p), Pod: refOf(p), Node: node}}, now)
			})
			defer r.gone([]*corev1.Pod{p})
			r.cycles(b, p, node)
		})
		b.Run(kind.name+"/stranger", func(b *testing.B) {
			r.cycles(b, r.pod("stranger-"+kind.name, "1", kind.shape), "")
		})
	}
}

// cycles runs the pod's cycles, with either profile in turns. With ours the pod must get the node, if one is named.
func (r *rig) cycles(b *testing.B, p *corev1.Pod, node string) {
	b.Helper()
	info, err := framework.NewPodInfo(p)
	if err != nil {
		b.Fatal(err)
	}
	cycle := func(profile string) (string, time.Duration) {
		start := time.Now()
		result, err := r.sched.SchedulePod(r.ctx, r.profile(profile), framework.NewCycleState(), &framework.QueuedPodInfo{PodInfo: info})
		took := time.Since(start)
		if err != nil {
			b.Fatal(err)
		}
		return result.SuggestedHost, took
	}
	var ours, others samples
	turns := []func(){
		func() {
			_, took := cycle(plain)
			others = append(others, took)
		},
		func() {
			host, took := cycle(withPlugins)
			ours = append(ours, took)
			if node != "" && host != node {
				b.Fatalf("the pod goes to %s, it is planned on %s", host, node)
			}
		},
	}
	for b.Loop() {
		for _, turn := range turns {
			turn()
		}
		slices.Reverse(turns)
	}
	report(b, map[string]float64{
		"ours-us": ours.undisturbed() / 1e3, "plain-us": others.undisturbed() / 1e3, "ratio": ours.undisturbed() / others.undisturbed(),
	})
}
