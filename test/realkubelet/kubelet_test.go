package realkubelet

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/record"
)

// TestRealKubelets runs all scenes in parallel on one control plane, because they spend most of their time waiting.
func TestRealKubelets(t *testing.T) {
	e := start(t)
	t.Run("scenes", func(t *testing.T) {
		for name, scene := range map[string]func(*testing.T, *env){
			"a kubelet adopts the node":                  adopts,
			"devices come after the kubelet":             devices,
			"a kubelet registers under another name":     anotherName,
			"a kubelet never comes":                      neverComes,
			"pods are deleted while their node boots":    deletedTooSoon,
			"a startup taint that nobody tolerates":      startupTaint,
			"pods that nobody recreates are bound later": barePod,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				scene(t, e)
			})
		}
	})
	if err := e.machines.Err(); err != nil {
		t.Error(err)
	}
	if d := e.EC2.Doubles("karpenter.sh/nodeclaim"); len(d) > 0 {
		t.Errorf("claims with more than one instance: %v", d)
	}
}

// The kubelet adopts the Node as it is, with the Lease that was kept for it, and runs the pods that were bound before it started.
func adopts(t *testing.T, e *env) {
	come := make(chan struct{})
	s := e.scene(t, "adopts", Plan{After: come})
	team := corev1.Taint{Key: "team", Value: "blue", Effect: corev1.TaintEffectNoExecute}
	s.begin(2, func(p *karpv1.NodePool) {
		p.Spec.Template.Labels = map[string]string{"team": "blue"}
		p.Spec.Template.Spec.Taints = []corev1.Taint{team}
	}, func(p *corev1.PodSpec) {
		p.Tolerations = []corev1.Toleration{{Key: "team", Operator: corev1.TolerationOpExists}}
	})
	early := s.pods(2, cluster.Bound)
	made := s.node(anyNode)
	if made.Status.NodeInfo.KubeletVersion != "" {
		t.Error("a kubelet has come before it was let")
	}
	if !hasTaint(made, "karpenter.sh/unregistered") || !hasTaint(made, "team") {
		t.Errorf("taints of the node before its kubelet: %v", made.Spec.Taints)
	}
	kept := s.lease(made.Name, func(*coordinationv1.Lease) bool { return true })
	close(come)

	s.pods(2, cluster.Running)
	node := s.node(initialized)
	if node.UID != made.UID || node.Spec.ProviderID != made.Spec.ProviderID {
		t.Errorf("the node is another one: it was %s %s, and is %s %s", made.UID, made.Spec.ProviderID, node.UID, node.Spec.ProviderID)
	}
	untilItRegisters := []string{"node.kubernetes.io/exclude-disruption", "node.kubernetes.io/exclude-from-external-load-balancers"}
	for _, key := range slices.Sorted(maps.Keys(made.Labels)) {
		switch have, still := node.Labels[key]; {
		case slices.Contains(untilItRegisters, key) && still:
			t.Errorf("label %s is still there", key)
		case !slices.Contains(untilItRegisters, key) && have != made.Labels[key]:
			t.Errorf("label %s was %q and is %q", key, made.Labels[key], node.Labels[key])
		}
	}
	if len(node.Spec.Taints) != 1 || !node.Spec.Taints[0].MatchTaint(&team) {
		t.Errorf("taints of the initialized node: %v, want %v", node.Spec.Taints, team)
	}
	for name, promised := range made.Status.Allocatable {
		// Devices and other extended resources are reported later, by device plugins and the like.
		if reported := node.Status.Allocatable[name]; !strings.Contains(string(name), "/") && promised.Cmp(reported) > 0 {
			t.Errorf("%s was promised as %s, the kubelet reports %s", name, promised.String(), reported.String())
		}
	}
	after := s.lease(made.Name, func(l *coordinationv1.Lease) bool { return l.Spec.RenewTime.After(kept.Spec.RenewTime.Time) })
	if after.UID != kept.UID || *after.Spec.HolderIdentity != node.Name {
		t.Errorf("the kubelet renews the lease %s of %s, it was %s", after.UID, *after.Spec.HolderIdentity, kept.UID)
	}
	s.same(early)
	s.launched(1)
}

