package integration

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/record"
)

// besides starts the cluster's own scheduler as a second process: the same binary with no Dovetail plugin in any profile.
func (e *env) besides() {
	e.Helper()
	cfg := cluster.Config{
		"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
		"clientConnection": map[string]any{"qps": 500, "burst": 1000},
		"profiles":         []any{map[string]any{"schedulerName": corev1.DefaultSchedulerName}},
	}
	cfg.LongLeases()
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

// The default scheduler places its pods on our nodes once they have registered, and finds nodes that were launched for those pods of
// its that fit nowhere. Our pods keep the capacity planned for them, and nothing is launched twice.
func TestBesideTheDefaultScheduler(t *testing.T) {
	t.Parallel()
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

// While the devices of a new node are not ready yet, the default scheduler, which doesn't know our plans, fills the node. The pod that
// no longer fits gets another node, exactly one; the pod that still fits stays.
func TestReservationsThatOthersOverrun(t *testing.T) {
	t.Parallel()
	e := start(t, func(s *setting) {
		s.boots.Boot.PluginsMin, s.boots.Boot.PluginsMax = 6*time.Minute, 6*time.Minute // 18 seconds at this speed
	})
	e.besides()
	e.apply(nodeClass, strings.Replace(nodePool, "values: [c, m, r]}", "values: [g]}\n        - {key: node.kubernetes.io/instance-type, operator: In, values: [g4dn.12xlarge]}", 1))
	e.pods("theirs", 1, "20", "1Gi", scheduler(corev1.DefaultSchedulerName)) // it schedules onto any node that registers
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

// untilRegistered checks in recorded events that no pod of the default scheduler was bound before its node had registered.
func untilRegistered(t *testing.T, events []record.Event) {
	t.Helper()
	registered, bound := map[string]bool{}, map[types.UID]bool{}
	theirs := 0
	for _, ev := range events {
		switch o := ev.Object.(type) {
		case *corev1.Node:
			registered[o.Name] = o.Labels[karpv1.NodeRegisteredLabelKey] == "true"
		case *corev1.Pod:
			if o.Spec.NodeName == "" || bound[o.UID] || o.Spec.SchedulerName != corev1.DefaultSchedulerName {
				continue
			}
			bound[o.UID] = true
			if theirs++; !registered[o.Spec.NodeName] {
				t.Errorf("pod %s was bound to %s, which had not registered", o.Name, o.Spec.NodeName)
			}
		}
	}
	if theirs == 0 {
		t.Error("no pod of the default scheduler was bound: nothing is shown")
	}
}

// The life of a node that both schedulers use:
//
//  1. Until it registers, our taint keeps the other scheduler's pods off it.
//  2. Capacity for a DaemonSet pod, which the other scheduler places, is kept free of our pods.
//  3. A pod of the other scheduler for which the node was launched is bound to it afterwards.
//  4. When EC2 interrupts the instance, its pods get replacement capacity before it is terminated, whichever scheduler they belong to.
func TestOneMachineForTwoSchedulers(t *testing.T) {
	t.Parallel()
	e := start(t, func(s *setting) {
		s.idle = true
		s.boots.Boot.Median, s.boots.Boot.P95 = 3*time.Minute, 4*time.Minute // nine and twelve seconds at this speed
		s.sim.SpotNotice = 40 * time.Minute
		s.config = func(cfg cluster.Config) {
			cfg.SetProvisionArgs(map[string]any{"provisionFor": []any{corev1.DefaultSchedulerName}, "interruptionQueue": "dovetail"})
		}
	})
	recording, err := record.Start(e.ctx, e.api, &corev1.NodeList{}, &corev1.PodList{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { // deferred, so that it also shows a cause when something else has failed
		events, err := recording.Events(e.ctx)
		if err != nil {
			t.Error(err)
		}
		untilRegistered(t, events)
	}()
	e.besides()
	replicaSets(t, e.c.AdminConfig(), 100)
	e.create(agents())
	e.apply(nodeClass, strings.NewReplacer("[on-demand]", "[spot]", "      requirements:\n",
		"      requirements:\n        - {key: karpenter.k8s.aws/instance-cpu, operator: In, values: [\"4\"]}\n").Replace(nodePool))
	e.run()
	theirs := replicas("theirs", 1, "500m", "512Mi").(*appsv1.ReplicaSet)
	theirs.Spec.Template.Spec.SchedulerName = corev1.DefaultSchedulerName
	e.create(theirs, replicas("ours", 1, "1500m", "512Mi"))
	on := e.bound("ours", 1)[0].Spec.NodeName
	// 0.5 + 1.5 + 1 CPUs for the agent leave less than another such pod requests.
	e.pods("late", 1, "1", "512Mi")
	if late := e.bound("late", 1)[0].Spec.NodeName; late == on {
		t.Error("a late pod of ours is in the room of the DaemonSet's pod")
	}
	e.settled(2)
	e.running("theirs", 1)
	e.create(agentOn(on))
	if agent := e.running("agent", 1)[0].Spec.NodeName; agent != on {
		t.Errorf("the DaemonSet's pod is on %s", agent)
	}

	home := e.podsOf("theirs")[0].Spec.NodeName
	before := e.launches()
	for _, in := range e.sim.Live() {
		if strings.HasSuffix(e.nodes()[home].Spec.ProviderID, "/"+in.ID) {
			if err := e.sim.Interrupt(in.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	e.claimEvent("ReplacementPlanned")
	if _, err := cluster.Until(e.wait(), e.api, &corev1.PodList{}, func(pods []*corev1.Pod) (bool, string, error) {
		for _, p := range pods {
			if p.Labels["app"] == "theirs" && cluster.Running(p) && p.DeletionTimestamp == nil && p.Spec.NodeName != home {
				return true, "", nil
			}
		}
		return false, "their pod to run elsewhere than on " + home, nil
	}); err != nil {
		t.Fatal(err)
	}
	e.claimsAre("of nodes that stay", func(c *karpv1.NodeClaim) bool { return c.Status.NodeName != home })
	if n := e.launches() - before; n > 1 {
		t.Errorf("%d machines were launched for what one had held", n)
	}
}

// agents returns a DaemonSet whose pods the default scheduler places.
func agents() *appsv1.DaemonSet {
	labels := map[string]string{"app": "agent"}
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}}}}},
	}}
}

// agentOn returns the pod that the DaemonSet controller, which doesn't run here, would create for a node.
func agentOn(node string) *corev1.Pod {
	set := agents()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "agent-0", Labels: set.Spec.Template.Labels, OwnerReferences: []metav1.OwnerReference{{
		APIVersion: "apps/v1", Kind: "DaemonSet", Name: set.Name, UID: "agent", Controller: &owned}}}, Spec: *set.Spec.Template.Spec.DeepCopy()}
	p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}}}}}
	return p
}

// Without provisionFor, nothing is launched for other schedulers' pods.
func TestPodsOfOtherSchedulersAreNoDemand(t *testing.T) {
	t.Parallel()
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

// A namespace label hands a namespace's pods to our scheduler.
func TestSchedulerNameByNamespace(t *testing.T) {
	t.Parallel()
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
	// A policy takes effect some time after it is written.
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
