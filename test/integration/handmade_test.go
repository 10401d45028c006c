package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/ec2"
)

// handmade is a standalone NodeClaim as a user writes it.
const handmade = `
apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata:
  name: mine
  labels: {team: a}
spec:
  nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
  requirements:
    - {key: kubernetes.io/arch, operator: In, values: [amd64]}
    - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
    - {key: karpenter.k8s.aws/instance-family, operator: In, values: [c5, m5, r5], minValues: 2}
  taints: [{key: team, value: a, effect: NoSchedule}]
  resources: {requests: {cpu: "3", memory: 4Gi}}
`

// claim waits until ok returns true for the NodeClaim of that name, and returns it.
func (e *env) claim(name, what string, ok func(*karpv1.NodeClaim) bool) *karpv1.NodeClaim {
	e.Helper()
	var out *karpv1.NodeClaim
	if _, err := cluster.Until(e.wait(), e.api, &karpv1.NodeClaimList{}, func(claims []*karpv1.NodeClaim) (bool, string, error) {
		said := "no such claim"
		for _, c := range claims {
			if c.Name == name {
				out, said = c, fmt.Sprintf("%v", plain(c.GetConditions()))
				if ok(c) {
					return true, "", nil
				}
			}
		}
		return false, fmt.Sprintf("claim %s to be %s: %s", name, what, said), nil
	}); err != nil {
		e.Fatal(err)
	}
	return out
}

func initialized(c *karpv1.NodeClaim) bool {
	return c.StatusConditions().Get(karpv1.ConditionTypeInitialized).IsTrue()
}

// says returns a function that reports whether the message of the NodeClaim's Launched condition contains a text.
func says(words string) func(*karpv1.NodeClaim) bool {
	return func(c *karpv1.NodeClaim) bool {
		return strings.Contains(c.StatusConditions().Get(karpv1.ConditionTypeLaunched).Message, words)
	}
}

// ended waits until there is no NodeClaim of that name.
func (e *env) ended(name string) {
	e.Helper()
	if _, err := cluster.Until(e.wait(), e.api, &karpv1.NodeClaimList{}, func(claims []*karpv1.NodeClaim) (bool, string, error) {
		there := slices.ContainsFunc(claims, func(c *karpv1.NodeClaim) bool { return c.Name == name })
		return !there, "the end of claim " + name, nil
	}); err != nil {
		e.Fatal(err)
	}
}

// gone waits until a NodeClaim, its Node and its instance are terminated.
func (e *env) gone(claim *karpv1.NodeClaim) {
	e.Helper()
	if _, err := cluster.Until(e.wait(), e.api, &karpv1.NodeClaimList{}, func(claims []*karpv1.NodeClaim) (bool, string, error) {
		for _, c := range claims {
			if c.UID == claim.UID {
				return false, fmt.Sprintf("the end of claim %s: %v", c.Name, plain(c.GetConditions())), nil
			}
		}
		return true, "", nil
	}); err != nil {
		e.Fatal(err)
	}
	if e.nodes()[claim.Status.NodeName] != nil {
		e.Errorf("Node %s is left", claim.Status.NodeName)
	}
	for _, in := range e.sim.Live() {
		if strings.HasSuffix(claim.Status.ProviderID, "/"+in.ID) {
			e.Errorf("instance %s is left", in.ID)
		}
	}
}

