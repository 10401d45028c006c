package karpenter

import (
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/legacy"
)

// The definitions and the kind of node class that the tests' objects are of.
var (
	shipped   = NewDefinitions(nodeclass.CRDs())
	classKind = nodeclass.Kind.GroupKind()
	kinds     = []kind{nodePools, nodeClaims, nodeOverlays, nodeClasses(nodeclass.Kind), provisioners, nodeTemplates}
)

// fromProvisioner is FromProvisioner on AWS.
func fromProvisioner(p *legacy.Provisioner, t *legacy.AWSNodeTemplate, cloud nodeclass.Legacy) (*karpv1.NodePool, *ec2nc.EC2NodeClass, field.ErrorList) {
	np, nc, errs := FromProvisioner(p, t, cloud)
	if nc == nil {
		return np, nil, errs
	}
	return np, nc.(*ec2nc.EC2NodeClass), errs
}

func testPool(name string, change ...func(*karpv1.NodePool)) *karpv1.NodePool {
	np := &karpv1.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-pool-" + name), Generation: 1, CreationTimestamp: metav1.Time{Time: start}},
		Spec: karpv1.NodePoolSpec{
			Weight: ptr.To[int32](7),
			Limits: karpv1.Limits{corev1.ResourceCPU: resource.MustParse("100"), "nodes": resource.MustParse("9")},
			Template: karpv1.NodeClaimTemplate{
				ObjectMeta: karpv1.ObjectMeta{
					Labels:      map[string]string{"team": "a"},
					Annotations: map[string]string{"example.com/note": "kept"},
				},
				Spec: karpv1.NodeClaimTemplateSpec{
					NodeClassRef:  &karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"},
					Taints:        []corev1.Taint{{Key: "team", Value: "a", Effect: corev1.TaintEffectNoSchedule}},
					StartupTaints: []corev1.Taint{{Key: "cni", Effect: corev1.TaintEffectNoExecute}},
					Requirements: []karpv1.NodeSelectorRequirementWithMinValues{
						{Key: corev1.LabelInstanceTypeStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"m5.large", "m5.xlarge", "c5.large"}, MinValues: ptr.To(2)},
						{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"amd64"}},
						{Key: "example.com/tier", Operator: corev1.NodeSelectorOpIn, Values: []string{"gold", "silver"}},
					},
					TerminationGracePeriod: &metav1.Duration{Duration: time.Hour},
					ExpireAfter:            karpv1.MustParseNillableDuration("48h"),
				},
			},
			Disruption: karpv1.Disruption{
				ConsolidateAfter: karpv1.MustParseNillableDuration("30s"), ConsolidationPolicy: karpv1.ConsolidationPolicyWhenEmpty,
			},
		},
	}
	for _, f := range change {
		f(np)
	}
	return np
}

func testClass(name string, change ...func(*ec2nc.EC2NodeClass)) *ec2nc.EC2NodeClass {
	nc := &ec2nc.EC2NodeClass{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-class-" + name), Generation: 1, CreationTimestamp: metav1.Time{Time: start}},
		Spec: ec2nc.EC2NodeClassSpec{
			SubnetSelectorTerms:        []ec2nc.SubnetSelectorTerm{{ID: "subnet-1"}},
			SecurityGroupSelectorTerms: []ec2nc.SecurityGroupSelectorTerm{{ID: "sg-1"}},
			AMISelectorTerms:           []ec2nc.AMISelectorTerm{{Alias: "al2023@latest"}},
			InstanceProfile:            ptr.To("profile"),
		},
	}
	for _, f := range change {
		f(nc)
	}
	return nc
}

// testClaim returns a claim as the launcher creates it: everything but the status.
func testClaim(name string, change ...func(*capacity.Claim)) *capacity.Claim {
	c := &capacity.Claim{
		Name: name, Pool: "default", NodeClass: "default",
		Labels:        map[string]string{corev1.LabelArchStable: "amd64", "example.com/tier": "silver"},
		Annotations:   map[string]string{"example.com/plan": "7"},
		Taints:        []corev1.Taint{{Key: "team", Value: "a", Effect: corev1.TaintEffectNoSchedule}},
		StartupTaints: []corev1.Taint{{Key: "cni", Effect: corev1.TaintEffectNoExecute}},
		Requests:      capacity.Resources{corev1.ResourceCPU: 1500, corev1.ResourceMemory: 2 << 30, corev1.ResourcePods: 4, "nvidia.com/gpu": 1},
		Largest:       capacity.Resources{corev1.ResourceCPU: 4000, corev1.ResourceMemory: 16 << 30},
		ExpireAfter:   48 * time.Hour, // the pool's
		LaunchBatch: &capacity.LaunchBatch{
			Token: "token-1", Attempt: 1, Claims: []string{name}, Pool: "default", NodeClass: "default", CapacityType: "spot",
			Offers: []capacity.OfferKey{
				{InstanceType: "m5.large", Zone: "us-west-2b", CapacityType: "spot"},
				{InstanceType: "m5.large", Zone: "us-west-2a", CapacityType: "spot"},
				{InstanceType: "c5.large", Zone: "us-west-2a", CapacityType: "spot"},
			},
			Request: []byte(`{"Type":"instant"}`),
		},
		Slots: []capacity.Slot{
			{Pod: capacity.PodRef{UID: "pod-1", Namespace: "web", Name: "web-1"}, Class: "class-1", Order: 1, Group: "g"},
			{Owner: "owner-1", Class: "class-1", Order: 2},
		},
	}
	for _, f := range change {
		f(c)
	}
	return c
}

var testInstance = capacity.Instance{
	ID: "i-0123", ProviderID: "aws:///us-west-2a/i-0123", InstanceType: "m5.large", Zone: "us-west-2a", CapacityType: "spot", ImageID: "ami-1",
	State: capacity.InstancePending, NodeName: "ip-10-0-0-1.us-west-2.compute.internal", InternalIP: "10.0.0.1",
	Hostname: "ip-10-0-0-1.us-west-2.compute.internal",
}
