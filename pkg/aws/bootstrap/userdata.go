package bootstrap

import (
	"maps"
	"slices"
	"strings"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// Unregistered is the taint a kubelet sets on a Node it has to create itself. NoSchedule, never NoExecute: pods may be bound before
// the kubelet registers.
var Unregistered = corev1.Taint{Key: karpv1.UnregisteredTaintKey, Effect: corev1.TaintEffectNoSchedule}

// Node is the data that a node needs besides the class and the cluster's join data.
type Node struct {
	Cluster string // its name
	MaxPods int64
	Labels  map[string]string
	Taints  []corev1.Taint
	// KubeReserved is set for families whose user data must contain it, as KubeletFlag writes it.
	KubeReserved string
}

// UserData returns what the instance starts with, in the family's format, not encoded.
func (f *Family) UserData(spec *ec2nc.EC2NodeClassSpec, j *Cluster, b Node) (string, error) {
	return f.userData(spec, j, b, ownUserData(spec))
}

// ownUserData returns the class's user data.
func ownUserData(spec *ec2nc.EC2NodeClassSpec) string {
	if spec.UserData == nil {
		return ""
	}
	return *spec.UserData
}

// KubeletFlag returns a=b,c=d sorted by key, as flags of the kubelet take it, with sign between key and value.
func KubeletFlag(m map[string]string, sign string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, k+sign+m[k])
	}
	return strings.Join(parts, ",")
}
