package simulate

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func repeat(n int, s capacity.Step) []capacity.Step {
	var out []capacity.Step
	for range n {
		out = append(out, s)
	}
	return out
}

func bound(p *st.PodWrapper, node string) *corev1.Pod { return p.Node(node).Obj() }

// onePodClaim is a bound claim that only one pod may use, with its volume.
func onePodClaim() []runtime.Object {
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	pv := st.MakePersistentVolume().Name("pv").AccessModes(modes).Capacity(size).Obj()
	pv.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "data"}
	pvc := st.MakePersistentVolumeClaim().Namespace("default").Name("data").AccessModes(modes).VolumeName("pv").Annotation("pv.kubernetes.io/bind-completed", "true").Obj()
	return []runtime.Object{pv, pvc}
}

func hypothetical(nodes ...*st.NodeWrapper) []capacity.TrialNode {
	var out []capacity.TrialNode
	for _, n := range nodes {
		out = append(out, capacity.TrialNode{Node: n.Obj()})
	}
	return out
}

func TestVerify(t *testing.T) {
	web, db := pod("web", "web").Obj(), pod("db", "db").Obj()
	spread := pod("spread", "spread").
		SpreadConstraint(1, corev1.LabelTopologyZone, corev1.DoNotSchedule, app("spread").Obj(), nil, nil, nil, nil).Obj()
	loner := pod("loner", "loner").PodAntiAffinity(corev1.LabelHostname, app("web").Obj(), st.PodAntiAffinityWithRequiredReq).Obj()
	follower := pod("follower", "follower").PodAffinity(corev1.LabelTopologyZone, app("web").Obj(), st.PodAffinityWithRequiredReq).Obj()
	leaving := pod("leaving", "spread").
		SpreadConstraint(1, corev1.LabelTopologyZone, corev1.DoNotSchedule, app("spread").Obj(), nil, nil, nil, nil).Terminating().Obj()
	taint := []corev1.Taint{{Key: "example.com/startup", Effect: corev1.TaintEffectNoSchedule}}

	machine := func(name, id string) *corev1.Node {
		n := node(name, "z1").Obj()
		n.Spec.ProviderID = id
		return n
	}
	webs := func(n int) (out []runtime.Object) {
		for i := range n {
			out = append(out, bound(pod(fmt.Sprint("web", i), "web"), "a"))
		}
		return out
	}

	tests := []struct {
		name     string
		existing []runtime.Object
		trial    capacity.Trial
		want     []string
	}{
		{
			name:     "a node fills up, real or not, and what is refused takes no room",
			existing: []runtime.Object{node("a", "z1").Obj()},
			trial: capacity.Trial{
				Nodes: hypothetical(node("n", "z2")),
				Steps: append(append(repeat(5, step(web, "a")), repeat(5, step(web, "n"))...),
					step(podOf("small", "small", nil).Obj(), "n")),
			},
			want: []string{"4 NodeResourcesFit: Insufficient cpu", "9 NodeResourcesFit: Insufficient cpu"},
		},
		{
			name:     "in any order, what skew refuses at first is accepted after the others, and what doesn't fit is not",
			existing: []runtime.Object{node("a", "z1").Obj(), node("b", "z2").Obj()},
			trial:    capacity.Trial{Steps: append(repeat(3, step(spread, "a")), repeat(5, step(spread, "b"))...), AnyOrder: true},
			want:     []string{"7 NodeResourcesFit: Insufficient cpu"},
		},
		{
			name:     "alone, every pod has the node for itself",
			existing: []runtime.Object{node("a", "z1").Obj()},
			trial: capacity.Trial{
				Nodes: hypothetical(node("n", "z2")),
				Steps: append(repeat(10, step(web, "a")), step(podOf("large", "large", map[corev1.ResourceName]string{corev1.ResourceCPU: "64"}).Obj(), "n"), step(web, "n")),
				Alone: true,
			},
			want: []string{"10 NodeResourcesFit: Insufficient cpu"},
		},
		{
			name:  "a node that went away is said to be gone",
			trial: capacity.Trial{Steps: []capacity.Step{step(web, "gone")}},
			want:  []string{`0 : node "gone" doesn't exist`},
		},
		{
			name: "a hypothetical node carries the pods of its DaemonSets",
			trial: capacity.Trial{
				Nodes: []capacity.TrialNode{{Node: node("n", "z1").Obj(), Pods: []*corev1.Pod{pod("agent", "agent").Obj()}}},
				Steps: repeat(4, step(web, "n")),
			},
			want: []string{"3 NodeResourcesFit: Insufficient cpu"},
		},
		{
			name:     "a machine that gets the name of one that is ending comes without its pods",
			existing: append(webs(4), machine("a", "i-1")),
			trial:    capacity.Trial{Nodes: []capacity.TrialNode{{Node: machine("a", "i-2")}}, Steps: repeat(5, step(web, "a"))},
			want:     []string{"4 NodeResourcesFit: Insufficient cpu"},
		},
		{
			name:     "its own pods are there when its kubelet has come first",
			existing: append(webs(3), machine("a", "i-1")),
			trial:    capacity.Trial{Nodes: []capacity.TrialNode{{Node: machine("a", "i-1")}}, Steps: repeat(2, step(web, "a"))},
			want:     []string{"1 NodeResourcesFit: Insufficient cpu"},
		},
		{
			name:     "pods that have left a node leave their zone behind, what stays stays",
			existing: []runtime.Object{node("a", "z1").Obj(), node("b", "z2").Obj(), bound(pod("1", "spread"), "a"), bound(pod("2", "spread"), "b"), bound(pod("agent", "agent"), "a")},
			trial: capacity.Trial{
				Nodes: []capacity.TrialNode{
					{Node: node("a", "z1").Taints([]corev1.Taint{{Key: "karpenter.sh/disrupted", Effect: corev1.TaintEffectNoSchedule}}).Obj(), Instead: true,
						Pods: []*corev1.Pod{bound(pod("agent", "agent"), "a")}},
					{Node: node("n", "z1").Obj()},
				},
				Steps: []capacity.Step{step(spread, "b"), step(spread, "a"), step(spread, "n"), step(spread, "b")},
			},
			want: []string{
				"0 PodTopologySpread: node(s) didn't match pod topology spread constraints",
				"1 TaintToleration: node(s) had untolerated taint(s)",
			},
		},
		{
			name:     "a claim that one pod may use is free when that pod has left",
			existing: append(onePodClaim(), node("a", "z1").Obj(), bound(pod("1", "db").PVC("data"), "a")),
			trial: capacity.Trial{
				Nodes: []capacity.TrialNode{{Node: node("a", "z1").Obj(), Instead: true}, {Node: node("n", "z1").Obj()}},
				Steps: repeat(2, step(pod("2", "db").PVC("data").Obj(), "n")),
			},
			want: []string{"1 VolumeRestrictions: node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"},
		},
		{
			name:     "promised pods are there from the start",
			existing: []runtime.Object{node("a", "z1").Obj()},
			trial: capacity.Trial{
				Nodes:    hypothetical(node("n", "z2")),
				Promised: []capacity.Step{step(web, "a"), step(loner, "n"), step(db, "gone")},
				Steps:    []capacity.Step{step(loner, "a"), step(web, "n"), step(db, "n")},
			},
			want: []string{
				"0 InterPodAffinity: node(s) didn't match pod anti-affinity rules",
				"1 InterPodAffinity: node(s) didn't satisfy existing pods anti-affinity rules",
			},
		},
		{
			name: "all new nodes are domains before the first pod, in whatever order they are filled",
			trial: capacity.Trial{
				Nodes: hypothetical(node("n1", "z1"), node("n2", "z2"), node("n3", "z3")),
				Steps: []capacity.Step{step(spread, "n1"), step(spread, "n1"), step(spread, "n2"), step(spread, "n3"), step(spread, "n1")},
			},
			want: []string{"1 PodTopologySpread: node(s) didn't match pod topology spread constraints"},
		},
		{
			name: "a pod without terms of its own learns of a later pod's anti-affinity",
			trial: capacity.Trial{
				Nodes: hypothetical(node("n1", "z1"), node("n2", "z1"), node("n3", "z1")),
				Steps: []capacity.Step{step(web, "n1"), step(loner, "n2"), step(web, "n2"), step(web, "n3"), step(loner, "n3")},
			},
			want: []string{
				"2 InterPodAffinity: node(s) didn't satisfy existing pods anti-affinity rules",
				"4 InterPodAffinity: node(s) didn't match pod anti-affinity rules",
			},
		},
		{
			name: "affinity is met by a pod placed a step before",
			trial: capacity.Trial{
				Nodes: hypothetical(node("n1", "z1"), node("n2", "z1"), node("n3", "z2")),
				Steps: []capacity.Step{step(follower, "n1"), step(web, "n2"), step(follower, "n1"), step(follower, "n3")},
			},
			want: []string{
				"0 InterPodAffinity: node(s) didn't match pod affinity rules",
				"3 InterPodAffinity: node(s) didn't match pod affinity rules",
			},
		},
		{
			name: "a representative that is being deleted stands for pods that aren't",
			trial: capacity.Trial{
				Nodes: hypothetical(node("n1", "z1"), node("n2", "z2")),
				Steps: []capacity.Step{step(leaving, "n1"), {Pod: leaving, Class: "another", Node: "n1"}},
			},
			want: []string{"1 PodTopologySpread: node(s) didn't match pod topology spread constraints"},
		},
		{
			name:     "a stand-in is judged in the real node's place, with the real node's pods",
			existing: []runtime.Object{node("a", "z1").Taints(taint).Obj(), pod("bound", "bound").Node("a").Obj()},
			trial: capacity.Trial{
				Nodes: []capacity.TrialNode{{Node: node("a", "z1").Obj(), Pods: []*corev1.Pod{pod("agent", "agent").Obj()}}},
				Steps: repeat(3, step(web, "a")),
			},
			want: []string{"2 NodeResourcesFit: Insufficient cpu"},
		},
		{
			name:     "without a stand-in the taint counts",
			existing: []runtime.Object{node("a", "z1").Taints(taint).Obj()},
			trial:    capacity.Trial{Steps: []capacity.Step{step(web, "a")}},
			want:     []string{"0 TaintToleration: node(s) had untolerated taint(s)"},
		},
		{
			name:     "a pod tied to one node by name is refused elsewhere",
			existing: []runtime.Object{node("a", "z1").Obj(), node("b", "z1").Obj()},
			trial: capacity.Trial{Steps: []capacity.Step{
				step(pod("tied", "tied").NodeAffinityIn("metadata.name", []string{"a"}, st.NodeSelectorTypeMatchFields).Obj(), "b"),
				step(pod("tied", "tied").NodeAffinityIn("metadata.name", []string{"a"}, st.NodeSelectorTypeMatchFields).Obj(), "a"),
			}},
			want: []string{"0 NodeAffinity: node(s) didn't satisfy plugin(s) [NodeAffinity]"},
		},
		{
			name:     "a pod that PreFilter refuses is refused on every node",
			existing: []runtime.Object{node("a", "z1").Obj()},
			trial:    capacity.Trial{Steps: repeat(2, step(pod("lost", "lost").PVC("missing").Obj(), "a"))},
			want: []string{
				`0 VolumeRestrictions: persistentvolumeclaim "missing" not found`,
				`1 VolumeRestrictions: persistentvolumeclaim "missing" not found`,
			},
		},
		{
			name: "pods of one class with claims of their own are judged by their own claims",
			existing: []runtime.Object{
				node("a", "z1").Obj(), node("b", "z2").Obj(),
				claim("data-0", "vol-0"), volume("vol-0", "z1"), claim("data-1", "vol-1"), volume("vol-1", "z2"),
			},
			trial: capacity.Trial{Steps: []capacity.Step{
				step(pod("set-0", "set").PVC("data-0").Obj(), "a"), step(pod("set-1", "set").PVC("data-1").Obj(), "a"),
				step(pod("set-1", "set").PVC("data-1").Obj(), "b"),
			}},
			want: []string{"1 VolumeBinding: node(s) didn't match PersistentVolume's node affinity"},
		},
		{
			name: "features a node doesn't declare",
			trial: capacity.Trial{
				Nodes: hypothetical(node("n", "z1"), node("able", "z1").DeclaredFeatures([]string{"RestartAllContainersOnContainerExits"})),
				Steps: []capacity.Step{step(restartsAll(), "n"), step(restartsAll(), "able")},
			},
			want: []string{"0 NodeDeclaredFeatures: node(s) didn't match Pod's required features"},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			c := newCluster(t, tc.existing)
			if diff := cmp.Diff(tc.want, c.verify(tc.trial)); diff != "" {
				t.Errorf("rejections (-want +got):\n%s", diff)
			}
		})
	}
}

