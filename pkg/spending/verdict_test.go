package spending

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
)

func TestVerdicts(t *testing.T) {
	running, node := phase(corev1.PodRunning), "node-c"
	failed := "failed: node pool pool, d ReplicaSet/web: "
	began := func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{ContainerID: "containerd://1"}}
	}
	because := func(reason string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Status.Reason = reason } }
	daemon := func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "DaemonSet" }
	tolerant := func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} }
	mirror := func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }
	type step struct {
		after  time.Duration
		change []func(*corev1.Pod) // changes of the pod
		gone   bool
	}
	at := func(after time.Duration, change ...func(*corev1.Pod)) step { return step{after: after, change: change} }
	gone := step{gone: true}
	for _, tt := range []struct {
		name  string
		steps []step
		end   func(*purse) // how the instance ends; nil: its claim is deleted
		want  string
	}{
		{"two minutes of Running", []step{at(0, running), at(2*time.Minute, running)}, nil, "served"},
		{"two minutes with restarts", []step{at(0, running), at(time.Minute, running, began), at(time.Minute, running)}, nil, "served"},
		{"less than that, and then its owner wants it gone", []step{at(0, running), at(time.Minute, running, deleted), gone}, func(p *purse) { p.Emptied("c") }, "neither"},
		{"two minutes less a moment, and it is gone", []step{at(0, running), at(119*time.Second, running, deleted), gone}, func(p *purse) { p.Emptied("c") }, "neither"},
		{"Succeeded", []step{at(0, running), at(time.Second, phase(corev1.PodSucceeded), began)}, nil, "served"},
		{"Failed by itself", []step{at(0, running), at(time.Second, phase(corev1.PodFailed), began)}, nil, "served"},
		{"past its deadline before any container was made", []step{at(0, phase(corev1.PodFailed), because("DeadlineExceeded"))}, nil, "served"},
		{"Failed while it is deleted", []step{at(0, running), at(time.Second, phase(corev1.PodFailed), began, deleted)}, func(p *purse) { p.Emptied("c") }, "neither"},
		{"rejected by the kubelet", []step{at(0, phase(corev1.PodFailed), because("OutOfcpu"))}, nil, failed + "rejected OutOfcpu"},
		{"evicted by a taint", []step{at(0, running), at(time.Second, running, target("DeletionByTaintManager", ""), deleted), gone}, nil, failed + "taint example.com/agent"},
		{"evicted by the kubelet", []step{at(0, running), at(time.Second, phase(corev1.PodFailed), began, target("TerminationByKubelet", "low on memory"), because("Evicted"))}, nil, failed + "kubelet Evicted"},
		{"evicted through the API from a node that takes no pods", []step{at(0, running), at(time.Second, running, target("EvictionByEvictionAPI", ""), deleted), gone}, nil, failed + "evicted"},
		{"evicted through the API from a node that takes pods", []step{at(0, running, tolerant), at(time.Second, running, tolerant, target("EvictionByEvictionAPI", ""), deleted), gone},
			func(p *purse) { p.Emptied("c") }, "neither"},
		{"preempted before two minutes", []step{at(0, running), at(time.Minute, running, target("PreemptionByScheduler", ""), deleted), gone}, nil, failed + "preempted"},
		{"preempted after them", []step{at(0, running), at(3*time.Minute, running, target("PreemptionByScheduler", ""), deleted), gone}, nil, "served"},
		{"its machine shuts down", []step{at(0, running), at(time.Second, phase(corev1.PodFailed), began, target("TerminationByKubelet", "Pod was terminated in response to imminent node shutdown."), because("Terminated"))},
			func(p *purse) { p.Ending("c", nil) }, "neither"},
		{"the garbage collector ends it", []step{at(0, running), at(time.Second, phase(corev1.PodFailed), target("DeletionByPodGC", ""))}, func(p *purse) { p.Ending("c", nil) }, "neither"},
		{"only a daemon runs", []step{at(0, running, daemon), at(time.Hour, running, daemon)}, nil, "neither"},
		{"only a static pod runs", []step{at(0, running, mirror), at(time.Hour, running, mirror)}, nil, "neither"},
		{"it never runs, and somebody deletes the claim", []step{at(0)}, nil, "neither"},
		{"EC2 takes the machine", []step{at(0)}, func(p *purse) { p.Ending("c", nil) }, "neither"},
		{"it never registers", []step{at(0)}, func(p *purse) {
			p.Ending("c", &guard.Fault{Machine: true, Cause: "never registered"})
		}, "failed: node class class, image ami: never registered"},
		{"what is said first counts", []step{at(0)}, func(p *purse) {
			p.Ending("c", nil)
			p.Ending("c", &guard.Fault{Machine: true, Cause: "instance ended"})
		}, "neither"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPurse(t, Config{})
			p.tells[node] = []corev1.Taint{{Key: "example.com/agent", Effect: corev1.TaintEffectNoExecute}}
			p.buys("c")
			var last *corev1.Pod
			for _, s := range tt.steps {
				p.clock.Step(s.after)
				p.Settle(nil)
				if s.gone {
					p.podChanged(last, true)
					continue
				}
				last = p.pod("p", node, s.change...)
				p.podChanged(last, false)
			}
			if p.verdict("c") == "undecided" && tt.end != nil {
				tt.end(p)
			}
			if p.verdict("c") == "undecided" {
				p.Ended("c", true)
			}
			if got := p.verdict("c"); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

// What Dovetail evicts from a node that it drains says nothing against the machine or the workload, even where another process drains it, whose reason
// isn't known here. Whoever else has closed a node may have found it broken.
func TestEvictionsByDovetailAreNoFailures(t *testing.T) {
	disrupted := corev1.Taint{Key: capacity.TaintDisrupted, Effect: corev1.TaintEffectNoSchedule}
	cordoned := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	for name, tc := range map[string]struct {
		taints []corev1.Taint
		want   string
	}{
		"drained by Dovetail":             {[]corev1.Taint{disrupted}, "undecided"},
		"drained by others":               {[]corev1.Taint{cordoned}, "failed: node pool pool, d ReplicaSet/web: evicted"},
		"drained by Dovetail, and closed": {[]corev1.Taint{cordoned, disrupted}, "undecided"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPurse(t, Config{})
			p.tells["node-c"] = tc.taints
			p.buys("c")
			p.podChanged(p.pod("p", "node-c", phase(corev1.PodRunning)), false)
			evicted := p.pod("p", "node-c", phase(corev1.PodRunning), target("EvictionByEvictionAPI", ""), deleted)
			p.podChanged(evicted, false)
			p.podChanged(evicted, true)
			if tc.want != "undecided" {
				p.Ended("c", true)
			}
			if got := p.verdict("c"); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
			if tc.want == "undecided" && len(p.state.instances.byClaim["c"].thrown) > 0 {
				t.Error("the eviction counts against the machine")
			}
		})
	}
}

// The verdict on an instance that was bought for no pod depends on its node.
func TestVerdictOnAMachineForNoPod(t *testing.T) {
	p := newPurse(t, Config{})
	c := p.buys("c")
	p.state.instances.byClaim["c"].workloads = nil
	c.Initialized, c.InitializedAt = true, p.clock.Now()
	p.Observe(c)
	p.passes(119 * time.Second)
	if got := p.verdict("c"); got != "undecided" {
		t.Errorf("before two minutes: %s", got)
	}
	p.passes(2 * time.Second)
	if got := p.verdict("c"); got != "served" || !p.state.served["c"] {
		t.Errorf("after two minutes: %s, to be recorded: %v", got, p.state.served)
	}
}

// An instance that was ended because it is empty has failed if a pod that it was bought for still waits, and otherwise not.
func TestEmptiedWhileItsPodsWait(t *testing.T) {
	for waits, want := range map[bool]string{true: "failed: node pool pool, d ReplicaSet/web: given back", false: "neither"} {
		p := newPurse(t, Config{})
		pod := p.pod("p", "")
		p.buys("c", pod)
		if waits {
			p.pending.Handler().OnAdd(pod, false)
		}
		p.Emptied("c")
		p.Ended("c", true)
		if all := p.state.instances; len(all.byClaim)+len(all.byNode)+len(all.byPod) > 0 {
			t.Errorf("it is watched after its end: %v", all)
		}
		if got := p.verdict("c"); got != want {
			t.Errorf("pods wait: %v: %s, want %s", waits, got, want)
		}
	}
}

// Pods that the filters refuse on the node as launched make it fail, but not where other pods are, which may have taken their capacity.
func TestRefusedByFilters(t *testing.T) {
	for _, tc := range []struct {
		name          string
		shown, beside bool // other pods are there: as the informer shows, as the ledger knows before it does
		want          string
	}{
		{name: "alone", want: "failed: node pool pool, d ReplicaSet/web: filter Picky"},
		{name: "others are there", shown: true, want: "undecided"},
		{name: "others are being bound there", beside: true, want: "undecided"},
	} {
		p := newPurse(t, Config{})
		pod := p.pod("p", "")
		p.buys("c", pod)
		if tc.shown {
			p.podChanged(p.pod("q", "node-c"), false)
		}
		p.RejectedByFilters("c", pod, "Picky", "no", tc.beside)
		p.passes(time.Second)
		if got := p.verdict("c"); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}

// While pods of the workload come or go, a spread may come to allow something else: that is forgiven twice.
func TestRefusedWhilePodsMove(t *testing.T) {
	p := newPurse(t, Config{})
	const forgiven = 2
	for i := range forgiven + 1 {
		name := fmt.Sprint("c", i)
		pod := p.pod("p", "")
		p.buys(name, pod)
		p.clock.Step(time.Second)
		p.podMoved(p.pod("other", "elsewhere"))
		p.RejectedByFilters(name, pod, "", "the planned node did not pass", false)
		p.Ended(name, true)
		want := "neither"
		if i == forgiven {
			want = "failed: node pool pool, d ReplicaSet/web: filter"
		}
		if got := p.verdict(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// A Node that leaves the cluster may take a topology domain with it, also while no process runs: refusals by a spread are then forgiven
// twice, refusals by other filters are not.
func TestRefusedAfterANodeHasLeft(t *testing.T) {
	for _, tc := range []struct {
		plugin         string
		leaves, starts bool
		want           string
	}{
		{plugin: "PodTopologySpread", leaves: true, want: "neither"},
		{plugin: "PodTopologySpread", starts: true, want: "neither"},
		{plugin: "PodTopologySpread", want: "failed: node pool pool, d ReplicaSet/web: filter PodTopologySpread"},
		{plugin: "NodeAffinity", leaves: true, want: "failed: node pool pool, d ReplicaSet/web: filter NodeAffinity"},
	} {
		p := newPurse(t, Config{})
		pod := p.pod("p", "")
		c := p.buys("c", pod)
		p.clock.Step(time.Second)
		if tc.leaves {
			p.NodeLeft()
		}
		if tc.starts {
			p.restart(Config{})
			if err := p.Restore(t.Context(), []*capacity.Claim{c}); err != nil {
				t.Fatal(err)
			}
		}
		p.RejectedByFilters("c", pod, tc.plugin, "no", false)
		p.Ended("c", true)
		if got := p.verdict("c"); got != tc.want {
			t.Errorf("%+v: %s", tc, got)
		}
	}
}

// Pods of the workload are still on a node that is being emptied when a pod is refused: a spread or an affinity between pods counts them there, the
// plan counted on the places that are reserved for them.
func TestRefusedWhilePodsLeave(t *testing.T) {
	failed := func(plugin string) string { return "failed: node pool pool, d ReplicaSet/web: filter " + plugin }
	for _, tc := range []struct {
		plugin string
		change func(*corev1.Pod) // of the pod on the node that is being emptied
		want   string
	}{
		{plugin: "PodTopologySpread", want: "neither"},
		{plugin: "InterPodAffinity", want: "neither"},
		{plugin: "NodeResourcesFit", want: failed("NodeResourcesFit")},
		{plugin: "PodTopologySpread", change: phase(corev1.PodSucceeded), want: failed("PodTopologySpread")},
		{plugin: "PodTopologySpread", change: func(p *corev1.Pod) { p.OwnerReferences[0].Name, p.OwnerReferences[0].UID = "another", "another" }, want: failed("PodTopologySpread")},
	} {
		p := newPurse(t, Config{})
		pod, old := p.pod("p", ""), p.pod("old", "elsewhere")
		if tc.change != nil {
			tc.change(old)
		}
		p.seen["elsewhere"], p.drained = []*corev1.Pod{old}, []string{"elsewhere"}
		p.buys("c", pod)
		p.clock.Step(time.Second)
		p.RejectedByFilters("c", pod, tc.plugin, "no", false)
		p.Ended("c", true)
		if got := p.verdict("c"); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.plugin, got, tc.want)
		}
	}
}

// A probe that was refused because of changes after its plan gives no verdict: another one is bought a minute later, and three in a row
// count as one failure. All other refusals of a probe are failures.
func TestProbesThatAreOvertaken(t *testing.T) {
	for _, tc := range []struct {
		plugin string
		leaves bool
		moves  bool
		want   []int // failed probes, after each
	}{
		{plugin: "PodTopologySpread", leaves: true, want: []int{0, 0, 1, 1}},
		{plugin: "NodeAffinity", moves: true, want: []int{0, 0, 1, 1}},
		{plugin: "NodeAffinity", leaves: true, want: []int{1, 2, 3, 4}},
	} {
		p := newPurse(t, Config{})
		pod := p.pod("p", "")
		p.pending.Handler().OnAdd(pod, false)
		p.buys("c", pod)
		p.Fail("c", guard.Fault{Cause: "deleted", Message: "somebody has deleted it"})
		var got []int
		for i := range tc.want {
			p.clock.Step(24 * time.Hour / 100)
			name := fmt.Sprint("probe", i)
			p.buysProbe(name, []guard.Key{guard.PodKey("pool", web)}, pod)
			p.clock.Step(time.Second)
			if tc.leaves {
				p.NodeLeft()
			}
			if tc.moves {
				p.podMoved(p.pod("other", "elsewhere"))
			}
			p.RejectedByFilters(name, pod, tc.plugin, "no", false)
			p.Emptied(name)
			p.Ended(name, true)
			got = append(got, p.state.breakers.Breakers()[0].Failed)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: failed probes %v, want %v", tc.plugin, got, tc.want)
		}
	}
}

// Deletions of instances by a user are forgiven as long as they are of one round. A claim that was never launched ended for other reasons,
// whenever that is reported.
func TestDeletedAgainAndAgain(t *testing.T) {
	p := newPurse(t, Config{})
	for _, tt := range []struct {
		claim    string
		launched bool
		want     string
	}{
		{"never-launched", false, "neither"},
		{"nor-this-one", false, "neither"},
		{"a", true, "neither"},
		{"again-not-launched", false, "neither"},
		{"b", true, "failed: node pool pool, d ReplicaSet/web: deleted"},
	} {
		p.clock.Step(time.Minute)
		c := p.buys(tt.claim)
		c.Launched = tt.launched
		p.Observe(c)
		p.Ended(tt.claim, true)
		if got := p.verdict(tt.claim); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.claim, got, tt.want)
		}
	}
}

// Pods that are evicted because a node's kubelet is silent are a fault of the machine: before initialization liveness reports that when it
// gives the node up, afterwards it is a fault of the image.
func TestEvictedFromAnUnhealthyNode(t *testing.T) {
	for initialized, want := range map[bool]string{false: "undecided", true: "failed: node class class, image ami: taint node.kubernetes.io/unreachable"} {
		p := newPurse(t, Config{})
		p.tells["node-c"] = []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}}
		c := p.buys("c")
		if initialized {
			c.Initialized, c.InitializedAt = true, p.clock.Now()
			p.Observe(c)
		}
		p.podChanged(p.pod("p", "node-c"), false)
		p.podChanged(p.pod("p", "node-c", target("DeletionByTaintManager", ""), deleted), true)
		p.passes(time.Second)
		if got := p.verdict("c"); got != want {
			t.Errorf("initialized: %v: %s, want %s", initialized, got, want)
		}
	}
}

