package integration

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
)

// besides starts the cluster's own scheduler as a second process: the same binary without our plugins in any profile.
func (e *env) besides() {
	e.Helper()
	cfg := cluster.Config{
		"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
		"clientConnection": map[string]any{"qps": 500, "burst": 1000},
		"profiles":         []any{map[string]any{"schedulerName": corev1.DefaultSchedulerName}},
	}
	other, err := e.c.StartScheduler(e.ctx, cluster.SchedulerOptions{Name: "default-scheduler", Config: cfg})
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() {
		if log, err := other.Log(); e.Failed() && err == nil {
			lines := strings.Split(log, "\n")
			e.Logf("the other scheduler's last words:\n%s", strings.Join(lines[max(0, len(lines)-30):], "\n"))
		}
	})
}

// The default scheduler places its pods on our nodes, once they have registered, and finds nodes that were built for those it
// had no room for. Our pods have what was planned for them, and nothing is launched twice.
func TestBesideTheDefaultScheduler(t *testing.T) {
	e := start(t, func(s *setting) {
		s.config = func(cfg cluster.Config) {
			cfg.SetProvisionArgs(map[string]any{"provisionFor": []any{corev1.DefaultSchedulerName}})
		}
	})
	e.besides()
	e.apply(nodeClass, nodePool)
	e.pods("theirs", 40, "500m", "512Mi", scheduler(corev1.DefaultSchedulerName))
	e.pods("ours", 40, "500m", "512Mi")
	e.bound("ours", 40)
	for _, p := range e.running("theirs", 40) {
		if p.Spec.SchedulerName != corev1.DefaultSchedulerName {
			t.Errorf("pod %s was given to %s", p.Name, p.Spec.SchedulerName)
		}
	}
	e.running("ours", 40)
	e.settled(len(e.claims()))
	if n, nodes := e.launches(), len(e.nodes()); n != nodes {
		t.Errorf("%d launches for %d nodes", n, nodes)
	}
	total := int64(0)
	for _, n := range e.nodes() {
		total += n.Status.Allocatable.Cpu().MilliValue()
	}
	if asked := int64(80 * 500); total > 2*asked {
		t.Errorf("%dm CPU were bought for %dm", total, asked)
	}
}

// While a machine brings up its devices the default scheduler, which knows nothing of our plans, fills it. Who doesn't fit any
// more gets another machine, one, and who still fits stays.
func TestReservationsThatOthersOverrun(t *testing.T) {
	e := start(t, func(s *setting) { s.boots.Boot.PluginsMin, s.boots.Boot.PluginsMax = 3*time.Minute, 3*time.Minute })
	e.besides()
	e.apply(nodeClass, strings.Replace(nodePool, "values: [c, m, r]}", "values: [g]}\n        - {key: node.kubernetes.io/instance-type, operator: In, values: [g4dn.12xlarge]}", 1))
	e.pods("theirs", 1, "20", "1Gi", scheduler(corev1.DefaultSchedulerName)) // it takes whatever comes
	e.pods("large", 1, "30", "1Gi", gpus("1"))
	e.pods("small", 1, "1", "1Gi", gpus("1"))
	first := e.awaitClaims()[0]
	theirs := e.bound("theirs", 1)[0].Spec.NodeName
	for _, p := range append(e.podsOf("large"), e.podsOf("small")...) {
		if p.Spec.NodeName != "" {
			t.Fatalf("pod %s is bound already: nothing is shown", p.Name)
		}
	}
	if on := e.bound("small", 1)[0].Spec.NodeName; on != theirs {
		t.Errorf("the pod that still fits beside theirs on %s is on %s", theirs, on)
	}
	if on := e.bound("large", 1)[0].Spec.NodeName; on == theirs {
		t.Errorf("the large pod is on %s beside theirs", on)
	}
	e.settled(2)
	if n := e.launches(); n != 2 {
		t.Errorf("%d launches, want the first (%s) and one for the pod whose room was taken", n, first.Name)
	}
}

// Without provisionFor other schedulers' pods are none of our business.
func TestPodsOfOtherSchedulersAreNoDemand(t *testing.T) {
	e := start(t, nil)
	e.besides()
	e.apply(nodeClass, nodePool)
	e.create(fullNode("full", zones[0], "0"))
	e.pods("theirs", 3, "500m", "512Mi", scheduler(corev1.DefaultSchedulerName))
	e.eventOf("theirs-2", "FailedScheduling")
	e.pods("ours", 1, "500m", "512Mi")
	e.running("ours", 1)
	if n := e.launches(); n != 1 {
		t.Errorf("%d launches for one pod of ours", n)
	}
}

// Namespaces are handed to us by a label.
func TestSchedulerNameByNamespace(t *testing.T) {
	e := start(t, func(s *setting) { s.idle = true })
	root, err := cluster.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	policy, err := os.ReadFile(filepath.Join(root, "manifests", "secondary", "optional", "scheduler-name.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	e.apply(string(policy))
	e.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", Labels: map[string]string{"dovetail.sh/schedule": "true"}}})
	in := func(p *corev1.Pod) { p.Namespace = "team" }
	daemon := func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "DaemonSet" }
	// A policy takes a moment to be in force.
	if err := wait.PollUntilContextCancel(e.wait(), 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "try"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}}}}
		err := e.api.Create(ctx, pod, client.DryRunAll)
		return pod.Spec.SchedulerName == ours, err
	}); err != nil {
		t.Fatalf("the policy has no effect: %v", err)
	}
	e.pods("daemon", 1, "1", "1Gi", in, scheduler(""), daemon)
	e.pods("custom", 1, "1", "1Gi", in, scheduler("custom"))
	e.pods("elsewhere", 1, "1", "1Gi", scheduler(""))
	for app, want := range map[string]string{"daemon": corev1.DefaultSchedulerName, "custom": "custom", "elsewhere": corev1.DefaultSchedulerName} {
		if got := e.podsOf(app)[0].Spec.SchedulerName; got != want {
			t.Errorf("%s: scheduled by %s, want %s", app, got, want)
		}
	}
}
