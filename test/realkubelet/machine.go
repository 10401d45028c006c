package realkubelet

import (
	"time"

	cadvisorapi "github.com/google/cadvisor/info/v1"
	corev1 "k8s.io/api/core/v1"
	cadvisortest "k8s.io/kubernetes/pkg/kubelet/cadvisor/testing"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/utils/clock"
)

// machine returns what cAdvisor finds on the instance.
type machine struct {
	cadvisortest.Fake
	order *order
}

// MachineInfo implements cadvisor.Interface.
func (m *machine) MachineInfo() (*cadvisorapi.MachineInfo, error) {
	return &cadvisorapi.MachineInfo{
		NumCores: int(m.order.Capacity.Cpu().Value()), MemoryCapacity: uint64(m.order.Capacity.Memory().Value()),
		InstanceID: cadvisorapi.InstanceID(m.order.Name), MachineID: m.order.Name, SystemUUID: m.order.Name, BootID: m.order.Name,
	}, nil
}

// containers is kubemark's stub container manager, extended by what the real one computes from its flags and receives from device
// plugins: reserved resources, and devices some time after the start. It has no checkpoint of earlier device plugins, so that the
// kubelet zeroes the extended resources of an existing Node.
type containers struct {
	cm.ContainerManager
	order *order
	clock clock.PassiveClock
	began time.Time
}

func newContainers(o *order, c clock.PassiveClock) *containers {
	return &containers{ContainerManager: cm.NewStubContainerManagerWithExtendedResource(true), order: o, clock: c, began: c.Now()}
}

// GetCapacity implements cm.ContainerManager.
func (c *containers) GetCapacity(bool) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceEphemeralStorage: c.order.Capacity[corev1.ResourceEphemeralStorage]}
}

// GetNodeAllocatableReservation implements cm.ContainerManager.
func (c *containers) GetNodeAllocatableReservation() corev1.ResourceList { return c.order.Reserved }

// GetDevicePluginResourceCapacity implements cm.ContainerManager.
func (c *containers) GetDevicePluginResourceCapacity() (capacity, allocatable corev1.ResourceList, removed []string) {
	if c.clock.Since(c.began) < c.order.DevicesAfter {
		return nil, nil, nil
	}
	return c.order.Devices, c.order.Devices, nil
}
