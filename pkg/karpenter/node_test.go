package karpenter

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// launchedClaim returns a claim as it is read back after RecordLaunched.
func launchedClaim(t *testing.T) *capacity.Claim {
	c := ClaimOf(testNodeClaim(t), classKind)
	c.UID = "uid-of-claim"
	c.Labels[corev1.LabelInstanceTypeStable] = "m5.large"
	c.Labels[corev1.LabelTopologyZone] = "us-west-2a"
	c.Labels["karpenter.sh/capacity-type"] = "spot"
	c.Labels[corev1.LabelOSStable] = "linux"
	c.Labels["karpenter.k8s.aws/instance-family"] = "m5"
	c.Capacity = capacity.Resources{corev1.ResourceCPU: 2000, corev1.ResourceMemory: 8 << 30, corev1.ResourcePods: 29}
	c.Allocatable = capacity.Resources{corev1.ResourceCPU: 1930, corev1.ResourceMemory: 7 << 30, corev1.ResourcePods: 29}
	delete(c.Annotations, "karpenter.sh/nodepool-hash")
	return c
}

func TestNodeFor(t *testing.T) {
	const host = "ip-10-0-0-1.us-west-2.compute.internal"
	got := NodeFor(launchedClaim(t), testInstance, []string{"FeatureA", "FeatureB"})
	want := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: host,
			Labels: map[string]string{
				"team": "a", "example.com/tier": "silver",
				"karpenter.sh/nodepool": "default", "karpenter.k8s.aws/ec2nodeclass": "default", "karpenter.sh/capacity-type": "spot",
				"karpenter.k8s.aws/instance-family":                       "m5",
				"kubernetes.io/hostname":                                  host,
				"node.kubernetes.io/exclude-from-external-load-balancers": "true",
				"kubernetes.io/arch":                                      "amd64", "beta.kubernetes.io/arch": "amd64",
				"kubernetes.io/os": "linux", "beta.kubernetes.io/os": "linux",
				"node.kubernetes.io/instance-type": "m5.large", "beta.kubernetes.io/instance-type": "m5.large",
				"topology.kubernetes.io/zone": "us-west-2a", "failure-domain.beta.kubernetes.io/zone": "us-west-2a",
				"topology.ebs.csi.aws.com/zone": "us-west-2a",
				"topology.kubernetes.io/region": "us-west-2", "failure-domain.beta.kubernetes.io/region": "us-west-2",
				"node.kubernetes.io/exclude-disruption": "true",
			},
			Annotations: map[string]string{"example.com/note": "kept", "example.com/plan": "7", "karpenter.sh/nodepool-hash-version": karpv1.NodePoolHashVersion},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "karpenter.sh/v1", Kind: "NodeClaim", Name: "default-abc", UID: "uid-of-claim", BlockOwnerDeletion: ptr.To(true),
			}},
		},
		Spec: corev1.NodeSpec{
			ProviderID: "aws:///us-west-2a/i-0123",
			Taints: []corev1.Taint{
				{Key: "team", Value: "a", Effect: corev1.TaintEffectNoSchedule},
				{Key: "cni", Effect: corev1.TaintEffectNoExecute},
				{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoSchedule},
			},
		},
		Status: corev1.NodeStatus{
			Capacity: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("29"),
			},
			Allocatable: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("1930m"), corev1.ResourceMemory: resource.MustParse("7Gi"), corev1.ResourcePods: resource.MustParse("29"),
			},
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}, {Type: corev1.NodeInternalDNS, Address: host}, {Type: corev1.NodeHostName, Address: host},
			},
			NodeInfo:         corev1.NodeSystemInfo{Architecture: "amd64", OperatingSystem: "linux"},
			DeclaredFeatures: []string{"FeatureA", "FeatureB"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Node (-want +got):\n%s", diff)
	}
}

func TestNodeForChangesNothing(t *testing.T) {
	c, before, features := launchedClaim(t), launchedClaim(t), []string{"F"}
	n := NodeFor(c, testInstance, features)
	n.Labels["x"], n.Annotations["x"], n.Spec.Taints[0].Key, n.Status.DeclaredFeatures[0] = "y", "y", "y", "y"
	if diff := cmp.Diff(before, c); diff != "" || features[0] != "F" {
		t.Errorf("a change of the Node got into the claim (-want +got):\n%s", diff)
	}
}