func claim(name, volume string) *corev1.PersistentVolumeClaim {
	return st.MakePersistentVolumeClaim().Name(name).Namespace("default").VolumeName(volume).
		Annotation("pv.kubernetes.io/bind-completed", "yes").
		AccessModes([]corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}).Obj()
}

func volume(name, zone string) *corev1.PersistentVolume {
	return st.MakePersistentVolume().Name(name).
		PersistentVolumeSource(corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "ebs.csi.aws.com", VolumeHandle: name}}).
		NodeAffinityIn(corev1.LabelTopologyZone, []string{zone}).Obj()
}

// restartsAll returns a pod that only nodes with a declared feature can run.
func restartsAll() *corev1.Pod {
	p := pod("restarts", "restarts").Obj()
	p.Spec.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{
		Action:    corev1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{1}},
	}}
	return p
}

func TestVerifyHonoursCancellation(t *testing.T) {
	c := newCluster(t, []runtime.Object{node("a", "z1").Obj()})
	ctx, cancel := context.WithCancel(c.ctx)
	cancel()
	_, err := c.world.Verify(ctx, capacity.Trial{Steps: []capacity.Step{step(pod("web", "web").Obj(), "a")}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Verify = %v, want %v", err, context.Canceled)
	}
}

// TestVerifyLeavesRoomForNominatedPods: capacity that preemption has freed belongs to the nominated pod.
func TestVerifyLeavesRoomForNominatedPods(t *testing.T) {
	vip := podOf("vip", "vip", map[corev1.ResourceName]string{corev1.ResourceCPU: "3"}).Priority(100).SchedulerName(corev1.DefaultSchedulerName).Obj()
	c := newCluster(t, []runtime.Object{node("a", "z1").Obj(), vip})
	info, err := framework.NewPodInfo(vip)
	if err != nil {
		t.Fatal(err)
	}
	c.sched.SchedulingQueue.AddNominatedPod(klog.FromContext(c.ctx), info, &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride, NominatedNodeName: "a"})
	got := c.verify(capacity.Trial{Steps: repeat(2, step(pod("web", "web").Obj(), "a"))})
	if diff := cmp.Diff([]string{"1 NodeResourcesFit: Insufficient cpu"}, got); diff != "" {
		t.Errorf("rejections (-want +got):\n%s", diff)
	}
}

