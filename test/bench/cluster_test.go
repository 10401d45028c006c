package bench

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/sandbox"
)

const (
	patience  = 10 * time.Minute       // bounds every wait
	untilTick = 200 * time.Millisecond // between two looks of env.until
)

// env is a cluster of processes (etcd, kube-apiserver, an EC2 simulator without kubelets) with a pool whose class is ready, without a
// scheduler.
type env struct {
	*testing.B
	*sandbox.Sandbox
	ctx  context.Context
	kube kubernetes.Interface
	runs int
}

func newEnv(b *testing.B) *env {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 6*patience)
	e := &env{B: b, ctx: ctx}
	s, err := sandbox.Start(ctx, sandbox.Options{
		EC2: ec2.Config{Seed: 1}, NoKubelets: true, Idle: true,
		Objects: []client.Object{sandbox.NodeClass("default"), sandbox.NodePool("default", smallMachines)},
	})
	b.Cleanup(cancel)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(s.Stop)
	e.Sandbox = s
	config := s.AdminConfig()
	config.ContentType = runtime.ContentTypeProtobuf
	e.kube = kubernetes.NewForConfigOrDie(config)
	return e
}

// smallMachines restricts a pool to instances with four CPUs, so that a burst needs many.
func smallMachines(p *karpv1.NodePool) {
	p.Spec.Template.Spec.Requirements = append(p.Spec.Template.Spec.Requirements, sandbox.Require("karpenter.k8s.aws/instance-cpu", "4"))
}

// plainName is the scheduler name that a scheduler without our plugins serves beside one with them.
const plainName = "plain-scheduler"

// run starts a scheduler with the shipped configuration except for client limits and leader election. It serves sandbox.SchedulerName. Without our
// plugins the binary is a plain kube-scheduler, which serves the given name. qps limits its requests of each kind.
func (e *env) run(plugins bool, name string, qps int) *cluster.SchedulerProcess {
	e.Helper()
	config, err := e.ShippedConfig()
	if err != nil {
		e.Fatal(err)
	}
	// No kubelet runs here, so no image ever proves that its nodes initialize.
	config.SetProvisionArgs(map[string]any{"clusterName": e.EC2.Cluster(), "region": e.EC2.Region(), "newImageNodes": 0})
	config["leaderElection"] = map[string]any{"leaderElect": false} // schedulers run after or beside each other and should not wait for a lease
	config["clientConnection"] = map[string]any{"qps": qps, "burst": max(10, qps/10)}
	if !plugins {
		delete(config, "profiles")
		config.AddProfile(name)
	}
	e.runs++
	s, err := e.Cluster.StartScheduler(e.ctx, cluster.SchedulerOptions{
		Name: fmt.Sprintf("scheduler-%d", e.runs), Config: config, AWSEnv: e.EC2.Env(), Verbosity: 1,
	})
	if err != nil {
		e.Fatal(err)
	}
	return s
}

// pods creates n pods with these requests, and returns when all of them exist.
func (e *env) pods(n int, cpu, memory string) {
	e.Helper()
	if err := e.Create(e.ctx, sandbox.Pods("bench", n, cpu, memory)...); err != nil {
		e.Fatal(err)
	}
}

// noPods deletes the pods of an application and waits until they are gone.
func (e *env) noPods(app string) {
	e.Helper()
	now := int64(0)
	if err := e.kube.CoreV1().Pods("default").DeleteCollection(e.ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{LabelSelector: "app=" + app}); err != nil {
		e.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(e.ctx, patience)
	defer cancel()
	if _, err := cluster.UntilPods(ctx, e.Client(), 0, cluster.Bound, client.InNamespace("default"), client.MatchingLabels{"app": app}); err != nil {
		e.Fatal(err)
	}
}

// node returns a Ready node of the given size.
func node(name, zone string, room corev1.ResourceList) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelHostname: name, corev1.LabelTopologyZone: zone, corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux"}},
		Status: corev1.NodeStatus{Capacity: room, Allocatable: room, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
}

// addNodes creates Nodes and removes the taint that the API server puts on new ones, as the node lifecycle controller, which doesn't
// run here, would.
func (e *env) addNodes(nodes []*corev1.Node) {
	e.Helper()
	objects := make([]client.Object, 0, len(nodes))
	for _, n := range nodes {
		objects = append(objects, n)
	}
	if err := e.Create(e.ctx, objects...); err != nil {
		e.Fatal(err)
	}
	for _, n := range nodes {
		n.Spec.Taints = nil
		if _, err := e.kube.CoreV1().Nodes().Update(e.ctx, n, metav1.UpdateOptions{}); err != nil {
			e.Fatal(err)
		}
	}
}

// room returns an allocatable list.
func room(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory), corev1.ResourcePods: resource.MustParse("110")}
}

// metrics returns the scheduler's metrics as text.
func (e *env) metrics(s *cluster.SchedulerProcess) string {
	e.Helper()
	text, err := s.Get(e.ctx, "/metrics")
	if err != nil {
		e.Fatal(err)
	}
	return string(text)
}

// sum adds up the samples of a metric whose labels contain the given text, "" for all.
func sum(metrics, name, label string) float64 {
	total := 0.0
	for line := range strings.SplitSeq(metrics, "\n") {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' || !strings.Contains(rest, label) {
			continue
		}
		v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err == nil {
			total += v
		}
	}
	return total
}

func TestSum(t *testing.T) {
	text := "# HELP a\na{x=\"1\",y=\"2\"} 3\na{x=\"2\"} 4.5\nab 7\nc 2\n"
	for _, tc := range []struct {
		name, label string
		want        float64
	}{{"a", "", 7.5}, {"a", `x="1"`, 3}, {"c", "", 2}, {"d", "", 0}} {
		if got := sum(text, tc.name, tc.label); got != tc.want {
			t.Errorf("%s with %q is %v, want %v", tc.name, tc.label, got, tc.want)
		}
	}
}

// quiet waits until a scheduler has finished its work after its start, or after a burst: until it has used less than a tenth of a core for a
// second. Its metrics aren't read for that: one look uses more CPU time than that.
func (e *env) quiet(s *cluster.SchedulerProcess) {
	e.Helper()
	var used []time.Duration
	e.until("the scheduler to go quiet", func() bool {
		used = append(used, e.used(s))
		looks := int(time.Second / untilTick)
		return len(used) > looks && used[len(used)-1]-used[len(used)-1-looks] < 100*time.Millisecond
	})
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

// until calls done several times a second until it returns true.
func (e *env) until(what string, done func() bool) {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.ctx, patience)
	defer cancel()
	tick := time.NewTicker(untilTick)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			e.Fatalf("waiting for %s: %v", what, ctx.Err())
		case <-tick.C:
		}
	}
}

// fleet returns nodes of the same sizes and zones as the given ones, not created for any pod.
func fleet(like []corev1.Node) []*corev1.Node {
	var out []*corev1.Node
	for i := range like {
		n := node(fmt.Sprintf("existing-%d", i), like[i].Labels[corev1.LabelTopologyZone], like[i].Status.Allocatable)
		maps.Copy(n.Labels, map[string]string{corev1.LabelInstanceTypeStable: like[i].Labels[corev1.LabelInstanceTypeStable]})
		out = append(out, n)
	}
	return out
}