func TestNodeForOddInstances(t *testing.T) {
	for name, tc := range map[string]struct {
		claim      func(*capacity.Claim)
		inst       func(*capacity.Instance)
		wantLabels map[string]string
		wantTaints []string
	}{
		"what the instance is wins over what the claim says": {
			inst: func(i *capacity.Instance) {
				i.InstanceType, i.Zone, i.CapacityType = "c5.large", "us-west-2b", "on-demand"
			},
			wantLabels: map[string]string{
				corev1.LabelInstanceTypeStable: "c5.large", corev1.LabelTopologyZone: "us-west-2b", "karpenter.sh/capacity-type": "on-demand",
			},
		},
		"a local zone belongs to the region before its name": {
			inst:       func(i *capacity.Instance) { i.Zone = "us-west-2-lax-1a" },
			wantLabels: map[string]string{corev1.LabelTopologyRegion: "us-west-2"},
		},
		"a partition in the name": {
			inst:       func(i *capacity.Instance) { i.Zone = "us-gov-east-1c" },
			wantLabels: map[string]string{corev1.LabelTopologyRegion: "us-gov-east-1"},
		},
		"a region that is known is kept": {
			claim:      func(c *capacity.Claim) { c.Labels[corev1.LabelTopologyRegion] = "moon-1" },
			wantLabels: map[string]string{corev1.LabelTopologyRegion: "moon-1", "failure-domain.beta.kubernetes.io/region": "moon-1"},
		},
		"a node that is named by its instance has that as its host name": {
			inst:       func(i *capacity.Instance) { i.NodeName, i.Hostname = "i-0123", "ip-10-0-0-1.ec2.internal" },
			wantLabels: map[string]string{corev1.LabelHostname: "i-0123"},
		},
		"without a host name, the node's": {
			inst:       func(i *capacity.Instance) { i.NodeName, i.Hostname = "i-0123", "" },
			wantLabels: map[string]string{corev1.LabelHostname: "i-0123"},
		},
		"the same taint in both lists is there once": {
			claim:      func(c *capacity.Claim) { c.StartupTaints = append(c.Taints[:1:1], c.StartupTaints...) },
			wantTaints: []string{"team=a:NoSchedule", "cni:NoExecute", "karpenter.sh/unregistered:NoSchedule"},
		},
		"a cloud controller manager is asked, where there is one": {
			inst:       func(i *capacity.Instance) { i.CloudInitialized = true },
			wantTaints: []string{"team=a:NoSchedule", "cni:NoExecute", "karpenter.sh/unregistered:NoSchedule", "node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule"},
		},
		"no taints but ours": {
			claim:      func(c *capacity.Claim) { c.Taints, c.StartupTaints = nil, nil },
			wantTaints: []string{"karpenter.sh/unregistered:NoSchedule"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, inst := launchedClaim(t), testInstance
			if tc.claim != nil {
				tc.claim(c)
			}
			if tc.inst != nil {
				tc.inst(&inst)
			}
			n := NodeFor(c, inst, nil)
			for key, want := range tc.wantLabels {
				if n.Labels[key] != want {
					t.Errorf("label %s is %q, want %q", key, n.Labels[key], want)
				}
			}
			var taints []string
			for _, taint := range n.Spec.Taints {
				taints = append(taints, taint.ToString())
			}
			if tc.wantTaints != nil {
				if diff := cmp.Diff(tc.wantTaints, taints); diff != "" {
					t.Errorf("taints (-want +got):\n%s", diff)
				}
			}
			if len(n.Status.Conditions) > 0 || len(n.Finalizers) > 0 || n.Labels["karpenter.sh/registered"] != "" {
				t.Errorf("the Node looks registered: %+v", n)
			}
		})
	}
}

