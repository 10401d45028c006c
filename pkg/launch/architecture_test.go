package launch

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/spending"
)

// A pool is reported when nodes are planned that may be arm64 for pods that don't say whether they can run there, and not otherwise.
func TestPoolsGetOpenArchitectures(t *testing.T) {
	for arch, want := range map[string]int{"arm64": 1, "amd64": 0} {
		w, _ := guarded(t, spending.Config{})
		w.overlay = func(it *capacity.InstanceType) *capacity.InstanceType {
			out := *it
			out.Labels = map[string]string{corev1.LabelArchStable: "amd64"}
			if it.Name == "large" {
				out.Labels[corev1.LabelArchStable] = arch
			}
			return &out
		}
		w.submit(4)
		w.plans()
		w.mu.Lock()
		if len(w.openArchitectures) != want || want > 0 && !strings.HasPrefix(w.openArchitectures[0], "pool pool does not fix kubernetes.io/arch, and neither do pods of d/") {
			t.Errorf("large is %s: told %q, want %d", arch, w.openArchitectures, want)
		}
		w.mu.Unlock()
	}
}
