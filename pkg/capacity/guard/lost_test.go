package guard

import (
	"fmt"
	"testing"
	"time"
)

// Probes that end without a verdict, one after the other, would cost a machine a minute: the third counts as a failure.
func TestProbesWithoutAVerdictPauseInTheEnd(t *testing.T) {
	g, now := New(), time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	w := Workload{Namespace: "default", Owner: "Deployment/web"}
	key := PodKey("pool", w)
	buy := func(name string, probes ...Key) {
		g.Buy(name, Bought{Purchase: Purchase{Round: name, Workloads: []Workload{w}, Probes: probes}, Pool: "pool", Class: "class", At: now})
	}
	buy("first")
	g.Fail("first", Fault{Cause: "evicted", Workloads: []Workload{w}}, now)
	bought := 0
	for end := now.Add(time.Hour); now.Before(end); now = now.Add(time.Second) {
		if len(g.Due(now, nil)) > 0 {
			bought++
			name := fmt.Sprint("probe", bought)
			buy(name, key)
			g.End(name, now)
		}
	}
	if bought < 3 || bought > 12 {
		t.Errorf("%d probes in an hour, of which none had a verdict", bought)
	}
}