// There is no NodePool: a user creates a standalone NodeClaim, and its node works like any other until the NodeClaim is deleted.
func TestClaimMadeByHand(t *testing.T) {
	t.Parallel()
	e := start(t, nil)
	e.apply(handmade)
	e.eventSays("mine", "NodeClassNotFound", "there is no EC2NodeClass default")
	e.ended("mine")
	e.apply(nodeClass)
	e.apply(handmade)
	c := e.claim("mine", "initialized", initialized)
	in := e.sim.Live()
	if len(in) != 1 || !strings.HasSuffix(c.Status.ProviderID, "/"+in[0].ID) || len(in[0].ClientToken) == 0 {
		t.Fatalf("instances %+v of claim %s", in, c.Status.ProviderID)
	}
	if family, _, _ := strings.Cut(in[0].Type, "."); family != "c5" && family != "m5" && family != "r5" || in[0].CapacityType != "on-demand" {
		t.Errorf("launched a %s %s", in[0].CapacityType, in[0].Type)
	}
	if in[0].Tags["karpenter.sh/nodeclaim"] != "mine" || in[0].Tags["kubernetes.io/cluster/dovetail"] != "owned" {
		t.Errorf("tags %v", in[0].Tags)
	}
	if c.Finalizers[0] != karpv1.TerminationFinalizer || c.Labels["karpenter.k8s.aws/ec2nodeclass"] != "default" || len(c.OwnerReferences) > 0 {
		t.Errorf("claim %+v", c.ObjectMeta)
	}
	node := e.nodes()[c.Status.NodeName]
	if node.Labels["team"] != "a" || node.Labels[karpv1.NodePoolLabelKey] != "" ||
		!slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "team" && t.Effect == corev1.TaintEffectNoSchedule }) {
		t.Errorf("node %s: labels %v, taints %v", node.Name, node.Labels, node.Spec.Taints)
	}

	e.pods("web", 2, "1", "1Gi", func(p *corev1.Pod) {
		p.Spec.NodeSelector = map[string]string{"team": "a"}
		p.Spec.Tolerations = []corev1.Toleration{{Key: "team", Operator: corev1.TolerationOpExists}}
	})
	for _, p := range e.running("web", 2) {
		if p.Spec.NodeName != node.Name {
			t.Errorf("pod %s is on %s", p.Name, p.Spec.NodeName)
		}
		if err := e.api.Delete(e.ctx, p, client.GracePeriodSeconds(0)); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.api.Delete(e.ctx, c); err != nil {
		t.Fatal(err)
	}
	e.gone(c)
	if n := e.launches(); n != 1 {
		t.Errorf("%d launches", n)
	}

	// One with dedicated tenancy, which no pool requires, and with a startup taint: it is initialized when an agent has removed that.
	e.apply(strings.Replace(handmade, "  taints:", "    - {key: karpenter.k8s.aws/instance-tenancy, operator: In, values: [dedicated]}\n  startupTaints: [{key: agent, effect: NoSchedule}]\n  taints:", 1))
	c = e.claim("mine", "held up by its startup taint", func(c *karpv1.NodeClaim) bool {
		return c.StatusConditions().Get(karpv1.ConditionTypeInitialized).Reason == "StartupTaintsExist"
	})
	var started corev1.Node
	if err := e.api.Get(e.ctx, client.ObjectKey{Name: c.Status.NodeName}, &started); err != nil {
		t.Fatal(err)
	}
	keys := map[string]bool{}
	for _, taint := range started.Spec.Taints {
		keys[taint.Key] = true
	}
	if !keys["team"] || !keys["agent"] || started.Labels["team"] != "a" {
		t.Errorf("node %s: labels %v, taints %v", started.Name, started.Labels, started.Spec.Taints)
	}
	before := started.DeepCopy()
	started.Spec.Taints = slices.DeleteFunc(started.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "agent" })
	if err := e.api.Patch(e.ctx, &started, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	c = e.claim("mine", "initialized", initialized)
	if in := e.sim.Live(); len(in) != 1 || in[0].Placement.Tenancy != "dedicated" {
		t.Errorf("instances %+v, want one of dedicated tenancy", in)
	}
	if got := e.nodes()[c.Status.NodeName].Labels["karpenter.k8s.aws/instance-tenancy"]; got != "dedicated" {
		t.Errorf("the node's label for tenancy is %q", got)
	}
}

// A standalone NodeClaim with a pool's label counts towards that pool. If it can't be satisfied, its condition names the field, and
// nothing is launched.
func TestClaimsMadeByHandForAPool(t *testing.T) {
	t.Parallel()
	e := start(t, nil)
	e.apply(nodeClass, nodePool)
	e.apply(strings.Replace(handmade, "labels: {team: a}", "labels: {karpenter.sh/nodepool: default}", 1))
	for name, change := range map[string][2]string{
		"impossible": {"values: [c5, m5, r5], minValues: 2", "values: [z99]"},
		"too-large":  {`cpu: "3"`, `cpu: "3000"`},
	} {
		e.apply(strings.Replace(strings.Replace(handmade, "name: mine", "name: "+name, 1), change[0], change[1], 1))
	}
	e.claim("impossible", "refused", says("spec.requirements: its requirements exclude all"))
	e.claim("too-large", "refused", says("spec.resources.requests: none of"))
	c := e.claim("mine", "initialized", initialized)
	if _, err := cluster.Until(e.wait(), e.api, &karpv1.NodePoolList{}, func(pools []*karpv1.NodePool) (bool, string, error) {
		return len(pools) == 1 && pools[0].Status.Nodes != nil && *pools[0].Status.Nodes == 1, "the pool to count one node", nil
	}); err != nil {
		t.Fatal(err)
	}
	if node := e.nodes()[c.Status.NodeName]; node.Labels[karpv1.NodePoolLabelKey] != "default" {
		t.Errorf("node labels %v", node.Labels)
	}
	if n := e.launches(); n != 1 {
		t.Errorf("%d launches", n)
	}
}

// The scheduler is killed after the launch call and before it is recorded: the same token returns the same instance.
func TestKilledWhileLaunchingAClaimMadeByHand(t *testing.T) {
	t.Parallel()
	e := start(t, mortal)
	k := e.killer()
	e.sim.After("CreateFleet", func(*ec2.Request, *ec2.Answer) *ec2.Fault {
		if !k.first() {
			return nil
		}
		return &ec2.Fault{Call: k.now, Drop: true}
	})
	e.apply(nodeClass, handmade)
	select {
	case <-k.done:
	case <-e.wait().Done():
		t.Fatal("the moment to kill the scheduler never came")
	}
	if err := e.sched.Restart(e.ctx); err != nil {
		t.Fatal(err)
	}
	c := e.claim("mine", "initialized", initialized)
	e.settled(1)
	if n := e.launches(); n != 1 {
		t.Errorf("%d launches", n)
	}
	if err := e.api.Delete(e.ctx, &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: c.Name}}); err != nil {
		t.Fatal(err)
	}
	e.gone(c)
}
