package nodesize

import (
	"testing"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/bootstrap"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/catalog"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/reported"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/test/fixtures"
)

// Instance types as EC2 describes them.
var (
	t3micro = &catalog.Hardware{Name: "t3.micro", Arch: "amd64", Hypervisor: "nitro", VCPU: 2, MemoryMiB: 1024,
		Cards: []catalog.NetworkCard{{Interfaces: 2}}, IPv4PerENI: 2}
	m5dMetal = &catalog.Hardware{Name: "m5d.metal", Arch: "amd64", Metal: true, VCPU: 96, MemoryMiB: 393216,
		Cards: []catalog.NetworkCard{{Interfaces: 15}}, IPv4PerENI: 50, StoreGB: 3600, NVMeGB: 3600, StoreDisk: 4}
	d2xlarge = &catalog.Hardware{Name: "d2.xlarge", Arch: "amd64", Hypervisor: "xen", VCPU: 4, MemoryMiB: 31232,
		Cards: []catalog.NetworkCard{{Interfaces: 4}}, IPv4PerENI: 15, StoreGB: 6144, StoreDisk: 3}
)

// branch is a resource list with n branch interfaces.
func branch(n int64) map[corev1.ResourceName]int64 {
	return map[corev1.ResourceName]int64{"vpc.amazonaws.com/pod-eni": n}
}

