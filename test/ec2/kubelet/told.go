package kubelet

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/test/ec2"
)

// Shape is what a machine and its user data make of a kubelet, for kubelets of another make and for those who judge where
// pods fit.
type Shape struct {
	// Labels and Taints are those that user data has the kubelet register with.
	Labels map[string]string
	Taints []corev1.Taint
	// Capacity and Allocatable without Devices, which come with their plugins.
	Capacity, Allocatable, Devices corev1.ResourceList
}

// ShapeOf reads the machine's user data. An error means that the machine would not come up.
func ShapeOf(m *ec2.Machine) (*Shape, error) {
	s, err := readUserData(m.UserData)
	if err != nil {
		return nil, fmt.Errorf("reading user data: %w", err)
	}
	sh, err := shapeOf(m, s)
	if err != nil {
		return nil, err
	}
	return &Shape{
		Labels: maps.Clone(s.labels), Taints: slices.Clone(s.taints), Capacity: maps.Clone(sh.capacity), Allocatable: maps.Clone(sh.allocatable), Devices: maps.Clone(sh.devices),
	}, nil
}
