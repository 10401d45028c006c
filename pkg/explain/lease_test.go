package explain

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
	"github.com/dovetail-scheduler/dovetail/pkg/offline"
	"github.com/dovetail-scheduler/dovetail/pkg/whatif"
)

// A pod that fits and isn't bound waits for a scheduler that has ended, if its Lease says so; else that is asked after a minute.
func TestSchedulerThatDoesNotRun(t *testing.T) {
	lease := func(ago time.Duration) *Lease { return &Lease{"kube-system/dovetail-scheduler", now.Add(-ago)} }
	for name, tc := range map[string]struct {
		lease     *Lease
		old       time.Duration
		installed bool   // the scheduler's configuration was read
		want      string // empty: nothing is said
	}{
		"it runs":                      {lease(5 * time.Second), time.Hour, true, ""},
		"it has ended":                 {lease(12 * time.Minute), 2 * time.Second, true, "Lease kube-system/dovetail-scheduler was last renewed 12m ago"},
		"not known, and it takes long": {nil, 2 * time.Minute, true, "is the scheduler running? The pod is 2m old"},
		"not known, and it's a moment": {nil, 10 * time.Second, true, ""},
		"Karpenter's cluster":          {nil, 2 * time.Minute, false, ""},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", CreationTimestamp: metav1.NewTime(now.Add(-tc.old))}}
		for _, place := range []whatif.Place{{Existing: "node"}, {New: &offline.Node{Pool: "default"}}} {
			c := clusterOf((&manifest.Set{}).With(pod, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}))
			c.Lease = tc.lease
			if tc.installed {
				c.Settings.Pools = []karpenterProfile{{}}
			}
			a := &Answer{}
			c.placed(a, &offline.Report{}, place, pod, nil)
			var said []string
			for _, s := range a.Sections {
				said = append(said, s.Lines...)
			}
			if got := strings.Join(said, "\n"); tc.want == "" && got != "" || !strings.Contains(got, tc.want) {
				t.Errorf("%s: %q, want %q", name, got, tc.want)
			}
		}
	}
}
