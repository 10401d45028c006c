package offline

import (
	"bytes"
	"strings"
	"testing"
)

// What the cluster costs without a node is said as people would: no difference of $0.0000.
func TestWhatTheClusterCostsWithoutANode(t *testing.T) {
	for want, instead := range map[string]float64{"the cluster costs as much as now": 0.20000001, "the cluster costs $0.0500/h less": 0.15, "the cluster costs $0.1000/h more": 0.3} {
		var b bytes.Buffer
		p := &printer{w: &b}
		p.without(&Report{Without: &Without{Nodes: []string{"node-a"}, PerHour: 0.2, InsteadPerHour: instead}})
		if got := strings.TrimSpace(b.String()); !strings.HasSuffix(got, want) {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
}