// An informer reports to the simulation's plugin that a pod was bound while that pod is in a trial: undoing the trial must keep that.
func TestTrialsTakeBackTheirOwnReservationsOnly(t *testing.T) {
	web := pod("web", "web").UID("web").Obj()
	c := newCluster(t, []runtime.Object{node("a", "z1").Obj()})
	counts := &counter{limit: 3, counts: map[types.UID]string{}}
	c.world.first.counting = []fwk.ReservePlugin{counts}
	counts.counts["web"] = "a"
	if got := c.verify(capacity.Trial{Steps: []capacity.Step{step(web, "a")}}); len(got) > 0 {
		t.Errorf("rejections %v", got)
	}
	if diff := cmp.Diff(map[types.UID]string{"web": "a"}, counts.counts); diff != "" {
		t.Errorf("counted afterwards (-want +got):\n%s", diff)
	}
}

func TestNewNamesWhatIsWrong(t *testing.T) {
	c := newCluster(t, nil)
	_, err := New(c.ctx, Config{Scheduler: c.sched, Profile: schedulerapi.KubeSchedulerProfile{SchedulerName: "other"}})
	if diff := cmp.Diff(`simulating profile "other": the scheduler has no such profile`, errorText(err)); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
	if _, err := New(c.ctx, Config{}); err == nil {
		t.Error("New without a scheduler didn't fail")
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestVerifyBesideARunningScheduler shares pods, informers and managers with scheduling cycles; the race detector decides. The running
// scheduler's 40 pods and the trial's one never exceed the capacity, so no step is refused.
func TestVerifyBesideARunningScheduler(t *testing.T) {
	objects := []runtime.Object{node("a", "z1").Obj(), node("b", "z2").Obj()}
	c := newCluster(t, objects)
	const pods = 40
	bound := make(chan struct{}, pods)
	c.client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "binding" {
			return false, nil, nil
		}
		bound <- struct{}{}
		return true, action.(clienttesting.CreateAction).GetObject(), nil
	})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		c.sched.Run(c.ctx)
	}()
	small := map[corev1.ResourceName]string{corev1.ResourceCPU: "50m"}
	for i := range pods / 2 {
		spread := podOf(fmt.Sprintf("spread-%d", i), "spread", small).SchedulerName(corev1.DefaultSchedulerName).
			SpreadConstraint(20, corev1.LabelTopologyZone, corev1.DoNotSchedule, app("spread").Obj(), nil, nil, nil, nil).Obj()
		loner := podOf(fmt.Sprintf("loner-%d", i), "loner", small).SchedulerName(corev1.DefaultSchedulerName).
			PodAntiAffinity(corev1.LabelHostname, app("nobody").Obj(), st.PodAntiAffinityWithRequiredReq).Obj()
		for _, p := range []*corev1.Pod{spread, loner} {
			if _, err := c.client.CoreV1().Pods("default").Create(c.ctx, p, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	trial := capacity.Trial{Nodes: hypothetical(node("n", "z3")), Steps: []capacity.Step{step(podOf("web", "web", small).Obj(), "n")}}
	for done := 0; done < pods; {
		c.refresh()
		c.world.Nodes(nil)
		if got := c.verify(trial); len(got) > 0 {
			t.Fatalf("rejections: %v", got)
		}
		select {
		case <-bound:
			done++
		default:
		}
	}
	c.cancel()
	<-stopped
}