func TestPlannedNodeObject(t *testing.T) {
	big := &capacity.InstanceType{Name: "big", Capacity: capacity.Resources{corev1.ResourceCPU: 8000, corev1.ResourceMemory: 8 << 30, "nvidia.com/gpu": 1}}
	small := &capacity.InstanceType{Name: "small", Capacity: capacity.Resources{corev1.ResourceCPU: 4000, corev1.ResourceMemory: 16 << 30}}
	p := &capacity.PlannedNode{
		ID: "plan-1", Pool: PoolOf(testPool("default"), classKind),
		Labels:      map[string]string{corev1.LabelArchStable: "arm64", corev1.LabelTopologyZone: "eu-west-1b", "example.com/tier": "gold"},
		Allocatable: capacity.Resources{corev1.ResourceCPU: 3900, corev1.ResourceMemory: 7 << 30},
		Offers:      []capacity.NodeOffer{{Type: big}, {Type: small}, {Type: big}},
	}
	got := PlannedNodeObject(p, "plan-1")
	want := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "plan-1",
			Labels: map[string]string{
				"team": "a", "example.com/tier": "gold", "karpenter.sh/nodepool": "default", "karpenter.k8s.aws/ec2nodeclass": "default",
				"kubernetes.io/arch": "arm64", "beta.kubernetes.io/arch": "arm64", "kubernetes.io/os": "linux", "beta.kubernetes.io/os": "linux",
				"topology.kubernetes.io/zone": "eu-west-1b", "failure-domain.beta.kubernetes.io/zone": "eu-west-1b", "topology.ebs.csi.aws.com/zone": "eu-west-1b",
				"topology.kubernetes.io/region": "eu-west-1", "failure-domain.beta.kubernetes.io/region": "eu-west-1",
				"kubernetes.io/hostname": "plan-1", "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true",
			},
		},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "team", Value: "a", Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{
			Capacity: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"), "nvidia.com/gpu": resource.MustParse("0"),
			},
			Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3900m"), corev1.ResourceMemory: resource.MustParse("7Gi")},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Planned"}},
			Addresses:   []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "plan-1"}},
			NodeInfo:    corev1.NodeSystemInfo{Architecture: "arm64", OperatingSystem: "linux"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Node (-want +got):\n%s", diff)
	}
	if _, ok := p.Pool.Labels["kubernetes.io/hostname"]; ok {
		t.Error("the pool's labels were changed")
	}
}

// TestThePlannedNodeBecomesTheNode: labels that the filters saw before the launch must still be on the Node, otherwise a pod that was
// planned on it would be rejected.
func TestThePlannedNodeBecomesTheNode(t *testing.T) {
	c := launchedClaim(t)
	planned := PlannedNodeObject(&capacity.PlannedNode{
		Pool:   PoolOf(testPool("default"), classKind),
		Labels: map[string]string{corev1.LabelArchStable: "amd64", corev1.LabelTopologyZone: "us-west-2a", "example.com/tier": "silver", "karpenter.sh/capacity-type": "spot"},
	}, "plan-1")
	node := NodeFor(c, testInstance, nil)
	for key, want := range planned.Labels {
		switch key {
		case corev1.LabelHostname, "karpenter.sh/registered", "karpenter.sh/initialized":
		default:
			if node.Labels[key] != want {
				t.Errorf("label %s was %q in the plan and is %q", key, want, node.Labels[key])
			}
		}
	}
}

// A kubelet sets the label to its hostname, which is the Node's name; what a topology spread over hostnames counts doesn't change then.
func TestHostnameIsTheNodesName(t *testing.T) {
	n := NodeFor(&capacity.Claim{Name: "c"}, capacity.Instance{NodeName: "i-1", Hostname: "ip-10-0-0-1.us-west-2.compute.internal"}, nil)
	if got := n.Labels[corev1.LabelHostname]; got != "i-1" {
		t.Errorf("label %s is %q, the Node's name i-1", corev1.LabelHostname, got)
	}
	want := []corev1.NodeAddress{{Type: corev1.NodeInternalDNS, Address: "ip-10-0-0-1.us-west-2.compute.internal"}, {Type: corev1.NodeHostName, Address: "i-1"}}
	if diff := cmp.Diff(want, n.Status.Addresses); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
}
