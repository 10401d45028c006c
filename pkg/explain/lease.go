package explain

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Lease is that of the scheduler's leader election.
type Lease struct {
	Name    string // with its namespace
	Renewed time.Time
}

// silentFor is how long ago the scheduler has renewed its Lease, or looked at a pod, if it probably doesn't run: leases last 15 s by default.
const silentFor = time.Minute

// schedulerRuns adds what a pod that would get a place waits for, if the scheduler doesn't run. Where its configuration isn't known it may not be installed:
// then nothing is asked.
func schedulerRuns(c *Cluster, a *Answer, pod *corev1.Pod) {
	switch l := c.Lease; {
	case l != nil && c.Now.Sub(l.Renewed) > silentFor:
		a.section("What to do", fmt.Sprintf("start the scheduler: its Lease %s was last renewed %s ago, so that it doesn't run or doesn't reach the API server", l.Name, c.ago(l.Renewed)))
	case l == nil && len(c.Settings.Pools) > 0 && !pod.CreationTimestamp.IsZero() && c.Now.Sub(pod.CreationTimestamp.Time) > silentFor:
		a.section("What to do", "is the scheduler running? The pod is "+c.ago(pod.CreationTimestamp.Time)+" old, and the scheduler's Lease wasn't read")
	}
}
