package karpenter

import (
	"maps"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// InstanceLabels returns the labels that say what an instance is, as far as that is known.
func InstanceLabels(inst capacity.Instance) map[string]string {
	labels := map[string]string{
		corev1.LabelInstanceTypeStable: inst.InstanceType,
		corev1.LabelTopologyZone:       inst.Zone,
		karpv1.CapacityTypeLabelKey:    inst.CapacityType,
	}
	maps.DeleteFunc(labels, func(_, value string) bool { return value == "" })
	return labels
}

// NodeFor returns the Node to create ahead of its kubelet. It carries all labels and taints, because a kubelet that finds its Node
// applies none of its own. It has no Ready condition: without one, and with a Lease, the node lifecycle controller waits. It has no
// finalizer: until registration a deleted Node is created again.
//
// inst must have its NodeName; c is the claim after RecordLaunched.
func NodeFor(c *capacity.Claim, inst capacity.Instance, declaredFeatures []string) *corev1.Node {
	labels := merged(c.Labels)
	maps.Copy(labels, InstanceLabels(inst))
	hostname := inst.Hostname
	if hostname == "" {
		hostname = inst.NodeName
	}
	completeLabels(labels, inst.NodeName) // a kubelet with an external cloud provider names its Node by its hostname
	labels[excludeDisruption] = "true"
	// The cloud controller manager would register the instance with load balancers while it is pending, which EC2 refuses, for all nodes of
	// the load balancer at once. Registration removes the label.
	labels[corev1.LabelNodeExcludeBalancers] = "true"

	taints := addTaints(nil, c.Taints...)
	taints = addTaints(taints, c.StartupTaints...)
	taints = addTaints(taints, unregistered)
	if inst.CloudInitialized {
		taints = addTaints(taints, uninitialized)
	}

	var addresses []corev1.NodeAddress
	if inst.InternalIP != "" {
		addresses = append(addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: inst.InternalIP})
	}
	addresses = append(addresses,
		corev1.NodeAddress{Type: corev1.NodeInternalDNS, Address: hostname},
		corev1.NodeAddress{Type: corev1.NodeHostName, Address: inst.NodeName})

	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        inst.NodeName,
			Labels:      labels,
			Annotations: maps.Clone(c.Annotations),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: coreVersion.String(), Kind: "NodeClaim", Name: c.Name, UID: types.UID(c.UID), BlockOwnerDeletion: ptr.To(true),
			}},
		},
		Spec: corev1.NodeSpec{ProviderID: inst.ProviderID, Taints: taints},
		Status: corev1.NodeStatus{
			Capacity:         c.Capacity.List(),
			Allocatable:      c.Allocatable.List(),
			Addresses:        addresses,
			NodeInfo:         nodeInfo(labels),
			DeclaredFeatures: slices.Clone(declaredFeatures),
		},
	}
}

// PlannedNodeObject returns a node that has not been launched, as it will be when it is Ready, for the scheduler's filters. It has
// what all possible outcomes have in common, and no startup taints, which will be gone by then. The caller adds
// status.declaredFeatures, which plans don't contain.
func PlannedNodeObject(p *capacity.PlannedNode, name string) *corev1.Node {
	labels := map[string]string{}
	var taints []corev1.Taint
	if p.Pool != nil {
		maps.Copy(labels, p.Pool.Labels)
		taints = addTaints(nil, p.Pool.Taints...)
	}
	maps.Copy(labels, p.Labels)
	completeLabels(labels, name)
	labels[karpv1.NodeRegisteredLabelKey] = "true"
	labels[karpv1.NodeInitializedLabelKey] = "true"
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       corev1.NodeSpec{Taints: taints},
		Status: corev1.NodeStatus{
			Capacity:    smallestCapacity(p).List(),
			Allocatable: p.Allocatable.List(),
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Planned"}},
			Addresses:   []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}},
			NodeInfo:    nodeInfo(labels),
		},
	}
}

// smallestCapacity returns, for each resource, the smallest capacity among the planned node's types, but at least its allocatable.
func smallestCapacity(p *capacity.PlannedNode) capacity.Resources {
	var out capacity.Resources
	for _, o := range p.Offers {
		if o.Type == nil {
			continue
		}
		if out == nil {
			out = o.Type.Capacity.Clone()
		} else {
			out.AtMost(o.Type.Capacity)
		}
	}
	if out == nil {
		out = capacity.Resources{}
	}
	out.AtLeast(p.Allocatable)
	return out
}

// awsRegion finds the region in the name of a zone, including local zones (us-west-2-lax-1a).
var awsRegion = regexp.MustCompile(`^[a-z]+(-[a-z]+)+-[0-9]+`)

// completeLabels adds the hostname, the region and the alternative label keys that kubelet, cloud controller and CSI driver put on
// nodes beside the current ones, so that a pod or volume that selects by them sees the same node before and after registration.
func completeLabels(labels map[string]string, hostname string) {
	labels[corev1.LabelHostname] = hostname
	if _, ok := labels[corev1.LabelTopologyRegion]; !ok {
		if region := awsRegion.FindString(labels[corev1.LabelTopologyZone]); region != "" {
			labels[corev1.LabelTopologyRegion] = region
		}
	}
	if _, ok := labels[corev1.LabelOSStable]; !ok {
		labels[corev1.LabelOSStable] = "linux"
	}
	for older, current := range capacity.LabelAliases {
		if value, ok := labels[current]; ok {
			labels[older] = value
		}
	}
}

func nodeInfo(labels map[string]string) corev1.NodeSystemInfo {
	return corev1.NodeSystemInfo{Architecture: labels[corev1.LabelArchStable], OperatingSystem: labels[corev1.LabelOSStable]}
}

// addTaints appends the taints whose key and effect are not in the list yet.
func addTaints(to []corev1.Taint, taints ...corev1.Taint) []corev1.Taint {
	for i := range taints {
		if !slices.ContainsFunc(to, func(t corev1.Taint) bool { return taints[i].MatchTaint(&t) }) {
			to = append(to, taints[i])
		}
	}
	return to
}