func TestSize(t *testing.T) {
	raid0 := ec2nc.InstanceStorePolicyRAID0
	for _, tt := range []struct {
		name     string
		spec     ec2nc.EC2NodeClassSpec
		family   string
		overhead float64
		prefixes bool
		hardware *catalog.Hardware
		// Amounts in milli-CPU, MiB, MiB, pods.
		capCPU, capMemory, cpu, memory, storage, pods int64
		extended                                      map[corev1.ResourceName]int64
		volumes                                       int64
	}{
		{
			name: "m5.large with everything left at its default", family: "AL2023", overhead: 0.075, hardware: fixtures.M5Large,
			capCPU: 2000,
			// 8192 - ceil(8192 x 0.075 = 614.4) = 7577
			capMemory: 7577,
			// 60 for the first core, 10 for the second: 2000 - 70
			cpu: 1930,
			// 3 interfaces x (10-1) + 2 = 29 pods; kube 255 + 11 x 29 = 574; eviction 100: 7577 - 574 - 100
			memory: 6903, pods: 29,
			// 20 GiB less 2 % for the file system is 21045339751 bytes; less a tenth (rounded up) and 1 GiB: 16.64 GiB
			storage: 17039,
			// 28 - root volume - 2 interfaces
			volumes: 25,
			// from the VPC resource controller's table, as in the following cases
			extended: branch(9),
		},
		{
			name: "m5.large with reservations in its own user data", family: "AL2023", overhead: 0.075, hardware: fixtures.M5Large,
			spec: ec2nc.EC2NodeClassSpec{UserData: ptr.To(`{kind: NodeConfig, spec: {kubelet: {config: {systemReserved: {cpu: 500m, memory: 1Gi}, evictionHard: {memory.available: 200Mi}}}}}`)},
			// 1930 - 500; 6903 - 1024 - (200 - 100)
			capCPU: 2000, capMemory: 7577, cpu: 1430, memory: 5779, pods: 29, storage: 17039, volumes: 25, extended: branch(9),
		},
		{
			name: "m5.large, and nodeadm reserves memory for 110 pods", family: "AL2023", overhead: 0.075, hardware: fixtures.M5Large,
			spec: ec2nc.EC2NodeClassSpec{UserData: ptr.To(`{kind: NodeConfig, spec: {kubelet: {maxPodsExpression: "110"}}}`)},
			// 6903 - 11 x (110 - 29)
			capCPU: 2000, capMemory: 7577, cpu: 1930, memory: 6012, pods: 29, storage: 17039, volumes: 25, extended: branch(9),
		},
		{
			name: "m5.large, and the class says otherwise than its user data", family: "AL2023", overhead: 0.075, hardware: fixtures.M5Large,
			spec: ec2nc.EC2NodeClassSpec{UserData: ptr.To(`{kind: NodeConfig, spec: {kubelet: {config: {systemReserved: {cpu: 500m, memory: 1Gi}}}}}`),
				Kubelet: &ec2nc.KubeletConfiguration{SystemReserved: map[string]string{"cpu": "100m"}}},
			// 1930 - 100; 6903 - 1024
			capCPU: 2000, capMemory: 7577, cpu: 1830, memory: 5879, pods: 29, storage: 17039, volumes: 25, extended: branch(9),
		},
		{
			name: "t3.micro is small and says so", family: "AL2023", overhead: 0.075, hardware: t3micro,
			// 1024 - ceil(76.8); 2 x (2-1) + 2 = 4 pods; 947 - (255 + 44) - 100
			capCPU: 2000, capMemory: 947, cpu: 1930, memory: 548, pods: 4, storage: 17039, volumes: 25,
		},
		{
			name: "m6g.xlarge: Graviton keeps 64 MiB", family: "AL2023", overhead: 0.075, hardware: fixtures.M6GXLarge,
			// 16384 - 64 = 16320; - ceil(1224) = 15096; 4 x 14 + 2 = 58 pods; 15096 - (255 + 638) - 100; cpu 60 + 10 + 2 x 5
			capCPU: 4000, capMemory: 15096, cpu: 3920, memory: 14103, pods: 58, storage: 17039, volumes: 25, extended: branch(18),
		},
		{
			name: "m5d.metal with its disks as one", family: "AL2023", overhead: 0.075, hardware: m5dMetal,
			spec: ec2nc.EC2NodeClassSpec{InstanceStorePolicy: &raid0},
			// 393216 - ceil(29491.2) = 363724; 15 x 49 + 2 = 737 pods; 363724 - (255 + 8107) - 100
			// cpu 60 + 10 + 10 + 92 x 2.5 = 310
			capCPU: 96000, capMemory: 363724, cpu: 95690, memory: 355262, pods: 737,
			// 3600 GB less 2 %: 3528e9 bytes; less a tenth and 1 GiB
			storage: 3027082,
			// 28 - 1 - 2 - 4 disks
			volumes: 21, extended: branch(107),
		},
		{
			name: "d2.xlarge: disks that aren't NVMe are not combined", family: "AL2023", overhead: 0.075, hardware: d2xlarge,
			spec: ec2nc.EC2NodeClassSpec{InstanceStorePolicy: &raid0},
			// 31232 - ceil(2342.4) = 28889; 4 x 14 + 2 = 58 pods; 28889 - (255 + 638) - 100
			capCPU: 4000, capMemory: 28889, cpu: 3920, memory: 27896, pods: 58, storage: 17039, volumes: 38,
		},
		{
			name: "trn1.32xlarge with an EFA-only interface on its first card", family: "AL2023", overhead: 0.075, hardware: fixtures.Trn132XLarge,
			spec: ec2nc.EC2NodeClassSpec{NetworkInterfaces: []*ec2nc.NetworkInterface{{InterfaceType: ec2nc.InterfaceTypeEFAOnly, DeviceIndex: 1}}},
			// 4 x 49 + 2 = 198 pods; memory is reserved for the 247 of all five interfaces
			capCPU: 128000, capMemory: 484966, cpu: 127610, memory: 481894, pods: 198, storage: 17039,
			extended: map[corev1.ResourceName]int64{"aws.amazon.com/neuron": 16, "aws.amazon.com/neuroncore": 32, "vpc.amazonaws.com/efa": 1, "vpc.amazonaws.com/pod-eni": 82},
			volumes:  9,
		},
		{
			name: "p3.8xlarge has GPUs and no Nitro", family: "AL2023", overhead: 0.075, hardware: fixtures.P38XLarge,
			// 249856 - ceil(18739.2) = 231116; 8 x 29 + 2 = 234 pods; 231116 - (255 + 2574) - 100; cpu 60 + 10 + 10 + 28 x 2.5
			capCPU: 32000, capMemory: 231116, cpu: 31850, memory: 228187, pods: 234, storage: 17039,
			extended: map[corev1.ResourceName]int64{"nvidia.com/gpu": 4},
			// Xen: 39 - 1
			volumes: 38,
		},
		{
			name: "trn1.32xlarge has Neuron devices, cores and EFA", family: "AL2023", overhead: 0.075, hardware: fixtures.Trn132XLarge,
			// 524288 - ceil(39321.6) = 484966; the first card's 5 x 49 + 2 = 247 pods; 484966 - (255 + 2717) - 100
			// cpu 60 + 10 + 10 + 124 x 2.5 = 390
			capCPU: 128000, capMemory: 484966, cpu: 127610, memory: 481894, pods: 247, storage: 17039,
			extended: map[corev1.ResourceName]int64{"aws.amazon.com/neuron": 16, "aws.amazon.com/neuroncore": 32, "vpc.amazonaws.com/efa": 8, "vpc.amazonaws.com/pod-eni": 82},
			// 28 - 1 - 2 - 16 devices
			volumes: 9,
		},
		{
			name: "maxPods counts, memory is still kept for what the interfaces allow", family: "AL2023", overhead: 0.075, hardware: fixtures.M5Large,
			spec:   ec2nc.EC2NodeClassSpec{Kubelet: &ec2nc.KubeletConfiguration{MaxPods: ptr.To[int32](60)}},
			capCPU: 2000, capMemory: 7577, cpu: 1930, memory: 6903, pods: 60, storage: 17039, volumes: 25, extended: branch(9),
		},
		{
			// 3 x 9 x 16 + 2 = 434 addresses; below 30 cores 110 pods are recommended. Memory is reserved for 29 pods, as the image
			// does.
			name: "prefix delegation", family: "AL2023", overhead: 0.075, prefixes: true, hardware: fixtures.M5Large,
			capCPU: 2000, capMemory: 7577, cpu: 1930, memory: 6903, pods: 110, storage: 17039, volumes: 25, extended: branch(9),
		},
		{
			// 2 x 1 x 16 + 2 = 34 are fewer than recommended.
			name: "prefix delegation on a small machine", family: "AL2023", overhead: 0.075, prefixes: true, hardware: t3micro,
			capCPU: 2000, capMemory: 947, cpu: 1930, memory: 548, pods: 34, storage: 17039, volumes: 25,
		},
		{
			// From 30 cores on 250 are recommended.
			name: "prefix delegation on bare metal", family: "AL2023", overhead: 0.075, prefixes: true, hardware: m5dMetal,
			capCPU: 96000, capMemory: 363724, cpu: 95690, memory: 355262, pods: 250, storage: 17039, volumes: 21, extended: branch(107),
		},
		{
			// Xen has no prefixes.
			name: "prefix delegation without Nitro", family: "AL2023", overhead: 0.075, prefixes: true, hardware: fixtures.P38XLarge,
			capCPU: 32000, capMemory: 231116, cpu: 31850, memory: 228187, pods: 234, storage: 17039,
			extended: map[corev1.ResourceName]int64{"nvidia.com/gpu": 4}, volumes: 38,
		},
		{
			name: "Windows: 110 pods, addresses of one interface", family: "Windows2022", overhead: 0.075, hardware: fixtures.M5Large,
			// 7577 - (255 + 11 x 110) - 500, the kubelet's eviction threshold on Windows; 50 GiB less 2 % is 49, less 4.9 and 1
			capCPU: 2000, capMemory: 7577, cpu: 1930, memory: 5612, pods: 110, storage: 44134, volumes: 25,
			// 10 addresses of which one is the interface's own
			extended: map[corev1.ResourceName]int64{"vpc.amazonaws.com/PrivateIPv4Address": 9},
		},
		{
			name: "Bottlerocket keeps memory for maxPods, and has a volume for the system", family: "Bottlerocket", overhead: 0.075, hardware: fixtures.M5Large,
			spec: ec2nc.EC2NodeClassSpec{Kubelet: &ec2nc.KubeletConfiguration{MaxPods: ptr.To[int32](110), PodsPerCore: ptr.To[int32](2)}},
			// 7577 - (255 + 1210) - 100; Bottlerocket ignores podsPerCore
			capCPU: 2000, capMemory: 7577, cpu: 1930, memory: 6012, pods: 110, storage: 17039, volumes: 24, extended: branch(9),
		},
		{
			name: "kubelet settings of the class", family: "AL2023", overhead: 0, hardware: fixtures.M5Large,
			spec: ec2nc.EC2NodeClassSpec{
				Kubelet: &ec2nc.KubeletConfiguration{
					PodsPerCore:    ptr.To[int32](5),
					KubeReserved:   map[string]string{"memory": "1Gi", "pid": "100"},
					SystemReserved: map[string]string{"cpu": "250m", "ephemeral-storage": "1Gi"},
					EvictionHard:   map[string]string{"memory.available": "5%", "nodefs.available": "100%"},
				},
				BlockDeviceMappings: []*ec2nc.BlockDeviceMapping{
					{DeviceName: ptr.To("/dev/xvda"), EBS: &ec2nc.BlockDevice{VolumeSize: ptr.To(resource.MustParse("100Gi"))}},
					{DeviceName: ptr.To("/dev/xvdb"), EBS: &ec2nc.BlockDevice{VolumeSize: ptr.To(resource.MustParse("500Gi"))}},
				},
			},
			capCPU: 2000, capMemory: 8192,
			// 2000 - 70 (the class reserves no CPU for kube) - 250
			cpu: 1680,
			// 8192 - 1024 - 409.6
			memory: 6758, pods: 10,
			// 100 GiB less 2 % is 98 GiB, less 1 and 1 GiB; 100 % is no threshold
			storage: 96 << 10, volumes: 24, extended: branch(9),
		},
		{
			name: "the root volume is the one that says so", family: "Custom", overhead: 0.075, hardware: fixtures.M5Large,
			spec: ec2nc.EC2NodeClassSpec{BlockDeviceMappings: []*ec2nc.BlockDeviceMapping{
				{DeviceName: ptr.To("/dev/sda1"), RootVolume: true, EBS: &ec2nc.BlockDevice{VolumeSize: ptr.To(resource.MustParse("50Gi"))}},
				{DeviceName: ptr.To("/dev/sdb"), EBS: &ec2nc.BlockDevice{VolumeSize: ptr.To(resource.MustParse("500Gi"))}},
			}},
			// 49 GiB less 4.9 and 1
			capCPU: 2000, capMemory: 7577, cpu: 1930, memory: 6903, pods: 29, storage: 44134, volumes: 24, extended: branch(9),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, err := bootstrap.FamilyOf(&ec2nc.EC2NodeClassSpec{AMIFamily: &tt.family})
			if err != nil {
				t.Fatal(err)
			}
			s, err := SettingsOf(&tt.spec, f, Config{Overhead: tt.overhead, Prefixes: tt.prefixes})
			if err != nil {
				t.Fatal(err)
			}
			capac, alloc, volumes := s.Size(tt.hardware, 0, reported.Kept{})
			type numbers struct {
				CapCPU, CapMemory, CPU, Memory, Storage, Pods, Volumes int64
				Extended                                               map[corev1.ResourceName]int64
			}
			want := numbers{tt.capCPU, tt.capMemory, tt.cpu, tt.memory, tt.storage, tt.pods, tt.volumes, tt.extended}
			got := numbers{capac["cpu"], capac["memory"] / mi, alloc["cpu"], alloc["memory"] / mi, alloc["ephemeral-storage"] / mi,
				alloc["pods"], volumes[ebsDriver], nil}
			for name, v := range alloc {
				switch name {
				case "cpu", "memory", "ephemeral-storage", "pods":
				default:
					if got.Extended == nil {
						got.Extended = map[corev1.ResourceName]int64{}
					}
					got.Extended[name] = v
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("size (-want +got):\n%s", diff)
			}
		})
	}
}

