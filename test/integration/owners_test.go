package integration

import (
	"slices"
	"strings"
	"testing"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/test/cluster"
)

// asKarpenters changes the objects so that they look as if an older version of Karpenter had made them: with hashes of its versions and
// without launch records.
func (e *env) asKarpenters() {
	e.Helper()
	e.patch(&karpv1.NodePool{}, "default", `{"metadata":{"annotations":{"karpenter.sh/nodepool-hash":"1","karpenter.sh/nodepool-hash-version":"v2"}}}`)
	e.patch(&ec2nc.EC2NodeClass{}, "default", `{"metadata":{"annotations":{"karpenter.k8s.aws/ec2nodeclass-hash":"1","karpenter.k8s.aws/ec2nodeclass-hash-version":"v4"}}}`)
	for _, c := range e.claims() {
		e.patch(&karpv1.NodeClaim{}, c.Name, `{"metadata":{"annotations":{"dovetail.sh/launch-batch":null,"dovetail.sh/planned-pods":null,"dovetail.sh/largest-capacity":null,
			"karpenter.sh/nodepool-hash":"1","karpenter.sh/nodepool-hash-version":"v2",
			"karpenter.k8s.aws/ec2nodeclass-hash":"1","karpenter.k8s.aws/ec2nodeclass-hash-version":"v4"}}}`)
	}
}

// leads makes Karpenter hold its leader election lease, for an hour or until the test changes it.
func (e *env) leads() {
	e.Helper()
	holder, lasts, now := "karpenter-0", int32(3600), metav1.NowMicro()
	e.create(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: karpenter.ExternalLease},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &lasts, AcquireTime: &now, RenewTime: &now},
	})
}

// eventSays waits for an event with that reason about an object of that name, in any namespace, whose message contains the words.
func (e *env) eventSays(about, reason, words string) {
	e.Helper()
	if _, err := cluster.Until(e.wait(), e.api, &corev1.EventList{}, func(events []*corev1.Event) (bool, string, error) {
		return slices.ContainsFunc(events, func(ev *corev1.Event) bool {
			return ev.InvolvedObject.Name == about && ev.Reason == reason && strings.Contains(ev.Message, words)
		}), "an event " + reason + " of " + about + " that says " + words, nil
	}); err != nil {
		e.Fatal(err)
	}
}

// As long as Karpenter is active in the cluster, nothing is launched or terminated, and events state why. Afterwards, the nodes that
// it made are treated like ours.
func TestBesideKarpenter(t *testing.T) {
	t.Parallel()
	e := start(t, mortal)
	e.apply(nodeClass, strings.Replace(nodePool, "consolidateAfter: Never", "consolidateAfter: 1s", 1))
	e.pods("theirs", 3, "1500m", "2Gi", antiAffine)
	pods := e.running("theirs", 3)
	e.settled(3)
	e.sched.Kill()
	e.asKarpenters()
	e.leads()
	if err := e.sched.Restart(e.ctx); err != nil {
		t.Fatal(err)
	}

	byNode := map[string]*karpv1.NodeClaim{}
	for _, c := range e.claims() {
		byNode[c.Status.NodeName] = c
	}
	empty, deleted, kept := byNode[pods[0].Spec.NodeName], byNode[pods[1].Spec.NodeName], byNode[pods[2].Spec.NodeName]
	const why = "Karpenter is active in this cluster (lease kube-system/karpenter-leader-election, held by karpenter-0)"
	e.eventSays("default", "HeldBack", why)
	if err := e.api.Delete(e.ctx, pods[0], client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	if err := e.api.Delete(e.ctx, deleted); err != nil {
		t.Fatal(err)
	}
	e.apply(strings.Replace(handmade, "name: mine", "name: by-hand", 1))
	e.pods("large", 1, "12", "16Gi")
	e.eventSays("large-0", "FailedProvisioning", why)
	shown, err := e.sched.Get(e.ctx, "/configz")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(shown), why) {
		t.Errorf("/configz doesn't say that %s", why)
	}
	if n := len(e.sim.Live()); n != 3 || e.launches() != 3 {
		t.Errorf("%d instances live of %d, want three: nothing may be launched or ended", n, e.launches())
	}
	for name, c := range byNode {
		if node := e.nodes()[name]; node == nil || node.DeletionTimestamp != nil || len(node.Spec.Taints) > 0 {
			t.Errorf("node %s of claim %s was touched: %+v", name, c.Name, node)
		}
	}
	for _, c := range e.claims() {
		if v := c.Annotations[karpv1.NodePoolHashVersionAnnotationKey]; c.Name != "by-hand" && v != "v2" {
			t.Errorf("claim %s was stamped %s", c.Name, v)
		}
	}

	// Karpenter is uninstalled: it releases its lease when it shuts down.
	e.patch(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system"}}, karpenter.ExternalLease, `{"spec":{"holderIdentity":"","leaseDurationSeconds":1}}`)
	e.eventSays("default", "Resumed", "")
	e.running("large", 1)
	e.claim("by-hand", "initialized", initialized)
	e.gone(deleted)
	e.gone(empty)
	c := e.claim(kept.Name, "adopted", func(c *karpv1.NodeClaim) bool {
		return c.Annotations[karpv1.NodePoolHashVersionAnnotationKey] == karpv1.NodePoolHashVersion && c.Annotations[ec2nc.AnnotationEC2NodeClassHashVersion] == ec2nc.EC2NodeClassHashVersion
	})
	if c.DeletionTimestamp != nil || c.StatusConditions().Get(karpv1.ConditionTypeDrifted).IsTrue() || c.UID != kept.UID {
		t.Errorf("claim %s: deleted at %v, %v", c.Name, c.DeletionTimestamp, plain(c.GetConditions()))
	}
	e.settled(3)
	if err := e.api.Delete(e.ctx, c); err != nil {
		t.Fatal(err)
	}
	e.gone(c)
}
