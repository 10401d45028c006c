package check

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
//   - No pod of another node was evicted. Pods that the Job controller deletes, because their Job has failed, are no matter of the repair.
//   - No more instances were launched than the node had pods.
func (p *Repair) judge(r *Report) {
	wrong := func(format string, args ...any) {
		r.Disrupted = append(r.Disrupted, "repair: "+fmt.Sprintf(format, args...))
	}
	if p.Unsettled != "" {
		wrong("%s", p.Unsettled)
	}
	pods, of := map[types.UID]*corev1.Pod{}, map[string]string{} // provider IDs by node
	failed, ended := p.failedJobs(), 0
	for _, e := range p.Events {
		switch o := e.Object.(type) {
		case *corev1.Node:
			of[o.Name] = o.Spec.ProviderID
		case *corev1.Pod:
			was := pods[o.UID]
			if e.Revision > p.Since && was != nil && was.DeletionTimestamp == nil && o.DeletionTimestamp != nil && !isDaemon(o) && o.Spec.NodeName != "" &&
				(evicted(o) || !failed[controller(o)]) {
				ended++
				if of[o.Spec.NodeName] != p.ProviderID {
					wrong("pod %s of node %s was evicted, which isn't unhealthy", o.Name, o.Spec.NodeName)
				}
			}
			if pods[o.UID] = o; e.Type == watch.Deleted {
				delete(pods, o.UID)
			}
		}
	}
	if p.Launched > max(1, ended) {
		wrong("%d instances were launched for a node with %d pods", p.Launched, ended)
	}
	r.Ended++
	r.Evicted += ended
}

// failedJobs returns the Jobs that failed at any time. The Job controller may delete their pods before it writes so.
func (p *Repair) failedJobs() map[types.UID]bool {
	out := map[types.UID]bool{}
	for _, e := range p.Events {
		if job, ok := e.Object.(*batchv1.Job); ok && slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
			return (c.Type == batchv1.JobFailureTarget || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue
		}) {
			out[job.UID] = true
		}
	}
	return out
}

// controller returns the UID of the object that controls the pod, or "".
func controller(p *corev1.Pod) types.UID {
	if o := metav1.GetControllerOf(p); o != nil {
		return o.UID
	}
	return ""
}