// A kubelet may report any amount for its own node (NodeRestriction doesn't look at it).
func TestReportedMemoryHasAFloor(t *testing.T) {
	s, err := SettingsOf(&ec2nc.EC2NodeClassSpec{}, bootstrap.AL2023, Config{Overhead: 0.075})
	if err != nil {
		t.Fatal(err)
	}
	for seen, want := range map[int64]int64{0: 7577, 1: 6144, 6143: 6144, 7000: 6984, 8000: 7984} {
		if capac, _, _ := s.Size(fixtures.M5Large, seen*mi, reported.Kept{}); capac["memory"] != want*mi {
			t.Errorf("%d MiB were reported; the size is %d MiB, want %d", seen, capac["memory"]/mi, want)
		}
	}
}

// The same goes for the number of pods: a node that reports one must not make its type useless for all classes of pods.
func TestReportedPodsHaveAFloor(t *testing.T) {
	s, err := SettingsOf(&ec2nc.EC2NodeClassSpec{}, bootstrap.AL2023, Config{Overhead: 0.075})
	if err != nil {
		t.Fatal(err)
	}
	computed := s.Pods(fixtures.M5Large)
	for seen, want := range map[int64]int64{0: computed, 1: computed / 4, computed - 1: computed - 1, computed + 1: computed} {
		if capac, alloc, _ := s.Size(fixtures.M5Large, 0, reported.Kept{Pods: seen}); capac["pods"] != want || alloc["pods"] != want {
			t.Errorf("%d pods were reported; the size is %d, %d of them allocatable, want %d", seen, capac["pods"], alloc["pods"], want)
		}
	}
}