// A gang of which only a part can be placed again and again is no free event: the instances launched for it are paid. Pods that got other
// capacity need no more.
func TestUnusedMachines(t *testing.T) {
	for waits, want := range map[bool]string{true: "failed: node pool pool, d ReplicaSet/web: given back", false: "neither"} {
		p := newPurse(t, Config{})
		pod := p.pod("p", "")
		for i := range mostGangs + 1 {
			name := fmt.Sprint("c", i)
			c := p.buys(name, pod)
			c.Launched = true
			p.Observe(c)
			p.Unused(name, func(types.UID) bool { return waits })
			p.Ended(name, true)
			if got := p.verdict(name); i < mostGangs && got != "neither" || i == mostGangs && got != want {
				t.Errorf("pods wait: %v, the %dth: %s", waits, i+1, got)
			}
		}
	}
}

// An instance whose pods were kept off while others of their workload came and went is forgiven, like one on which the filters refuse them.
func TestEmptiedWhilePodsMove(t *testing.T) {
	p := newPurse(t, Config{})
	pod := p.pod("p", "")
	p.pending.Handler().OnAdd(pod, false)
	p.buys("c", pod)
	p.clock.Step(time.Second)
	p.podMoved(p.pod("other", "elsewhere"))
	p.Emptied("c")
	p.Ended("c", true)
	if got := p.verdict("c"); got != "neither" {
		t.Error(got)
	}
}

