package integration

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/manifests"
	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/ec2"
)

// tolerating, selecting and storing are options for a team's pods.
func tolerating(key, value string) podOpt {
	return func(p *corev1.Pod) {
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: key, Operator: corev1.TolerationOpEqual, Value: value, Effect: corev1.TaintEffectNoSchedule})
	}
}

func selecting(key, value string) podOpt {
	return func(p *corev1.Pod) {
		if p.Spec.NodeSelector == nil {
			p.Spec.NodeSelector = map[string]string{}
		}
		p.Spec.NodeSelector[key] = value
	}
}

func storing(amount string) podOpt {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests[corev1.ResourceEphemeralStorage] = resource.MustParse(amount)
	}
}

// landed waits until the pods of an application run and returns their nodes.
func (e *env) landed(app string, n int) []*corev1.Node {
	e.Helper()
	all := e.running(app, n)
	nodes := e.nodes()
	var out []*corev1.Node
	for _, p := range all {
		node := nodes[p.Spec.NodeName]
		if node == nil {
			e.Fatalf("pod %s is on %s, which is not there", p.Name, p.Spec.NodeName)
		}
		if !slices.Contains(out, node) {
			out = append(out, node)
		}
	}
	return out
}

// wantLabels checks the nodes' labels: each key must have one of its values.
func (e *env) wantLabels(whose string, nodes []*corev1.Node, want map[string][]string) {
	e.Helper()
	for _, n := range nodes {
		for key, values := range want {
			if !slices.Contains(values, n.Labels[key]) {
				e.Errorf("node %s of %s: label %s is %q, want one of %q", n.Name, whose, key, n.Labels[key], values)
			}
		}
	}
}

// TestTeams applies the shipped pools of several teams: each team's pods get nodes of the right kind, no team's pods are placed on
// another team's nodes, and pods for which a team's cheaper pool has no capacity get nodes from its more expensive pool.
func TestTeams(t *testing.T) {
	t.Parallel()
	e := start(t, nil)
	files, err := manifests.Folder("examples/teams")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		e.apply(string(f))
	}
	const poolKey, capacityKey = karpv1.NodePoolLabelKey, karpv1.CapacityTypeLabelKey
	if _, err := cluster.Until(e.wait(), e.api, &karpv1.NodePoolList{}, func(pools []*karpv1.NodePool) (bool, string, error) {
		for _, np := range pools {
			if !np.StatusConditions().Root().IsTrue() {
				return false, fmt.Sprintf("pool %s to be ready: %v", np.Name, plain(np.GetConditions())), nil
			}
		}
		return len(pools) == 5, "five pools", nil
	}); err != nil {
		t.Fatal(err)
	}

	// All at once, so that each team's pods could be placed on nodes that are being launched for another.
	e.pods("train", 2, "2", "4Gi", gpus("1"), tolerating("nvidia.com/gpu", "true"))
	e.pods("database", 1, "1", "4Gi", storing("300Gi"), tolerating("team", "storage"))
	e.pods("shop", 4, "1", "2Gi", selecting("team", "web"), tolerating("team", "web"))
	e.pods("night", 2, "1", "1Gi", selecting("tier", "nightly"), tolerating("team", "batch"))
	e.pods("now", 2, "1", "1Gi", selecting("tier", "urgent"), tolerating("team", "batch"))
	e.pods("arm", 1, "1", "1Gi", selecting("team", "batch"), selecting(corev1.LabelArchStable, "arm64"), tolerating("team", "batch"))
	e.pods("intel", 1, "1", "1Gi", selecting("team", "batch"), selecting(corev1.LabelArchStable, "amd64"), tolerating("team", "batch"))
	// A pod of no team has no pool, and must not be placed on a team's node.
	e.pods("stray", 1, "100m", "64Mi")

	gpuNodes := e.landed("train", 2)
	e.wantLabels("train", gpuNodes, map[string][]string{poolKey: {"gpu"}, "team": {"ml"}, capacityKey: {"on-demand"}, "karpenter.k8s.aws/instance-gpu-manufacturer": {"nvidia"}})
	for _, n := range gpuNodes {
		if q := n.Status.Allocatable[gpu]; q.Value() < 1 || q.Value() > 4 {
			t.Errorf("node %s has %s GPUs", n.Name, q.String())
		}
	}
	disks := e.landed("database", 1)
	e.wantLabels("database", disks, map[string][]string{poolKey: {"storage"}, "team": {"storage"}, capacityKey: {"on-demand"}})
	for _, n := range disks {
		if q := n.Status.Allocatable[corev1.ResourceEphemeralStorage]; q.Cmp(resource.MustParse("300Gi")) < 0 || n.Labels["karpenter.k8s.aws/instance-local-nvme"] == "" {
			t.Errorf("node %s, a %s, has %s of ephemeral storage: its disks are not used", n.Name, n.Labels[corev1.LabelInstanceTypeStable], q.String())
		}
	}
	e.wantLabels("shop", e.landed("shop", 4), map[string][]string{poolKey: {"web-spot"}, "team": {"web"}, capacityKey: {"spot"}})
	night, now := e.landed("night", 2), e.landed("now", 2)
	e.wantLabels("night", night, map[string][]string{poolKey: {"batch"}, "tier": {"nightly"}, "team": {"batch"}})
	e.wantLabels("now", now, map[string][]string{poolKey: {"batch"}, "tier": {"urgent"}, "team": {"batch"}})
	e.wantLabels("arm", e.landed("arm", 1), map[string][]string{poolKey: {"batch"}, corev1.LabelArchStable: {"arm64"}})
	e.wantLabels("intel", e.landed("intel", 1), map[string][]string{poolKey: {"batch"}, corev1.LabelArchStable: {"amd64"}})
	if why := e.eventOf("stray-0", "FailedProvisioning"); why == "" {
		t.Error("the pod of no team is not told why it has no node")
	}
	if p := e.podsOf("stray")[0]; p.Spec.NodeName != "" {
		t.Errorf("the pod of no team is on %s", p.Spec.NodeName)
	}

	// There is no spot capacity any more.
	e.sim.SetCapacity(ec2.Any, ec2.Any, "spot", 0)
	e.pods("sale", 6, "3", "6Gi", selecting("team", "web"), tolerating("team", "web"))
	sale := e.landed("sale", 6)
	e.wantLabels("sale", sale, map[string][]string{poolKey: {"web-spot", "web-on-demand"}, "team": {"web"}})
	bought := slices.DeleteFunc(sale, func(n *corev1.Node) bool { return n.Labels[poolKey] == "web-spot" })
	if len(bought) == 0 {
		t.Error("nothing was bought in the other pool")
	}
	e.wantLabels("sale", bought, map[string][]string{capacityKey: {"on-demand"}})
	e.settled(len(e.claims()))
	e.poolsEnd(string(files[len(files)-1]))
}

