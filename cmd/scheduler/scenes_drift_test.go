package main

import (
	"testing"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/chaos"
)

// Claims say whether their nodes have drifted. The budgets of these pools allow no node to be replaced for that.

// drifting is a cluster with a pool for pods, a static pool and a standalone claim, all of the same class, and the edits of them.
type drifting struct {
	*chaos.Stage
	class        *ec2nc.EC2NodeClass
	pool, static *karpv1.NodePool
	launched     int
}

func drift(s *chaos.Stage) *drifting {
	d := &drifting{Stage: s, class: chaos.Class("default"), pool: chaos.Pool("default", "default"), static: chaos.Pool("static", "default")}
	d.static.Spec.Replicas, d.static.Spec.Disruption.ConsolidateAfter = ptr.To[int64](2), karpv1.MustParseNillableDuration("Never")
	// Nodes get a value for a label that the pool leaves open: without one they would not satisfy their pool, and all would drift.
	d.static.Spec.Template.Spec.Requirements = append(d.static.Spec.Template.Spec.Requirements,
		karpv1.NodeSelectorRequirementWithMinValues{Key: "example.com/slot", Operator: corev1.NodeSelectorOpExists},
		karpv1.NodeSelectorRequirementWithMinValues{Key: "example.com/size", Operator: corev1.NodeSelectorOpGt, Values: []string{"2"}})
	for _, np := range []*karpv1.NodePool{d.pool, d.static} {
		np.Spec.Disruption.Budgets = append(np.Spec.Disruption.Budgets, karpv1.Budget{Nodes: "0", Reasons: []karpv1.DisruptionReason{karpv1.DisruptionReasonDrifted}})
	}
	s.Create(d.class, d.pool, d.static, &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "by-hand"}, Spec: karpv1.NodeClaimSpec{
		NodeClassRef: d.pool.Spec.Template.Spec.NodeClassRef, Requirements: d.pool.Spec.Template.Spec.Requirements,
	}})
	s.Create(chaos.Deployment(7, chaos.Template("web", "1", "1Gi", chaos.OnePerNode)))
	s.Start()
	s.Until("all run", 10*time.Minute, s.Running(map[string]int{"web": 7}))
	s.Pass(5 * time.Minute)
	d.launched = s.Launched()
	if n := len(s.Claims()); n != 7 {
		s.Failf("%d claims, want four launched for pods, two of the static pool, one made by hand", n)
	}
	return d
}

// expect waits until exactly the claims of the pools have drifted for the reason, and the claims of others haven't.
func (d *drifting) expect(what, reason string, pools ...string) {
	d.Until(what, 11*time.Minute, d.DriftedAs(func(c *karpv1.NodeClaim) string {
		for _, pool := range pools {
			if c.Labels[karpv1.NodePoolLabelKey] == pool {
				return reason
			}
		}
		return ""
	}))
}

// none lets time pass in which no claim may drift.
func (d *drifting) none(what string, within time.Duration) {
	d.Pass(within)
	d.expect(what, "")
	for claim, reason := range d.Drifted() {
		if reason != "" {
			d.Failf("%s: claim %s has drifted because of %s", what, claim, reason)
		}
	}
}

func (d *drifting) editPool(change func(*karpv1.NodePool)) {
	chaos.Change(d.Stage, d.pool.DeepCopy(), change)
}

func (d *drifting) editClass(change func(*ec2nc.EC2NodeClassSpec)) {
	chaos.Change(d.Stage, d.class.DeepCopy(), func(nc *ec2nc.EC2NodeClass) { change(&nc.Spec) })
}

// restore gives the class its first spec again.
func (d *drifting) restore() {
	d.editClass(func(s *ec2nc.EC2NodeClassSpec) { *s = *d.class.Spec.DeepCopy() })
	d.expect("the class is as it was", "")
}

// nothingEnds checks that the nodes are those of the beginning.
func (d *drifting) nothingEnds() {
	d.AtMost("instances, launched because of drift", d.Launched()-d.launched, 0)
	d.AtLeast("instances that still run", len(d.Cloud().Live()), d.launched)
}

