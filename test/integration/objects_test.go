package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	karpv1alpha1 "sigs.k8s.io/karpenter/pkg/apis/v1alpha1"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
)

const nodeOverlays = `
apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata: {name: ours}
spec:
  requirements: [{key: node.kubernetes.io/instance-type, operator: In, values: [r5.xlarge]}, {key: karpenter.sh/nodepool, operator: In, values: [default]}]
  price: "0.001"
  capacity: {example.com/widget: 3}
  weight: 10
---
apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata: {name: contrary}
spec:
  requirements: [{key: karpenter.k8s.aws/instance-family, operator: In, values: [r5]}]
  priceAdjustment: "+10%"
  weight: 10
`

// until waits until ok is true for the object of that name, and returns the object.
func until[T client.Object](e *env, list client.ObjectList, name, what string, ok func(T) bool) (found T) {
	e.Helper()
	if _, err := cluster.Until(e.wait(), e.api, list, func(objects []T) (bool, string, error) {
		for _, o := range objects {
			if o.GetName() == name && ok(o) {
				found = o
				return true, "", nil
			}
		}
		return false, fmt.Sprintf("%s to be %s", name, what), nil
	}); err != nil {
		e.Fatal(err)
	}
	return found
}

// Karpenter's objects on a real API server: what the product writes to them passes its validation, overlays affect which instance type
// is launched, a limit holds, and a class is deleted only after its NodeClaims.
func TestKarpentersObjects(t *testing.T) {
	t.Parallel()
	e := start(t, nil)
	limited := strings.Replace(nodePool, "\nspec:\n", "\nspec:\n  limits: {nodes: 2}\n", 1)
	e.apply(nodeClass, limited, nodeOverlays)
	until(e, &karpv1alpha1.NodeOverlayList{}, "ours", "ready", func(o *karpv1alpha1.NodeOverlay) bool { return o.StatusConditions().Root().IsTrue() })
	until(e, &karpv1alpha1.NodeOverlayList{}, "contrary", "refused", func(o *karpv1alpha1.NodeOverlay) bool {
		c := o.StatusConditions().Get(karpv1alpha1.ConditionTypeValidationSucceeded)
		return c.IsFalse() && c.Reason == "Conflict" && strings.Contains(c.Message, "NodeOverlay ours")
	})
	until(e, &ec2nc.EC2NodeClassList{}, "default", "stamped", func(nc *ec2nc.EC2NodeClass) bool {
		return nc.Annotations[ec2nc.AnnotationEC2NodeClassHashVersion] == ec2nc.EC2NodeClassHashVersion && slices.Contains(nc.Finalizers, ec2nc.TerminationFinalizer)
	})

	// One pod per node, because an r5.xlarge has four CPUs.
	zone := func(p *corev1.Pod) {
		p.Spec.NodeSelector = map[string]string{"topology.k8s.aws/zone-id": e.zoneID(zones[1])}
	}
	e.pods("web", 2, "3", "1Gi", zone)
	e.running("web", 2)
	e.pods("more", 1, "3", "1Gi", zone)
	if note := e.eventOf("more-0", "FailedProvisioning"); !strings.Contains(note, "limit of nodes") {
		t.Errorf("the event of the pod that is over the limit: %s", note)
	}
	e.settled(2)
	pool := until(e, &karpv1.NodePoolList{}, "default", "healthy, with two nodes", func(np *karpv1.NodePool) bool {
		return np.StatusConditions().Root().IsTrue() && np.StatusConditions().Get(karpv1.ConditionTypeNodeRegistrationHealthy).IsTrue() && *np.Status.Nodes == 2
	})
	if pool.Annotations[karpv1.NodePoolHashAnnotationKey] != pool.Hash() || pool.Annotations[karpv1.NodePoolHashVersionAnnotationKey] != karpv1.NodePoolHashVersion {
		t.Errorf("the pool's hash: %v, want %s", pool.Annotations, pool.Hash())
	}
	for _, nc := range e.claims() {
		for key, want := range map[string]string{
			"karpenter.sh/price-overlay-applied": "true", "karpenter.sh/capacity-overlay-applied": "true",
			karpv1.NodePoolHashAnnotationKey: pool.Hash(), ec2nc.AnnotationEC2NodeClassHashVersion: ec2nc.EC2NodeClassHashVersion,
		} {
			if nc.Annotations[key] != want {
				t.Errorf("claim %s: annotation %s is %q, want %q", nc.Name, key, nc.Annotations[key], want)
			}
		}
		if nc.Labels[corev1.LabelInstanceTypeStable] != "r5.xlarge" || nc.Labels[corev1.LabelTopologyZone] != zones[1] {
			t.Errorf("claim %s was launched as %s in %s, want the type with the overlay in the zone that was asked for", nc.Name, nc.Labels[corev1.LabelInstanceTypeStable], nc.Labels[corev1.LabelTopologyZone])
		}
		if w := nc.Status.Capacity["example.com/widget"]; w.Value() != 3 {
			t.Errorf("claim %s has %s widgets, want 3", nc.Name, w.String())
		}
	}

	// The class is deleted: it stays as long as its nodes exist.
	if err := e.api.DeleteAllOf(e.ctx, &ec2nc.EC2NodeClass{}); err != nil {
		t.Fatal(err)
	}
	until(e, &ec2nc.EC2NodeClassList{}, "default", "going", func(nc *ec2nc.EC2NodeClass) bool { return nc.DeletionTimestamp != nil })
	until(e, &karpv1.NodePoolList{}, "default", "not ready", func(np *karpv1.NodePool) bool { return np.StatusConditions().Root().IsFalse() })
	if n := len(e.claims()); n != 2 {
		t.Errorf("%d claims after the class was deleted, want both", n)
	}
	if err := e.api.DeleteAllOf(e.ctx, &karpv1.NodeClaim{}); err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.Until(e.wait(), e.api, &ec2nc.EC2NodeClassList{}, func(o []*ec2nc.EC2NodeClass) (bool, string, error) {
		return len(o) == 0, "the class to be gone after its claims", nil
	}); err != nil {
		t.Fatal(err)
	}
	if n := len(e.sim.Live()); n != 0 {
		t.Errorf("%d instances live after the last claim", n)
	}
}

// zoneID returns the ID of a zone from the class's status.
func (e *env) zoneID(zone string) string {
	e.Helper()
	id := ""
	until(e, &ec2nc.EC2NodeClassList{}, "default", "resolved", func(nc *ec2nc.EC2NodeClass) bool {
		for _, s := range nc.Status.Subnets {
			if s.Zone == zone {
				id = s.ZoneID
			}
		}
		return id != ""
	})
	return id
}
