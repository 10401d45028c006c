package check

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/dovetail-scheduler/dovetail/test/record"
)

// Repair is what is known about the time after one node became unhealthy.
type Repair struct {
	// Events are all of the world, Since is the last revision before that time.
	Events []record.Event
	Since  uint64
	// ProviderID is that of the unhealthy node's instance.
	ProviderID string
	// Launched is how many instances were launched for it.
	Launched  int
	Unsettled string
}

// judge adds to the report what is wrong with the repair:
//
//   - In the end the node has gone, and all pods run.
//   - No pod of another node was evicted.
//   - No more instances were launched than the node had pods.
func (p *Repair) judge(r *Report) {
	wrong := func(format string, args ...any) {
		r.Disrupted = append(r.Disrupted, "repair: "+fmt.Sprintf(format, args...))
	}
	if p.Unsettled != "" {
		wrong("%s", p.Unsettled)
	}
	pods, of := map[types.UID]*corev1.Pod{}, map[string]string{} // provider IDs by node
	evicted := 0
	for _, e := range p.Events {
		switch o := e.Object.(type) {
		case *corev1.Node:
			of[o.Name] = o.Spec.ProviderID
		case *corev1.Pod:
			was := pods[o.UID]
			if e.Revision > p.Since && was != nil && was.DeletionTimestamp == nil && o.DeletionTimestamp != nil && !isDaemon(o) && o.Spec.NodeName != "" {
				evicted++
				if of[o.Spec.NodeName] != p.ProviderID {
					wrong("pod %s of node %s was evicted, which isn't unhealthy", o.Name, o.Spec.NodeName)
				}
			}
			if pods[o.UID] = o; e.Type == watch.Deleted {
				delete(pods, o.UID)
			}
		}
	}
	if p.Launched > max(1, evicted) {
		wrong("%d instances were launched for a node with %d pods", p.Launched, evicted)
	}
	r.Ended++
	r.Evicted += evicted
}