// poolsEnd deletes a team's pool: its nodes are drained and terminated, and the other teams' nodes are not affected. A new pool of the
// same name, created at once, is a different pool.
func (e *env) poolsEnd(batch string) {
	e.Helper()
	storage, old, others := e.claimsOf("storage"), e.claimsOf("batch"), e.claimsOf("gpu")
	database := e.podsOf("database")[0]
	e.patch(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: database.Namespace}}, database.Name, `{"metadata":{"annotations":{"karpenter.sh/do-not-disrupt":"true"}}}`)
	for _, name := range []string{"storage", "batch"} {
		if err := e.api.Delete(e.ctx, &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			e.Fatal(err)
		}
	}
	e.apply(batch)
	e.claim(storage[0].Name, "draining", func(c *karpv1.NodeClaim) bool {
		node := e.nodes()[c.Status.NodeName]
		return c.DeletionTimestamp != nil && node != nil && slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&karpv1.DisruptedNoScheduleTaint) })
	})
	for _, c := range old {
		e.gone(c)
	}
	// The pod that asks not to be disturbed has kept its node all the while.
	if p := e.podsOf("database"); len(p) != 1 || p[0].DeletionTimestamp != nil {
		e.Errorf("the pod that was not to be disturbed: %+v", p)
	}
	e.pods("later", 1, "1", "1Gi", selecting("tier", "nightly"), tolerating("team", "batch"))
	e.landed("later", 1)
	pool := &karpv1.NodePool{}
	if err := e.api.Get(e.ctx, client.ObjectKey{Name: "batch"}, pool); err != nil {
		e.Fatal(err)
	}
	fresh := e.claimsOf("batch")
	if len(fresh) != 1 || fresh[0].DeletionTimestamp != nil || fresh[0].OwnerReferences[0].UID != pool.UID {
		e.Errorf("claims of the pool that was made anew: %+v", fresh)
	}

	if err := e.api.Delete(e.ctx, &database, client.GracePeriodSeconds(0)); err != nil {
		e.Fatal(err)
	}
	e.gone(storage[0])
	e.pods("database-2", 1, "1", "4Gi", storing("300Gi"), tolerating("team", "storage"))
	e.eventOf("database-2-0", "FailedProvisioning")
	if left := e.claimsOf("storage"); len(left) > 0 {
		e.Errorf("launched in a pool that was deleted: %v", left)
	}
	for _, c := range e.claimsOf("gpu") {
		if c.DeletionTimestamp != nil {
			e.Errorf("claim %s of another pool ends, too", c.Name)
		}
	}
	if n := len(e.claimsOf("gpu")); n != len(others) {
		e.Errorf("the other pool has %d claims, had %d", n, len(others))
	}
}

func (e *env) claimsOf(pool string) (out []*karpv1.NodeClaim) {
	e.Helper()
	for _, c := range e.claims() {
		if c.Labels[karpv1.NodePoolLabelKey] == pool {
			out = append(out, c)
		}
	}
	return out
}