// An instance that is empty because its pods were evicted or rejected has failed, however soon it is ended.
func TestEmptiedByThrownPods(t *testing.T) {
	p := newPurse(t, Config{})
	p.tells["node-c"] = []corev1.Taint{{Key: "example.com/agent", Effect: corev1.TaintEffectNoExecute}}
	p.buys("c")
	p.podChanged(p.pod("p", "node-c"), false)
	p.podChanged(p.pod("p", "node-c", target("DeletionByTaintManager", ""), deleted), true)
	p.Emptied("c")
	p.Ended("c", true)
	if got, want := p.verdict("c"), "failed: node pool pool, d ReplicaSet/web: taint example.com/agent"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A pod that was preempted while it was being bound is not on the instance yet.
func TestPreemptedBeforeItWasBound(t *testing.T) {
	p := newPurse(t, Config{})
	pod := p.pod("p", "", target("PreemptionByScheduler", ""), deleted)
	p.buys("c", pod)
	p.podChanged(pod, true)
	p.passes(time.Second)
	if got, want := p.verdict("c"), "failed: node pool pool, d ReplicaSet/web: preempted"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// While capacity is reserved or a pod is there, time alone gives no verdict: a boot may take an hour.
func TestNoVerdictWhileItsPodIsThere(t *testing.T) {
	p := newPurse(t, Config{})
	p.buys("c")
	p.podChanged(p.pod("p", "node-c"), false)
	p.passes(time.Hour)
	if got := p.verdict("c"); got != "undecided" {
		t.Error(got)
	}
}

// Served is recorded once, and what happens to the instance later is no failure of it.
func TestServedIsWrittenOnce(t *testing.T) {
	p := newPurse(t, Config{})
	p.buys("c")
	p.podChanged(p.pod("p", "node-c", phase(corev1.PodRunning)), false)
	p.passes(2 * time.Minute)
	if !p.state.served["c"] {
		t.Fatal("not to be recorded")
	}
	clear(p.state.served)
	p.podChanged(p.pod("q", "node-c", phase(corev1.PodSucceeded)), false)
	p.passes(2 * time.Minute)
	if len(p.state.served) > 0 {
		t.Error("to be recorded twice")
	}
	p.Ending("c", &guard.Fault{Machine: true, Cause: "instance ended"})
	p.Ended("c", true)
	if got := p.verdict("c"); got != "neither" {
		t.Error(got)
	}
}

// Pods that are evicted or rejected again and again open their workload's breaker although the instance works for other pods.
func TestThrownOffWhereOthersWork(t *testing.T) {
	p := newPurse(t, Config{})
	p.buys("c")
	p.podChanged(p.pod("good", "node-c", phase(corev1.PodRunning)), false)
	p.passes(2 * time.Minute)
	for i := range 3 {
		off := p.pod("bad", "node-c", phase(corev1.PodFailed))
		off.UID, off.Status.Reason, off.OwnerReferences[0].Name = types.UID(fmt.Sprint("bad-", i)), "OutOfcpu", "other"
		off.OwnerReferences[0].UID = "other"
		p.podChanged(off, false)
	}
	if got, want := p.verdict("c"), "failed: node pool pool, d ReplicaSet/other: rejected OutOfcpu"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// For pods without a controller the limit is the same as for a controller's: twice as many evictions and rejections as there are such pods.
func TestPodsThatNothingOwnsAreCountedTogether(t *testing.T) {
	p := newPurse(t, Config{})
	p.buys("c")
	bare := func(name string, how ...func(*corev1.Pod)) *corev1.Pod {
		pod := p.pod(name, "node-c", how...)
		pod.OwnerReferences = nil
		return pod
	}
	for i := range 3 {
		p.podChanged(bare(fmt.Sprint("good-", i), phase(corev1.PodRunning)), false)
	}
	p.passes(2 * time.Minute)
	throw := func(n int) string {
		for i := range n {
			off := bare("bad", phase(corev1.PodFailed))
			off.UID, off.Status.Reason = types.UID(fmt.Sprint("bad-", i)), "OutOfcpu"
			p.podChanged(off, false)
		}
		return p.verdict("c")
	}
	if got := throw(3); got != "served" {
		t.Errorf("three of six are thrown off: %s", got)
	}
	if got := throw(20); !strings.HasPrefix(got, "failed") {
		t.Errorf("more than all are thrown off twice: %s", got)
	}
}

// A Job's pods that are gone before the next tick have served.
func TestWorkThatIsGoneBeforeTheTick(t *testing.T) {
	p := newPurse(t, Config{})
	p.buys("c")
	p.podChanged(p.pod("p", "node-c", phase(corev1.PodRunning)), false)
	p.clock.Step(servedAfter)
	p.podChanged(p.pod("p", "node-c", phase(corev1.PodRunning), func(pod *corev1.Pod) {
		pod.DeletionTimestamp = &metav1.Time{Time: p.clock.Now()}
	}), false)
	if got := p.verdict("c"); got != "served" {
		t.Error(got)
	}
}