// The kubelet zeroes the devices that the Node promises until their plugins start. The pod is bound after that, and nothing else is
// launched meanwhile.
func devices(t *testing.T, e *env) {
	const gpu = corev1.ResourceName("nvidia.com/gpu")
	come := make(chan struct{})
	s := e.scene(t, "devices", Plan{After: come, DevicesAfter: 5 * time.Second})
	seen, err := record.Start(s.ctx, s.Client(), &corev1.NodeList{}, &corev1.PodList{})
	if err != nil {
		t.Fatal(err)
	}
	s.begin(1, func(p *karpv1.NodePool) {
		// This test's kubelet reports amd64.
		p.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"amd64"}}}
	}, func(p *corev1.PodSpec) {
		p.Containers[0].Resources.Limits = corev1.ResourceList{gpu: resource.MustParse("1")}
	})
	s.node(anyNode)
	close(come)
	s.pods(1, cluster.Running)
	s.node(initialized)
	events, err := seen.Events(s.wait())
	if err != nil {
		t.Fatal(err)
	}
	var story []string
	tell := func(word string) {
		if len(story) == 0 || story[len(story)-1] != word {
			story = append(story, word)
		}
	}
	bound := false
	for _, ev := range events {
		switch o := ev.Object.(type) {
		case *corev1.Node:
			n := o.Status.Allocatable[gpu]
			switch {
			case o.Labels[karpv1.NodePoolLabelKey] != s.name:
			case n.IsZero():
				tell("zeroed")
			case o.Status.NodeInfo.KubeletVersion == "":
				tell("promised")
			default:
				tell("there")
			}
		case *corev1.Pod:
			if o.Labels["app"] == s.name && o.Spec.NodeName != "" && !bound {
				bound = true
				tell("bound")
			}
		}
	}
	if want := []string{"promised", "zeroed", "there", "bound"}; !slices.Equal(story, want) {
		t.Errorf("the node's devices and the pod: %v, want %v", story, want)
	}
	s.launched(1)
}

// The kubelet registers under another name: the Node created in advance is deleted, and its pods are recreated on the Node that the
// kubelet has created.
func anotherName(t *testing.T, e *env) {
	come := make(chan struct{})
	s := e.scene(t, "another-name", Plan{Name: "worker-7", After: come})
	// A separate class: from now on Nodes of this class are not created in advance, and other scenes rely on such Nodes.
	s.begin(2, func(p *karpv1.NodePool) { p.Spec.Template.Spec.NodeClassRef.Name = "another-name" }, nil)
	early := s.pods(2, cluster.Bound)
	made := s.node(anyNode)
	close(come)
	s.node(func(n *corev1.Node) bool { return n.Name == "worker-7" })
	s.untaint("worker-7", "node.cloudprovider.kubernetes.io/uninitialized") // as the cloud's node controller does
	for _, p := range s.pods(2, cluster.Running) {
		if p.Spec.NodeName != "worker-7" || slices.ContainsFunc(early, func(e *corev1.Pod) bool { return e.UID == p.UID }) {
			t.Errorf("pod %s runs on %s", p.Name, p.Spec.NodeName)
		}
	}
	node := s.node(initialized)
	for _, key := range []string{corev1.LabelInstanceTypeStable, corev1.LabelTopologyZone, karpv1.CapacityTypeLabelKey, karpv1.NodeRegisteredLabelKey} {
		if want := made.Labels[key]; node.Labels[key] == "" || want != "" && node.Labels[key] != want {
			t.Errorf("label %s is %q, on the node made ahead it was %q", key, node.Labels[key], want)
		}
	}
	claims := s.claims("the claim to know its node", func(c []*karpv1.NodeClaim) bool { return len(c) == 1 && c[0].Status.NodeName == "worker-7" })
	if why := claims[0].StatusConditions().Get(karpv1.ConditionTypeRegistered).Reason; why != "RegisteredUnderOtherName" {
		t.Errorf("the claim's condition gives the reason %q", why)
	}
	s.launched(1)
}