func TestReservedMoreThanThereIs(t *testing.T) {
	s, err := SettingsOf(&ec2nc.EC2NodeClassSpec{Kubelet: &ec2nc.KubeletConfiguration{SystemReserved: map[string]string{"memory": "1Ti"}}}, bootstrap.AL2023, Config{Overhead: 0.075})
	if err != nil {
		t.Fatal(err)
	}
	if _, alloc, _ := s.Size(fixtures.M5Large, 0, reported.Kept{}); alloc["memory"] != 0 {
		t.Errorf("allocatable memory is %d, want 0", alloc["memory"])
	}
}

func TestSettingsNameTheField(t *testing.T) {
	for _, tt := range []struct {
		kubelet ec2nc.KubeletConfiguration
		want    string
	}{
		{ec2nc.KubeletConfiguration{KubeReserved: map[string]string{"cpu": "much"}}, `spec.kubelet.kubeReserved[cpu]: "much" is not an amount`},
		{ec2nc.KubeletConfiguration{SystemReserved: map[string]string{"memory": "-1Gi"}}, `spec.kubelet.systemReserved[memory]: "-1Gi" is not an amount`},
		{ec2nc.KubeletConfiguration{EvictionHard: map[string]string{"memory.available": "101%"}}, `spec.kubelet.evictionHard[memory.available]: "101%" is not a percentage`},
	} {
		_, err := SettingsOf(&ec2nc.EC2NodeClassSpec{Kubelet: &tt.kubelet}, bootstrap.AL2023, Config{Overhead: 0.075})
		if err == nil || err.Error() != tt.want {
			t.Errorf("the error is %v, want %q", err, tt.want)
		}
	}
}

