package kubelet

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/test/ec2"
)

// Shape is the kubelet configuration that follows from an instance and its user data, for other implementations of a kubelet and for
// tests that check where pods fit.
type Shape struct {
	// Labels and Taints are those with which user data makes the kubelet register.
	Labels map[string]string
	Taints []corev1.Taint
	// Capacity and Allocatable exclude Devices, which their plugins announce later.
	Capacity, Allocatable, Devices corev1.ResourceList
}

// ShapeOf reads the instance's user data. An error means that the instance would not boot.
func ShapeOf(m *ec2.Machine, overhead Overhead) (*Shape, error) {
	s, err := readUserData(m.UserData)
	if err != nil {
		return nil, fmt.Errorf("reading user data: %w", err)
	}
	sh, err := shapeOf(m, s, overhead)
	if err != nil {
		return nil, err
	}
	return &Shape{
		Labels: maps.Clone(s.labels), Taints: slices.Clone(s.taints), Capacity: maps.Clone(sh.capacity), Allocatable: maps.Clone(sh.allocatable), Devices: maps.Clone(sh.devices),
	}, nil
}
