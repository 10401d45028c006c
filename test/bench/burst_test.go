package bench

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/sandbox"
)

const (
	burstPods  = 1000
	burstTurns = 3
	unlimited  = 20_000 // requests per second: with the shipped limit, 500 and a burst of 1,000, the limit would be measured
)

// BenchmarkBurst lets 1,000 pods wait for nodes. Their plan is made and their gates are closed; then EC2 is allowed to launch, and the
// time is taken from the first Node object to the last binding. In turns with it, the same binary as a plain kube-scheduler places
// 1,000 such pods on as many existing nodes of the same sizes; its time is taken from its first binding to its last, without its
// start-up. Both find the pods in the API when they start.
//
// node-to-bound-s is Dovetail's time, nodes-s the part of it until the last Node was created, plain-s the plain scheduler's, ratio the
// median of the pairs' ratios; pods/s is Dovetail's rate from the first binding on.
func BenchmarkBurst(b *testing.B) {
	for b.Loop() {
		var ours, nodes, others samples
		var rates []float64
		bought := 0
		for range burstTurns {
			t := burst(b)
			existing := placed(b, t.nodes)
			b.Logf("%d Nodes within %v, last binding after %v; plain %v", len(t.nodes), t.lastNode, t.lastPod, existing)
			ours, nodes, others = append(ours, t.lastPod), append(nodes, t.lastNode), append(others, existing)
			rates, bought = append(rates, burstPods/(t.lastPod-t.firstPod).Seconds()), len(t.nodes)
		}
		report(b, map[string]float64{
			"node-to-bound-s": ours.seconds(), "nodes-s": nodes.seconds(), "plain-s": others.seconds(), "ratio": ours.to(others),
			"pods/s": median(rates), "nodes": float64(bought),
		})
	}
}

// turn holds times after the first Node was created.
type turn struct {
	lastNode, firstPod, lastPod time.Duration
	nodes                       []corev1.Node
}

// burst is one turn with Dovetail.
func burst(b *testing.B) turn {
	e := newEnv(b)
	defer e.Stop()
	launch := make(chan struct{})
	e.EC2.Before("CreateFleet", func(*ec2.Request) *ec2.Fault { return &ec2.Fault{Call: func() { <-launch }} })
	e.pods(burstPods, "250m", "512Mi")
	w := e.watch()
	defer w.stop()
	s := e.run(true, sandbox.SchedulerName, unlimited)
	e.until("all pods to be gated", func() bool {
		return sum(e.metrics(s), "scheduler_pending_pods", `queue="gated"`) == burstPods
	})
	e.quiet(s)
	close(launch)
	w.untilBound(burstPods)
	w.stop()
	list, err := e.kube.CoreV1().Nodes().List(e.ctx, metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	at := func(t time.Time) time.Duration { return t.Sub(w.nodes[0]).Round(time.Millisecond) }
	return turn{lastNode: at(w.nodes[len(w.nodes)-1]), firstPod: at(w.bound[0]), lastPod: at(w.bound[burstPods-1]), nodes: list.Items}
}

// placed is one turn of the plain scheduler, on nodes of the same sizes.
func placed(b *testing.B, like []corev1.Node) time.Duration {
	e := newEnv(b)
	defer e.Stop()
	e.addNodes(fleet(like))
	e.pods(burstPods, "250m", "512Mi")
	w := e.watch()
	defer w.stop()
	e.run(false, sandbox.SchedulerName, unlimited)
	w.untilBound(burstPods)
	w.stop()
	return w.bound[burstPods-1].Sub(w.bound[0])
}
