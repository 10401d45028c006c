package catalog

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Two amounts beside each other have one unit, and what there is at most isn't rounded up: a pod that requests it would not fit.
func TestAmountsBesideEachOther(t *testing.T) {
	for _, tc := range []struct {
		name                   corev1.ResourceName
		requested, there, want string
	}{
		{corev1.ResourceCPU, "500", "191450m", "191.45"},
		{corev1.ResourceCPU, "500", "191457m", "191.45"},
		{corev1.ResourceCPU, "3", "4", "4"},
		{corev1.ResourceCPU, "4500m", "4", "4000m"},
		{corev1.ResourceCPU, "4500m", "1930m", "1930m"},
		{corev1.ResourceCPU, "4", "0", "0"},
		{corev1.ResourceMemory, "64Gi", "15564Mi", "15.19Gi"},
		{corev1.ResourceMemory, "64Gi", "48Gi", "48Gi"},
		{corev1.ResourceMemory, "64Gi", "16320875724", "15.2Gi"},
		{"nvidia.com/gpu", "9", "8", "8"},
	} {
		d := &Dims{Resources: []corev1.ResourceName{tc.name}}
		amount := func(text string) int64 {
			return capacity.ResourcesOf(corev1.ResourceList{tc.name: resource.MustParse(text)})[tc.name]
		}
		if got := d.AmountLike(0, amount(tc.there), amount(tc.requested)); got != tc.want {
			t.Errorf("%s of %s beside %s: %q, want %q", tc.there, tc.name, tc.requested, got, tc.want)
		}
	}
}
