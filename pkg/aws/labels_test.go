package aws

import (
	"testing"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/bootstrap"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/catalog"
)

func TestLabelsOf(t *testing.T) {
	for _, tt := range []struct {
		name string
		info ec2types.InstanceTypeInfo
		want map[string]string
	}{
		{
			name: "a machine with local disks and a GPU",
			info: ec2types.InstanceTypeInfo{
				InstanceType: "g4dn.8xlarge", Hypervisor: "nitro",
				ProcessorInfo: &ec2types.ProcessorInfo{Manufacturer: ptr.To("Intel"), SustainedClockSpeedInGhz: ptr.To(2.5),
					SupportedArchitectures: []ec2types.ArchitectureType{"x86_64"}},
				VCpuInfo:            &ec2types.VCpuInfo{DefaultVCpus: ptr.To[int32](32)},
				MemoryInfo:          &ec2types.MemoryInfo{SizeInMiB: ptr.To[int64](131072)},
				InstanceStorageInfo: &ec2types.InstanceStorageInfo{TotalSizeInGB: ptr.To[int64](900), NvmeSupport: "required"},
				EbsInfo: &ec2types.EbsInfo{EbsOptimizedSupport: "default",
					EbsOptimizedInfo: &ec2types.EbsOptimizedInfo{MaximumBandwidthInMbps: ptr.To[int32](9500)}},
				NetworkInfo: &ec2types.NetworkInfo{EncryptionInTransitSupported: ptr.To(true),
					NetworkCards: []ec2types.NetworkCardInfo{{BaselineBandwidthInGbps: ptr.To(50.0)}}},
				GpuInfo: &ec2types.GpuInfo{Gpus: []ec2types.GpuDeviceInfo{{Name: ptr.To("T4"), Manufacturer: ptr.To("NVIDIA"),
					Count: ptr.To[int32](1), MemoryInfo: &ec2types.GpuDeviceMemoryInfo{SizeInMiB: ptr.To[int32](16384)}}}},
			},
			want: map[string]string{
				"node.kubernetes.io/instance-type": "g4dn.8xlarge", "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
				"topology.kubernetes.io/region":                              "eu-west-1",
				"karpenter.k8s.aws/instance-category":                        "g",
				"karpenter.k8s.aws/instance-family":                          "g4dn",
				"karpenter.k8s.aws/instance-generation":                      "4",
				"karpenter.k8s.aws/instance-size":                            "8xlarge",
				"karpenter.k8s.aws/instance-hypervisor":                      "nitro",
				"karpenter.k8s.aws/instance-encryption-in-transit-supported": "true",
				"karpenter.k8s.aws/instance-capability-flex":                 "false",
				"karpenter.k8s.aws/instance-local-nvme":                      "900",
				"karpenter.k8s.aws/instance-cpu":                             "32",
				"karpenter.k8s.aws/instance-cpu-manufacturer":                "intel",
				"karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz":   "2500",
				"karpenter.k8s.aws/instance-memory":                          "131072",
				"karpenter.k8s.aws/instance-ebs-bandwidth":                   "9500",
				"karpenter.k8s.aws/instance-network-bandwidth":               "50000",
				"karpenter.k8s.aws/instance-gpu-name":                        "t4",
				"karpenter.k8s.aws/instance-gpu-manufacturer":                "nvidia",
				"karpenter.k8s.aws/instance-gpu-count":                       "1",
				"karpenter.k8s.aws/instance-gpu-memory":                      "16384",
				"nvidia.com/gpu.present":                                     "true",
			},
		},
		{
			name: "a Neuron machine of two generations of description, with a name of three parts",
			info: ec2types.InstanceTypeInfo{
				InstanceType: "inf2.xlarge", Hypervisor: "nitro",
				ProcessorInfo: &ec2types.ProcessorInfo{Manufacturer: ptr.To("AMD"), SustainedClockSpeedInGhz: ptr.To(2.95),
					SupportedArchitectures: []ec2types.ArchitectureType{"x86_64"}},
				VCpuInfo:   &ec2types.VCpuInfo{DefaultVCpus: ptr.To[int32](4)},
				MemoryInfo: &ec2types.MemoryInfo{SizeInMiB: ptr.To[int64](16384)},
				InferenceAcceleratorInfo: &ec2types.InferenceAcceleratorInfo{Accelerators: []ec2types.InferenceDeviceInfo{{
					Name: ptr.To("Inferentia2"), Manufacturer: ptr.To("AWS"), Count: ptr.To[int32](1)}}},
				NeuronInfo: &ec2types.NeuronInfo{NeuronDevices: []ec2types.NeuronDeviceInfo{{
					Name: ptr.To("Inferentia2"), Count: ptr.To[int32](1), CoreInfo: &ec2types.NeuronDeviceCoreInfo{Count: ptr.To[int32](2)}}}},
			},
			want: map[string]string{
				"node.kubernetes.io/instance-type": "inf2.xlarge", "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
				"topology.kubernetes.io/region":                              "eu-west-1",
				"karpenter.k8s.aws/instance-category":                        "inf",
				"karpenter.k8s.aws/instance-family":                          "inf2",
				"karpenter.k8s.aws/instance-generation":                      "2",
				"karpenter.k8s.aws/instance-size":                            "xlarge",
				"karpenter.k8s.aws/instance-hypervisor":                      "nitro",
				"karpenter.k8s.aws/instance-encryption-in-transit-supported": "false",
				"karpenter.k8s.aws/instance-capability-flex":                 "false",
				"karpenter.k8s.aws/instance-cpu":                             "4",
				"karpenter.k8s.aws/instance-cpu-manufacturer":                "amd",
				"karpenter.k8s.aws/instance-cpu-sustained-clock-speed-mhz":   "2950",
				"karpenter.k8s.aws/instance-memory":                          "16384",
				"karpenter.k8s.aws/instance-accelerator-name":                "inferentia2",
				"karpenter.k8s.aws/instance-accelerator-manufacturer":        "aws",
				"karpenter.k8s.aws/instance-accelerator-count":               "1",
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, ok := catalog.HardwareOf(&tt.info)
			if !ok {
				t.Fatal("not taken for a machine")
			}
			if diff := cmp.Diff(tt.want, labelsOf(h, "eu-west-1", bootstrap.AL2023)); diff != "" {
				t.Errorf("labels (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBootLabels(t *testing.T) {
	got := bootLabels(map[string]string{
		"team": "a", "example.com/tier": "web", "karpenter.sh/nodepool": "default", "karpenter.k8s.aws/ec2nodeclass": "default",
		"kubernetes.io/arch": "amd64", "topology.kubernetes.io/zone": "a", "node-restriction.kubernetes.io/x": "y", "foo.k8s.io/x": "y",
		"karpenter.k8s.aws/instance-family": "m5", "topology.k8s.aws/zone-id": "use1-az1",
	})
	want := map[string]string{"team": "a", "example.com/tier": "web", "karpenter.sh/nodepool": "default", "karpenter.k8s.aws/ec2nodeclass": "default"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("labels for the kubelet (-want +got):\n%s", diff)
	}
}