func TestReservedInterfaces(t *testing.T) {
	s, _ := SettingsOf(&ec2nc.EC2NodeClassSpec{}, bootstrap.AL2023, Config{Overhead: 0.075, ReservedENIs: 1})
	_, alloc, _ := s.Size(fixtures.M5Large, 0, reported.Kept{})
	// 2 x 9 + 2 pods; memory is reserved as if no interface were reserved
	if diff := cmp.Diff(capacity.Resources{"pods": 20, "memory": 6903 * mi}, capacity.Resources{"pods": alloc["pods"], "memory": alloc["memory"]}); diff != "" {
		t.Errorf("allocatable (-want +got):\n%s", diff)
	}
}

// What kubelets keep from pods counts in addition to what is computed; where user data can't be read, instead of it. One that keeps more than
// three quarters proves nothing about the next.
func TestWhatKubeletsKeep(t *testing.T) {
	script := "#!/bin/bash\nkubeadm join\n"
	for _, tt := range []struct {
		name              string
		family            *bootstrap.Family
		kept              reported.Kept
		cpu, memory, pods int64 // milli-CPU, MiB
	}{
		{"nothing is known", bootstrap.AL2023, reported.Kept{}, 1930, 6903, 29},
		{"as computed", bootstrap.AL2023, reported.Kept{CPU: 70, Memory: 674 * mi, Pods: 29}, 1930, 6903, 29},
		{"more than computed", bootstrap.AL2023, reported.Kept{CPU: 570, Memory: 1024 * mi, Pods: 20}, 1430, 6553, 20},
		{"huge pages", bootstrap.AL2023, reported.Kept{CPU: 70, Memory: (674 + 2048) * mi, Pods: 29, HugePages2Mi: 2048 * mi}, 1930, 4855, 29},
		{"less than computed", bootstrap.AL2023, reported.Kept{CPU: 10, Memory: 100 * mi, Pods: 58}, 1930, 6903, 29},
		{"nearly all", bootstrap.AL2023, reported.Kept{CPU: 1990, Memory: 7500 * mi, Pods: 29}, 500, 1894, 29},
		{"a script, before the first node", bootstrap.Custom, reported.Kept{}, 1930, 6903, 29},
		{"a script, after it", bootstrap.Custom, reported.Kept{CPU: 500, Memory: 100 * mi, Pods: 110}, 1500, 7477, 110},
	} {
		s, err := SettingsOf(&ec2nc.EC2NodeClassSpec{UserData: map[bool]*string{true: &script}[tt.family == bootstrap.Custom]}, tt.family, Config{Overhead: 0.075})
		if err != nil {
			t.Fatal(err)
		}
		_, alloc, _ := s.Size(fixtures.M5Large, 0, tt.kept)
		if pages := alloc[reported.HugePages2Mi]; pages != tt.kept.HugePages2Mi {
			t.Errorf("%s: %d bytes of huge pages, want %d", tt.name, pages, tt.kept.HugePages2Mi)
		}
		if diff := cmp.Diff([]int64{tt.cpu, tt.memory, tt.pods}, []int64{alloc["cpu"], alloc["memory"] / mi, alloc["pods"]}); diff != "" {
			t.Errorf("%s: CPU, memory and pods (-want +got):\n%s", tt.name, diff)
		}
	}
}

