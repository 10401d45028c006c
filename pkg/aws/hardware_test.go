package aws

import "github.com/dovetail-scheduler/dovetail/pkg/aws/catalog"

const mi = int64(1) << 20

// Instance types as EC2 describes them.
var (
	m5large = &catalog.Hardware{Name: "m5.large", Arch: "amd64", Hypervisor: "nitro", VCPU: 2, MemoryMiB: 8192,
		Cards: []catalog.NetworkCard{{Interfaces: 3}}, IPv4PerENI: 10}
	m6gXlarge = &catalog.Hardware{Name: "m6g.xlarge", Arch: "arm64", Hypervisor: "nitro", VCPU: 4, MemoryMiB: 16384,
		Cards: []catalog.NetworkCard{{Interfaces: 4}}, IPv4PerENI: 15}
	p3x8 = &catalog.Hardware{Name: "p3.8xlarge", Arch: "amd64", Hypervisor: "xen", VCPU: 32, MemoryMiB: 249856,
		Cards: []catalog.NetworkCard{{Interfaces: 8}}, IPv4PerENI: 30,
		GPUs: []catalog.Device{{Name: "V100", Manufacturer: "NVIDIA", Count: 4, MemoryMiB: 16384}}}
	trn1 = &catalog.Hardware{Name: "trn1.32xlarge", Arch: "amd64", Hypervisor: "nitro", VCPU: 128, MemoryMiB: 524288,
		Cards: []catalog.NetworkCard{{Interfaces: 5}, {Index: 1, Interfaces: 5}}, IPv4PerENI: 50, EFAs: 8, NeuronCores: 32,
		Accelerators: []catalog.Device{{Name: "Trainium", Manufacturer: "aws", Count: 16, Neuron: true}}}
)
