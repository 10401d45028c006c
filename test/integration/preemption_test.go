package integration

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
)

func priorityClass(name string, value int32) *schedulingv1.PriorityClass {
	return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
}

func priority(class string) podOpt { return func(p *corev1.Pod) { p.Spec.PriorityClassName = class } }

// quick gives a pod a short termination grace period.
func quick(p *corev1.Pod) {
	grace := int64(1)
	p.Spec.TerminationGracePeriodSeconds = &grace
}

// ending waits until only n pods of the application are not being deleted.
func (e *env) ending(app string, n int) {
	e.Helper()
	_, err := cluster.Until(e.wait(), e.api, &corev1.PodList{}, func(pods []*corev1.Pod) (bool, string, error) {
		left := 0
		for _, p := range pods {
			if p.DeletionTimestamp == nil {
				left++
			}
		}
		return left <= n, fmt.Sprintf("%d pods of %s to be left (there are %d)", n, app, left), nil
	}, labelled{app})
	if err != nil {
		e.Fatal(err)
	}
}

// oneNode restricts the pool to instances with four CPUs.
const oneNode = `      requirements:
        - {key: karpenter.k8s.aws/instance-cpu, operator: In, values: ["4"]}
`

// Where a node can be launched, no pod is evicted. Where the pool is at its limit, preemption works as usual, and no node is launched
// for what preemption frees. Critical pods don't wait for nodes.
func TestPreemption(t *testing.T) {
	t.Parallel()
	e := start(t, nil)
	small := strings.Replace(nodePool, "      requirements:\n", oneNode, 1)
	e.apply(nodeClass, strings.Replace(small, "  disruption:", "  limits: {nodes: \"2\"}\n  disruption:", 1))
	e.create(priorityClass("high", 1000))

	e.pods("low", 3, "1", "256Mi", quick)
	e.running("low", 3)
	if n := e.launches(); n != 1 {
		t.Fatalf("%d launches for what fits one node", n)
	}
	e.pods("high", 3, "1", "256Mi", quick, priority("high"))
	e.running("high", 3)
	if n := len(e.podsOf("low")); n != 3 || e.launches() != 2 {
		t.Errorf("%d of 3 pods of low priority left, %d launches: a machine was to be bought and nobody evicted", n, e.launches())
	}

	e.pods("more", 2, "1", "256Mi", quick, priority("high"))
	e.running("more", 2)
	e.ending("low", 1)
	if n := e.launches(); n != 2 {
		t.Errorf("%d launches, the pool may have 2 nodes", n)
	}

	// The limit is removed, so a node could be launched again, but a critical pod preempts the last one.
	e.apply(small)
	e.pods("critical", 1, "1", "256Mi", quick, priority("system-node-critical"))
	e.running("critical", 1)
	e.ending("low", 0)
	if n := e.launches(); n != 2 {
		t.Errorf("%d launches: a critical pod waited for a machine", n)
	}
}

// When the limit allows less than all pending pods need, pods of higher priority get it.
func TestHigherPrioritiesGetWhatTheLimitAllows(t *testing.T) {
	t.Parallel()
	e := start(t, func(s *setting) { s.idle = true })
	small := strings.Replace(nodePool, "      requirements:\n", oneNode, 1)
	e.apply(nodeClass, strings.Replace(small, "  disruption:", "  limits: {nodes: \"1\"}\n  disruption:", 1))
	e.create(priorityClass("high", 1000))
	e.pods("low", 3, "1", "256Mi")
	e.pods("high", 3, "1", "256Mi", priority("high"))
	e.run()
	e.running("high", 3)
	e.eventOf("low-0", "FailedProvisioning")
	if n := e.launches(); n != 1 {
		t.Errorf("%d launches, the pool may have 1 node", n)
	}
}