// Until a node has shown its memory, what 12.5 % of overhead leave is certain; then all is.
func TestCertain(t *testing.T) {
	settings := func(overhead float64) *Settings {
		s, err := SettingsOf(&ec2nc.EC2NodeClassSpec{}, bootstrap.AL2023, Config{Overhead: overhead})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := settings(0.075)
	_, planned, _ := s.Size(fixtures.M5Large, 0, reported.Kept{})
	certain := s.Certain(fixtures.M5Large, 0, reported.Kept{})
	// 8192 x 0.05 = 409.6 MiB less than with 7.5 %, rounded up there
	if less := planned[corev1.ResourceMemory] - certain; less < 409*mi || less > 410*mi {
		t.Errorf("%d MiB of an m5.large's memory are uncertain, want 409", less/mi)
	}
	_, worst, _ := s.Size(fixtures.M5Large, 8192*mi*7/8+memoryMargin, reported.Kept{})
	if certain > worst[corev1.ResourceMemory] {
		t.Errorf("%d bytes are certain, and a node that keeps 12.5 %% has %d", certain, worst[corev1.ResourceMemory])
	}
	if n := s.Certain(fixtures.M5Large, 7800*mi, reported.Kept{}); n != 0 {
		t.Errorf("%d bytes are certain of a type that has shown its memory, want all", n)
	}
	if n := settings(0.2).Certain(fixtures.M5Large, 0, reported.Kept{}); n != 0 {
		t.Errorf("%d bytes are certain where a fifth of the memory isn't planned anyway, want all", n)
	}
}
