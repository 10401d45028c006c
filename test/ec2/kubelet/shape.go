package kubelet

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/ec2/catalog"
)

const (
	mib = int64(1) << 20
	gib = int64(1) << 30
)

// shape holds the resources of a node.
type shape struct {
	capacity, allocatable corev1.ResourceList
	// devices are the resources that device plugins announce when they start.
	devices corev1.ResourceList
}

// shapeOf computes what the kubelet finds on the instance and what it reserves: as in the EKS images, unless user data overrides it.
func shapeOf(m *ec2.Machine, s *settings, overhead Overhead) (*shape, error) {
	t := m.Type
	pods := s.maxPods
	if pods == 0 {
		pods = int64(t.MaxPods())
	}
	disk := m.RootGiB * gib
	if s.localDisks && t.LocalNVMeGB > 0 {
		disk = t.LocalNVMeGB * 1e9
	}
	capacity := map[corev1.ResourceName]int64{ // cpu in milli
		corev1.ResourceCPU: int64(t.VCPUs) * 1000, corev1.ResourceMemory: usableMemory(m, overhead), corev1.ResourcePods: pods, corev1.ResourceEphemeralStorage: disk,
	}
	kept := map[corev1.ResourceName]int64{}
	reserved := s.kubeReserved
	if reserved == nil {
		reserved = map[string]string{}
	}
	for name, def := range map[string]string{
		"cpu": fmt.Sprintf("%dm", reservedCPU(t.VCPUs)), "memory": fmt.Sprintf("%dMi", 255+11*pods), "ephemeral-storage": "1Gi",
	} {
		if _, told := reserved[name]; !told {
			if err := keep(kept, name, def); err != nil {
				return nil, fmt.Errorf("kube-reserved: %w", err)
			}
		}
	}
	for title, list := range map[string]map[string]string{"kube-reserved": reserved, "system-reserved": s.systemReserved} {
		for name, v := range list {
			if err := keep(kept, name, v); err != nil {
				return nil, fmt.Errorf("%s: %w", title, err)
			}
		}
	}
	for signal, def := range map[string]struct {
		resource corev1.ResourceName
		value    string
	}{"memory.available": {corev1.ResourceMemory, "100Mi"}, "nodefs.available": {corev1.ResourceEphemeralStorage, "10%"}} {
		v, told := s.evictionHard[signal]
		if !told {
			v = def.value
		}
		n, err := threshold(v, capacity[def.resource])
		if err != nil {
			return nil, fmt.Errorf("eviction-hard %s: %w", signal, err)
		}
		kept[def.resource] += n
	}
	out := &shape{capacity: corev1.ResourceList{}, allocatable: corev1.ResourceList{}, devices: devicesOf(t)}
	for name, n := range capacity {
		out.capacity[name] = quantity(name, n)
		out.allocatable[name] = quantity(name, max(0, n-kept[name]))
	}
	for _, size := range []corev1.ResourceName{"hugepages-1Gi", "hugepages-2Mi"} {
		out.capacity[size], out.allocatable[size] = resource.MustParse("0"), resource.MustParse("0")
	}
	return out, nil
}

func quantity(name corev1.ResourceName, n int64) resource.Quantity {
	switch name {
	case corev1.ResourceCPU:
		return *resource.NewMilliQuantity(n, resource.DecimalSI)
	case corev1.ResourcePods:
		return *resource.NewQuantity(n, resource.DecimalSI)
	}
	return *resource.NewQuantity(n, resource.BinarySI)
}

func keep(kept map[corev1.ResourceName]int64, name, value string) error {
	q, err := resource.ParseQuantity(value)
	if err != nil {
		return fmt.Errorf("%s %q: %w", name, value, err)
	}
	if name == "cpu" {
		kept[corev1.ResourceCPU] += q.MilliValue()
	} else {
		kept[corev1.ResourceName(name)] += q.Value()
	}
	return nil
}

// threshold returns an eviction threshold in bytes, from a quantity or a percentage of the capacity.
func threshold(v string, capacity int64) (int64, error) {
	if percent, ok := strings.CutSuffix(v, "%"); ok {
		f, err := strconv.ParseFloat(percent, 64)
		if err != nil {
			return 0, fmt.Errorf("%q: %w", v, err)
		}
		return int64(float64(capacity) * f / 100), nil
	}
	q, err := resource.ParseQuantity(v)
	if err != nil {
		return 0, fmt.Errorf("%q: %w", v, err)
	}
	return q.Value(), nil
}

// usableMemory returns what Linux sees of the memory that EC2 advertises. Where nothing else is said, firmware and kernel take some 100 MiB and
// 2.5 %, on small instances at most 7 %.
func usableMemory(m *ec2.Machine, overhead Overhead) int64 {
	advertised := m.Type.MemoryMiB * mib
	if overhead != nil {
		return advertised - int64(float64(advertised)*overhead(m.Type.Name, m.ImageID))
	}
	return advertised - min(100*mib+advertised/40, advertised*7/100)
}

// reservedCPU returns what the EKS images reserve, in milli-CPU: 6 % of the first CPU, 1 % of the second, 0.5 % of the next two, 0.25
// % of the rest.
func reservedCPU(cpus int) int64 {
	tenth := int64(0) // of a milli-CPU
	for i := range cpus {
		switch {
		case i == 0:
			tenth += 600
		case i == 1:
			tenth += 100
		case i < 4:
			tenth += 50
		default:
			tenth += 25
		}
	}
	return tenth / 10
}

func devicesOf(t *catalog.Type) corev1.ResourceList {
	out := corev1.ResourceList{}
	add := func(name corev1.ResourceName, n int) {
		q := out[name]
		q.Add(*resource.NewQuantity(int64(n), resource.DecimalSI))
		out[name] = q
	}
	for _, g := range t.GPUs {
		switch g.Manufacturer {
		case "NVIDIA":
			add("nvidia.com/gpu", g.Count)
		case "AMD":
			add("amd.com/gpu", g.Count)
		case "Habana":
			add("habana.ai/gaudi", g.Count)
		}
	}
	for _, a := range t.Accelerators {
		if a.Kind == "neuron" {
			add("aws.amazon.com/neuron", a.Count)
			add("aws.amazon.com/neuroncore", a.Count*a.CoresPerDevice)
		}
	}
	return out
}
