package planned

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func TestNodesThatBootAlike(t *testing.T) {
	node := func(os string, devices ...corev1.ResourceName) *capacity.Node {
		n := &capacity.Node{Labels: map[string]string{corev1.LabelOSStable: os}, Allocatable: capacity.Resources{corev1.ResourceCPU: 1}}
		for _, d := range devices {
			n.Allocatable[d] = 1
		}
		return n
	}
	linux := BootsAs("pool", "class", node("linux"))
	for name, other := range map[string]string{
		"another pool":             BootsAs("other", "class", node("linux")),
		"another class":            BootsAs("pool", "other", node("linux")),
		"another operating system": BootsAs("pool", "class", node("windows")),
		"an image with a driver":   BootsAs("pool", "class", node("linux", "nvidia.com/gpu")),
	} {
		if other == linux {
			t.Errorf("%s: boots like the others", name)
		}
	}
	bigger := node("linux")
	bigger.Allocatable[corev1.ResourceCPU] = 64
	if BootsAs("pool", "class", bigger) != linux {
		t.Error("a bigger one boots differently")
	}
}
