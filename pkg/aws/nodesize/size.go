package nodesize

import (
	"math"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/catalog"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/reported"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

const (
	mi = int64(1) << 20
	gi = int64(1) << 30
	gb = int64(1000 * 1000 * 1000)

	ebsDriver = "ebs.csi.aws.com"
)

// leastMemory is the least share of a type's memory that counts as reported. Hypervisor and kernel take up to a fifth on the smallest types. A node
// that reports less than this share is broken or lies, and must not make the type useless for all others of its class.
const leastMemory = 0.75

// memoryMargin is subtracted from reported memory: the next host may leave a few pages less, and a node planned full would then reject a pod.
const memoryMargin = 16 * mi

// Size returns what a node of the type will report: capacity, allocatable, and the volumes it can attach per CSI driver. memory is the
// capacity that such nodes have reported before, in bytes; 0: none has yet. kept is what their kubelets keep from pods.
func (s *Settings) Size(h *catalog.Hardware, memory int64, kept reported.Kept) (capac, alloc capacity.Resources, volumes map[string]int64) {
	capac = capacity.Resources{
		corev1.ResourceCPU:              h.VCPU * 1000,
		corev1.ResourceMemory:           s.memory(h),
		corev1.ResourceEphemeralStorage: s.storage(h),
		corev1.ResourcePods:             s.Pods(h),
	}
	if memory > 0 {
		capac[corev1.ResourceMemory] = max(memory-memoryMargin, int64(leastMemory*float64(h.MemoryMiB*mi)))
	}
	if pods := capac[corev1.ResourcePods]; kept.Pods > 0 && (s.Own.Script || kept.Pods < pods) {
		capac[corev1.ResourcePods] = max(kept.Pods, int64((1-mostKept)*float64(pods)))
	}
	for name, n := range s.devices(h) {
		if n > 0 {
			capac[name] = n
		}
	}
	// Huge pages are part of the memory that the kubelet keeps from other pods. A NodeOverlay's amount replaces this one: the memory counts once.
	for name, bytes := range map[corev1.ResourceName]int64{reported.HugePages2Mi: kept.HugePages2Mi, reported.HugePages1Gi: kept.HugePages1Gi} {
		if bytes = min(bytes, kept.Memory, int64(mostKept*float64(capac[corev1.ResourceMemory]))); bytes > 0 {
			capac[name] = bytes
		}
	}
	alloc = capac.Clone()
	alloc.Sub(s.KubeReserved(h, capac[corev1.ResourcePods]))
	alloc.Sub(s.systemReserved)
	alloc.Sub(capacity.Resources{
		corev1.ResourceMemory:           s.evictMemory.of(capac[corev1.ResourceMemory]),
		corev1.ResourceEphemeralStorage: s.evictStorage.of(capac[corev1.ResourceEphemeralStorage]),
	})
	if kept != (reported.Kept{}) {
		s.keep(capac, alloc, kept)
	}
	for name, v := range alloc {
		if _, ok := capac[name]; !ok {
			delete(alloc, name) // reserved, but not a resource of the node: pid
		} else if v < 0 {
			alloc[name] = 0
		}
	}
	return capac, alloc, map[string]int64{ebsDriver: s.attachable(h)}
}

// mostOverhead is the largest share of its memory that an instance's firmware and kernel are assumed to keep, until a node of its type has shown the
// real number. EC2 publishes none.
const mostOverhead = 0.125

// Certain returns how many bytes of the allocatable memory that Size returns every node of the type has for certain. 0 means all of them: either a
// node of the type has shown its memory, or Overhead is large enough.
func (s *Settings) Certain(h *catalog.Hardware, memory int64, kept reported.Kept) int64 {
	if memory > 0 || s.Overhead >= mostOverhead {
		return 0
	}
	_, alloc, _ := s.Size(h, s.Least(h), kept)
	return max(1, alloc[corev1.ResourceMemory])
}

// Least returns the least memory that a node of the type is expected to report, as Size takes it (Size subtracts memoryMargin).
func (s *Settings) Least(h *catalog.Hardware) int64 {
	return int64((1-max(mostOverhead, s.Overhead))*float64(h.MemoryMiB*mi)) + memoryMargin
}

// Smaller reports whether nodes of the type have shown less memory than Overhead says.
func (s *Settings) Smaller(h *catalog.Hardware, memory int64) bool {
	return memory > 0 && memory < s.memory(h)
}

// mostKept is the largest share of a node's CPU, memory, disk and number of pods that counts as kept from pods. A kubelet that reports more is broken
// or lies, and must not make the type useless for all others of its class.
const mostKept = 0.75

// keep applies to alloc what kubelets have reported to keep from pods: it lowers an amount of which they keep more than was computed. Where a script
// starts the kubelet, the reported amounts replace the computed ones, also where they keep less.
func (s *Settings) keep(capac, alloc capacity.Resources, kept reported.Kept) {
	for name, amount := range map[corev1.ResourceName]int64{
		corev1.ResourceCPU: kept.CPU, corev1.ResourceMemory: kept.Memory, corev1.ResourceEphemeralStorage: kept.Storage,
	} {
		left := capac[name] - min(amount, int64(mostKept*float64(capac[name])))
		if s.Own.Script || left < alloc[name] {
			alloc[name] = left
		}
	}
}

// computed returns what a kubelet on the type keeps from pods, as computed from the settings without any reports of nodes.
func (s *Settings) computed(h *catalog.Hardware) reported.Kept {
	all, left, _ := s.Size(h, 0, reported.Kept{})
	less := func(name corev1.ResourceName) int64 { return all[name] - left[name] }
	return reported.Kept{CPU: less(corev1.ResourceCPU), Memory: less(corev1.ResourceMemory), Storage: less(corev1.ResourceEphemeralStorage)}
}

// More returns what a kubelet that reports kept keeps beyond what is computed.
func (s *Settings) More(h *catalog.Hardware, kept reported.Kept) reported.Kept {
	c := s.computed(h)
	return reported.Kept{CPU: max(0, kept.CPU-c.CPU), Memory: max(0, kept.Memory-c.Memory), Storage: max(0, kept.Storage-c.Storage)}
}

// With returns what a kubelet on the type keeps from pods if it keeps more in addition to what is computed, as kubelets on other types do: a script
// mostly reserves the same on every type.
func (s *Settings) With(h *catalog.Hardware, more reported.Kept) reported.Kept {
	c := s.computed(h)
	return reported.Kept{CPU: c.CPU + more.CPU, Memory: c.Memory + more.Memory, Storage: c.Storage + more.Storage}
}

// memory returns the capacity in bytes that the kubelet will see. It is less than the type's: the hypervisor and the kernel take a
// share that is not published, and Graviton kernels reserve 64 MiB of contiguous memory for devices.
func (s *Settings) memory(h *catalog.Hardware) int64 {
	m := h.MemoryMiB
	if h.Arch == "arm64" {
		m -= 64
	}
	return (m - int64(math.Ceil(float64(m)*s.Overhead))) * mi
}

// storage returns what a file system leaves of the volume, or of the instance store if the class combines it to one disk. A 20 GiB
// volume shows as 19.93 GiB with xfs and as 19.6 GiB with ext4. The smaller value counts, because the kubelet rejects a pod that was
// bound to storage the node doesn't have.
func (s *Settings) storage(h *catalog.Hardware) int64 {
	size := s.rootBytes
	if s.raid0 && h.NVMeGB > 0 {
		size = h.NVMeGB * gb // disks that aren't NVMe are not combined
	}
	return size - size/50
}

// eniPods returns the number of pods for which interfaces have addresses, with perSlot addresses in each slot of an interface. One slot of
// each interface holds the interface's own address, and two pods use the host's network. reserved interfaces have no pods.
func eniPods(h *catalog.Hardware, reserved, perSlot int64) int64 {
	enis := h.PrimaryInterfaces() - reserved
	if enis <= 0 || h.IPv4PerENI <= 0 {
		return 0
	}
	return enis*(h.IPv4PerENI-1)*perSlot + 2
}

const (
	// prefixSize is the number of addresses in a /28, which takes one slot if the CNI delegates prefixes.
	prefixSize = 16
	// The most pods that AWS recommends where addresses don't limit them
	// (docs.aws.amazon.com/eks/latest/userguide/cni-increase-ip-addresses-procedure.html).
	mostPodsSmall, mostPods = 110, 250
	smallBelow              = 30 // vCPUs
	unknownPods             = -1
)

// addressedPods returns the number of pods for which the CNI has addresses, as it is configured.
func (s *Settings) addressedPods(h *catalog.Hardware) int64 {
	reserved := s.ReservedENIs + s.efaOnlyCard0
	if !s.Prefixes || !h.Nitro() {
		return eniPods(h, reserved, 1)
	}
	n := eniPods(h, reserved, prefixSize)
	if h.VCPU < smallBelow {
		return min(n, mostPodsSmall)
	}
	return min(n, mostPods)
}

// Pods returns how many pods a node of the type runs.
func (s *Settings) Pods(h *catalog.Hardware) int64 {
	n := s.family.DefaultPods
	if n == 0 {
		n = s.addressedPods(h)
	}
	if s.maxPods != nil {
		n = int64(*s.maxPods)
	}
	if s.family.PodsPerCore && s.podsPerCore != nil && *s.podsPerCore > 0 {
		n = min(n, int64(*s.podsPerCore)*h.VCPU)
	}
	return n
}

// KubeReserved returns what the family's bootstrap script reserves for kubelet and container runtime: 6 % of the first core, 1 % of the
// second, 0.5 % of the third and fourth, 0.25 % of the rest; 255 MiB plus 11 MiB per pod; 1 GiB of disk.
func (s *Settings) KubeReserved(h *catalog.Hardware, pods int64) capacity.Resources {
	if s.family.ENIMemory {
		pods = eniPods(h, 0, 1) // nodeadm's table knows no interfaces that are EFA-only
		switch {
		case s.reservedPods > 0:
			pods = s.reservedPods
		case s.reservedPods == unknownPods && h.VCPU < smallBelow:
			pods = max(pods, mostPodsSmall)
		case s.reservedPods == unknownPods:
			pods = max(pods, mostPods)
		}
	}
	cores := func(from, to int64) int64 { return max(0, min(h.VCPU, to)-from) }
	// 1 % of a core is 10 milli-CPU. The sum is in milli-CPU, rounded down at each step like the scripts do.
	cpu := cores(0, 1)*60 + cores(1, 2)*10 + cores(2, 4)*5 + cores(4, h.VCPU)*25/10
	out := capacity.Resources{
		corev1.ResourceCPU:              cpu,
		corev1.ResourceMemory:           (255 + 11*pods) * mi,
		corev1.ResourceEphemeralStorage: gi,
	}
	for name, v := range s.kubeReserved {
		out[name] = v
	}
	return out
}

func (s *Settings) devices(h *catalog.Hardware) capacity.Resources {
	out := capacity.Resources{}
	for _, g := range h.GPUs {
		switch g.Manufacturer {
		case "NVIDIA":
			out[ec2nc.ResourceNVIDIAGPU] += g.Count
		case "AMD":
			out[ec2nc.ResourceAMDGPU] += g.Count
		case "Habana":
			out[ec2nc.ResourceHabanaGaudi] += g.Count
		}
	}
	for _, a := range h.Accelerators {
		if a.Neuron {
			out[ec2nc.ResourceAWSNeuron] += a.Count
		}
	}
	out[ec2nc.ResourceAWSNeuronCore] = h.NeuronCores
	if s.family.Windows() {
		out[ec2nc.ResourcePrivateIPv4Address] = h.IPv4PerENI - 1
		return out
	}
	out[ec2nc.ResourceAWSPodENI] = branchInterfaces(h.Name)
	out[ec2nc.ResourceEFA] = h.EFAs
	if s.Interfaces {
		out[ec2nc.ResourceEFA] = s.EFAOnly
	}
	return out
}

// attachable returns how many volumes the EBS CSI driver will offer: the type's limit less the volumes that are attached from the
// start. On types with a shared limit, network interfaces, instance-store disks and accelerators are subtracted, too.
func (s *Settings) attachable(h *catalog.Hardware) int64 {
	limit := h.EBSAttachments
	switch {
	case limit > 0:
	case h.Nitro():
		limit = 28
	default:
		limit = 39
	}
	limit -= s.volumes
	if h.Nitro() && !h.EBSDedicated {
		// The CNI attaches a second interface soon after start.
		limit -= 2 + h.StoreDisk
		for _, d := range h.GPUs {
			limit -= d.Count
		}
		for _, d := range h.Accelerators {
			limit -= d.Count
		}
	}
	return max(1, limit)
}
