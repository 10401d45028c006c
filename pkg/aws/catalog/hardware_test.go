package catalog

import (
	"testing"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"k8s.io/utils/ptr"
)

func TestNamesOfTypes(t *testing.T) {
	for name, want := range map[string][4]string{
		"m5.large":           {"m", "5", "m5", "large"},
		"c7gn.16xlarge":      {"c", "7", "c7gn", "16xlarge"},
		"u-12tb1.112xlarge":  {"u", "1", "u-12tb1", "112xlarge"},
		"u7i-12tb.224xlarge": {"u", "7", "u7i-12tb", "224xlarge"},
		"m7i-flex.2xlarge":   {"m", "7", "m7i-flex", "2xlarge"},
		"x2iedn.metal":       {"x", "2", "x2iedn", "metal"},
		"trn1n.32xlarge":     {"trn", "1", "trn1n", "32xlarge"},
		"p6e-gb200.36xlarge": {"p", "6", "p6e-gb200", "36xlarge"},
		"hpc7g.4xlarge":      {"hpc", "7", "hpc7g", "4xlarge"},
		"i7ie.metal-24xl":    {"i", "7", "i7ie", "metal-24xl"},
	} {
		h, ok := HardwareOf(&ec2types.InstanceTypeInfo{
			InstanceType: ec2types.InstanceType(name), VCpuInfo: &ec2types.VCpuInfo{DefaultVCpus: ptr.To[int32](1)},
			MemoryInfo:    &ec2types.MemoryInfo{SizeInMiB: ptr.To[int64](1)},
			ProcessorInfo: &ec2types.ProcessorInfo{SupportedArchitectures: []ec2types.ArchitectureType{"i386", "x86_64"}},
		})
		if !ok {
			t.Fatalf("%s is not taken for a machine", name)
		}
		if got := [4]string{h.Category, h.Generation, h.Family, h.Size}; got != want {
			t.Errorf("%s: category, generation, family, size are %v, want %v", name, got, want)
		}
	}
}

func TestNetworkBandwidth(t *testing.T) {
	for performance, want := range map[string]int64{"25 Gigabit": 25000, "12.5 Gigabit": 12500, "Up to 25 Gigabit": 0, "Moderate": 0, "Low to Moderate": 0} {
		h := &Hardware{}
		h.network(&ec2types.NetworkInfo{NetworkPerformance: &performance})
		if h.Bandwidth != want {
			t.Errorf("%q is %d Mbit/s, want %d", performance, h.Bandwidth, want)
		}
	}
}