// An instance whose kubelet doesn't register in time is terminated, and its pods get another one.
func neverComes(t *testing.T, e *env) {
	come := make(chan struct{})
	s := e.scene(t, "never-comes", Plan{After: come})
	s.begin(2, nil, nil)
	early := s.pods(2, cluster.Bound)
	first := s.claims("one claim", func(c []*karpv1.NodeClaim) bool { return len(c) == 1 && c[0].Status.ProviderID != "" })[0]
	s.claims("the claim to end", func(c []*karpv1.NodeClaim) bool {
		return !slices.ContainsFunc(c, func(c *karpv1.NodeClaim) bool { return c.UID == first.UID && c.DeletionTimestamp == nil })
	})
	s.claims("another claim's node", func(c []*karpv1.NodeClaim) bool {
		return slices.ContainsFunc(c, func(c *karpv1.NodeClaim) bool { return c.UID != first.UID && c.Status.NodeName != "" })
	})
	close(come)
	for _, p := range s.pods(2, cluster.Running) {
		if slices.ContainsFunc(early, func(e *corev1.Pod) bool { return e.UID == p.UID }) {
			t.Errorf("pod %s was bound to a node without kubelet, and runs", p.Name)
		}
	}
	s.launched(2)
	for _, in := range s.instances() {
		if first.Status.ProviderID == "aws:///"+in.Zone+"/"+in.ID && in.State == "running" {
			t.Errorf("instance %s, which had no kubelet, still runs", in.ID)
		}
	}
}

// Pods that are deleted while their node boots disappear although there is no kubelet to stop them yet; later the kubelet stops them.
func deletedTooSoon(t *testing.T, e *env) {
	come := make(chan struct{})
	s := e.scene(t, "deleted-too-soon", Plan{After: come})
	s.begin(2, nil, nil)
	s.pods(2, cluster.Bound)
	s.scale(0)
	s.pods(0, cluster.Bound)
	if n := s.node(anyNode); n.Status.NodeInfo.KubeletVersion != "" {
		t.Error("a kubelet has come before it was let")
	}
	close(come)
	s.node(initialized)
	s.scale(2)
	s.pods(2, cluster.Running)
	s.scale(0)
	s.pods(0, cluster.Bound)
	s.launched(1)
}

// Pods that don't tolerate a startup taint wait until it is removed; no other node is launched for them.
func startupTaint(t *testing.T, e *env) {
	come := make(chan struct{})
	s := e.scene(t, "startup-taint", Plan{After: come})
	s.begin(2, func(p *karpv1.NodePool) {
		p.Spec.Template.Spec.StartupTaints = []corev1.Taint{{Key: "agent", Value: "absent", Effect: corev1.TaintEffectNoExecute}}
	}, nil)
	s.node(anyNode)
	close(come)
	node := s.node(cluster.Ready)
	for _, p := range s.pods(2, func(*corev1.Pod) bool { return true }) {
		if p.Spec.NodeName != "" {
			t.Errorf("pod %s is bound in spite of the startup taint", p.Name)
		}
	}
	s.untaint(node.Name, "agent")
	s.pods(2, cluster.Running)
	s.node(initialized)
	s.launched(1)
}

// A pod without controller is bound once the kubelet has registered.
func barePod(t *testing.T, e *env) {
	come := make(chan struct{})
	s := e.scene(t, "bare", Plan{After: come})
	s.begin(0, nil, nil)
	pods := &appsv1.Deployment{}
	if err := s.Client().Get(s.ctx, client.ObjectKey{Namespace: "default", Name: s.name}, pods); err != nil {
		t.Fatal(err)
	}
	if err := s.Create(s.ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: s.name, Labels: map[string]string{"app": s.name}}, Spec: pods.Spec.Template.Spec,
	}); err != nil {
		t.Fatal(err)
	}
	made := s.node(anyNode)
	s.lease(made.Name, func(*coordinationv1.Lease) bool { return true }) // by then, some seconds have passed
	if p := s.pods(1, func(*corev1.Pod) bool { return true })[0]; p.Spec.NodeName != "" {
		t.Error("the pod is bound to a node without kubelet")
	}
	close(come)
	s.pods(1, cluster.Running)
	s.launched(1)
}
