package simulate

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// BenchmarkVerify verifies 1,000 pods on 51 hypothetical 20-CPU nodes (1,000 nodes where one class has anti-affinity to itself) beside
// full existing ones of 10 pods each. us-CPU/pod counts all threads, because that CPU time is missing in the scheduling loop.
func BenchmarkVerify(b *testing.B) {
	const pods = 1000
	for _, existing := range []int{0, 1000, 5000} {
		c := newCluster(b, nil)
		c.load(fullNodes(existing))
		for _, kind := range []string{"plain", "zone-spread", "host-anti-affinity"} {
			for _, classes := range []int{1, 20} {
				b.Run(fmt.Sprintf("%s/classes=%d/nodes=%d", kind, classes, existing), func(b *testing.B) {
					trial := benchTrial(kind, classes, pods)
					if got := c.verify(trial); len(got) > 0 {
						b.Fatalf("%d of %d steps refused, the first: %s", len(got), pods, got[0])
					}
					start := cpuTime(b)
					for b.Loop() {
						c.verify(trial)
					}
					b.ReportMetric(float64((cpuTime(b)-start).Microseconds())/float64(b.N)/pods, "us-CPU/pod")
				})
			}
		}
	}
}

// BenchmarkNodes converts the snapshot after ten nodes have changed.
func BenchmarkNodes(b *testing.B) {
	for _, existing := range []int{1000, 5000} {
		b.Run(fmt.Sprintf("nodes=%d", existing), func(b *testing.B) {
			c := newCluster(b, nil)
			nodes, pods := fullNodes(existing)
			c.load(nodes, pods)
			c.world.Nodes(nil)
			logger := klog.FromContext(c.ctx)
			for b.Loop() {
				for _, p := range pods[:100:100] {
					if err := c.sched.Cache.UpdatePod(logger, p, p); err != nil {
						b.Fatal(err)
					}
				}
				c.refresh()
				if got := c.world.Nodes(nil); len(got) != existing {
					b.Fatalf("%d nodes, want %d", len(got), existing)
				}
			}
		})
	}
}

func fullNodes(n int) ([]*corev1.Node, []*corev1.Pod) {
	var nodes []*corev1.Node
	var pods []*corev1.Pod
	for i := range n {
		name := fmt.Sprintf("full-%d", i)
		nodes = append(nodes, node(name, fmt.Sprintf("z%d", i%3)).Capacity(map[corev1.ResourceName]string{corev1.ResourceCPU: "10", corev1.ResourcePods: "110"}).Obj())
		for j := range 10 {
			pods = append(pods, pod(fmt.Sprintf("%s-%d", name, j), fmt.Sprintf("app-%d", (i+j)%50)).Node(name).Obj())
		}
	}
	return nodes, pods
}

// benchTrial assigns every class's pods to the nodes round robin, over three zones.
func benchTrial(kind string, classes, pods int) capacity.Trial {
	nodes := 51
	if kind == "host-anti-affinity" {
		nodes = max(nodes, pods/classes)
	}
	var trial capacity.Trial
	for i := range nodes {
		n := node(fmt.Sprintf("new-%d", i), fmt.Sprintf("z%d", i%3)).Capacity(map[corev1.ResourceName]string{corev1.ResourceCPU: "20", corev1.ResourcePods: "110"})
		trial.Nodes = append(trial.Nodes, capacity.TrialNode{Node: n.Obj()})
	}
	representatives := make([]*corev1.Pod, classes)
	for i := range representatives {
		name := fmt.Sprintf("new-%d", i)
		p := pod(name, name)
		switch kind {
		case "zone-spread":
			p.SpreadConstraint(1, corev1.LabelTopologyZone, corev1.DoNotSchedule, app(name).Obj(), nil, nil, nil, nil)
		case "host-anti-affinity":
			p.PodAntiAffinity(corev1.LabelHostname, app(name).Obj(), st.PodAntiAffinityWithRequiredReq)
		}
		representatives[i] = p.Obj()
	}
	for i := range pods {
		class, k := i%classes, i/classes
		trial.Steps = append(trial.Steps, step(representatives[class], trial.Nodes[(class+k)%nodes].Node.Name))
	}
	return trial
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
