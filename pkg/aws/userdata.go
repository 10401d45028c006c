package aws

import (
	"maps"
	"slices"
	"strings"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// unregistered is the taint a kubelet sets on a Node it has to create itself. NoSchedule, never NoExecute: pods may be bound before
// the kubelet registers.
var unregistered = corev1.Taint{Key: karpv1.UnregisteredTaintKey, Effect: corev1.TaintEffectNoSchedule}

// boot is the data that a node needs besides the class and the cluster's join data.
type boot struct {
	cluster string
	maxPods int64
	labels  map[string]string
	taints  []corev1.Taint
	// kubeReserved is set for families whose user data must contain it, as kubeletFlag writes it.
	kubeReserved string
}

// UserData returns what the instance starts with, in the family's format, not encoded.
func (f *family) UserData(spec *ec2nc.EC2NodeClassSpec, j *joined, b boot) (string, error) {
	return f.userData(spec, j, b, ownUserData(spec))
}

// ownUserData returns the class's user data.
func ownUserData(spec *ec2nc.EC2NodeClassSpec) string {
	if spec.UserData == nil {
		return ""
	}
	return *spec.UserData
}

// kubeletFlag returns a=b,c=d sorted by key, as flags of the kubelet take it, with sign between key and value.
func kubeletFlag(m map[string]string, sign string) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, k+sign+m[k])
	}
	return strings.Join(parts, ",")
}