func TestSceneDrift(t *testing.T) {
	quiet(t, chaos.Scene{Play: func(s *chaos.Stage) {
		d := drift(s)
		d.none("fresh nodes, and nodes that are old enough for their type to count", 70*time.Minute)

		d.editPool(func(np *karpv1.NodePool) { np.Spec.Template.Labels = map[string]string{"team": "b"} })
		d.expect("another label", "NodePoolDrifted", "default")
		s.Kill()
		s.Start()
		s.Pass(time.Minute)
		d.expect("another label, after a restart", "NodePoolDrifted", "default")
		d.editPool(func(np *karpv1.NodePool) {
			np.Spec.Template.Labels = nil
			np.Spec.Template.Spec.Requirements = append(np.Spec.Template.Spec.Requirements,
				karpv1.NodeSelectorRequirementWithMinValues{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"us-west-2z"}})
		})
		d.expect("another zone", "RequirementsDrifted", "default")
		d.editPool(func(np *karpv1.NodePool) { np.Spec = *d.pool.Spec.DeepCopy() })
		d.expect("the pool is as it was", "")

		both := []string{"default", "static"}
		d.editClass(func(s *ec2nc.EC2NodeClassSpec) { s.UserData = ptr.To("#!/bin/sh\ntrue") })
		d.expect("other user data", "NodeClassDrift", both...)
		d.restore()
		d.editClass(func(s *ec2nc.EC2NodeClassSpec) { s.AMISelectorTerms[0].Alias = "al2023@v20260814" })
		d.expect("an older image", "AMIDrift", both...)
		d.restore()
		extra := s.Cloud().AddSubnet(s.Zone(0), map[string]string{"extra": "yes"})
		d.editClass(func(s *ec2nc.EC2NodeClassSpec) { s.SubnetSelectorTerms = []ec2nc.SubnetSelectorTerm{{ID: extra}} })
		d.expect("another subnet", "SubnetDrift", both...)
		d.restore()
		group := s.Cloud().AddGroup("extra", map[string]string{"karpenter.sh/discovery": "dovetail"})
		d.expect("a security group more that the class selects", "SecurityGroupDrift", both...)
		s.Cloud().RemoveGroup(group)
		d.expect("the security group is gone again", "")

		s.Cloud().SetKubernetesVersion("1.37")
		d.expect("the control plane is upgraded", "AMIDrift", both...)
		d.nothingEnds()
	}})
}

// Edits that concern no running node, and those that lead to the same nodes.
func TestSceneEditsThatDriftNothing(t *testing.T) {
	quiet(t, chaos.Scene{Play: func(s *chaos.Stage) {
		d := drift(s)
		for what, change := range map[string]func(*karpv1.NodePool){
			"weight":  func(np *karpv1.NodePool) { np.Spec.Weight = ptr.To[int32](7) },
			"limits":  func(np *karpv1.NodePool) { np.Spec.Limits = karpv1.Limits{"nodes": resource.MustParse("50")} },
			"budgets": func(np *karpv1.NodePool) { np.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "1"}} },
			"consolidateAfter": func(np *karpv1.NodePool) {
				np.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("10m")
			},
			"a label of its own": func(np *karpv1.NodePool) { np.Labels = map[string]string{"team": "b"} },
			"one architecture more": func(np *karpv1.NodePool) {
				np.Spec.Template.Spec.Requirements[0].Values = []string{"amd64", "arm64"}
			},
		} {
			d.editPool(change)
			d.none(what, 6*time.Minute)
		}
		groups, subnets := []ec2nc.SecurityGroupSelectorTerm{}, []ec2nc.SubnetSelectorTerm{}
		now := d.class.DeepCopy()
		chaos.Read(s, now)
		for _, g := range now.Status.SecurityGroups {
			groups = append(groups, ec2nc.SecurityGroupSelectorTerm{ID: g.ID})
		}
		for _, n := range now.Status.Subnets {
			subnets = append(subnets, ec2nc.SubnetSelectorTerm{ID: n.ID})
		}
		for what, change := range map[string]func(*ec2nc.EC2NodeClassSpec){
			"groups by their ids":        func(s *ec2nc.EC2NodeClassSpec) { s.SecurityGroupSelectorTerms = groups },
			"subnets by their ids":       func(s *ec2nc.EC2NodeClassSpec) { s.SubnetSelectorTerms = subnets },
			"the family, as it is":       func(s *ec2nc.EC2NodeClassSpec) { s.AMIFamily = ptr.To("AL2023") },
			"the release that is newest": func(s *ec2nc.EC2NodeClassSpec) { s.AMISelectorTerms[0].Alias = "al2023@v20260915" },
		} {
			d.editClass(change)
			d.none(what, 6*time.Minute)
		}
		d.nothingEnds()
	}})
}
