package integration

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/record"
)

// After a scale-in half of the nodes are emptied, on a real API server with the permissions that are shipped. At the revision of each eviction
// there is room on other Ready nodes for all pods that have to move.
func TestScaleInIsConsolidated(t *testing.T) {
	t.Parallel()
	const pods, millis = 6, 1500
	e := start(t, nil)
	replicaSets(t, e.c.AdminConfig(), 200)
	pool := strings.Replace(nodePool, "{consolidationPolicy: WhenEmpty, consolidateAfter: Never}",
		"{consolidationPolicy: WhenEmptyOrUnderutilized, consolidateAfter: 0s, budgets: [{nodes: 100%}]}", 1)
	pool = strings.Replace(pool, "{name: default}", `{name: default, annotations: {dovetail.sh/restart-cost: "0s"}}`, 1)
	pool = strings.Replace(pool, "values: [c, m, r]}", `values: [c, m, r]}
        - {key: karpenter.k8s.aws/instance-cpu, operator: In, values: ["4"]}`, 1)
	e.apply(nodeClass, pool)
	recorder, err := record.Start(e.ctx, e.api, &corev1.PodList{}, &corev1.NodeList{}, &karpv1.NodeClaimList{})
	if err != nil {
		t.Fatal(err)
	}
	// Each node has one pod of both; of what stays, two fit on one.
	e.create(replicas("web", pods, fmt.Sprintf("%dm", millis), "256Mi"), replicas("side", pods, "2", "256Mi"))
	e.runOn(2*pods, pods)
	e.patch(&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}}, "side", `{"spec":{"replicas":0}}`)
	e.runOn(pods, pods/2)
	events, err := recorder.Events(e.wait())
	if err != nil {
		t.Fatal(err)
	}
	j := &evictions{T: t, millis: millis, pods: map[types.UID]*corev1.Pod{}, nodes: map[string]*corev1.Node{}, claims: map[string]*karpv1.NodeClaim{}}
	for _, event := range events {
		j.take(event)
	}
	t.Logf("%d evictions, %d pods scaled in, %d nodes emptied", j.evicted, j.scaledIn, j.emptied)
	if j.scaledIn != pods || j.emptied < pods/2 || j.evicted < j.emptied {
		t.Errorf("%d pods were deleted while their node stayed, %d nodes emptied, %d pods evicted", j.scaledIn, j.emptied, j.evicted)
	}
}

// runOn waits until so many pods run, none is being deleted, and so many nodes are left, all initialized.
func (e *env) runOn(pods, nodes int) {
	e.Helper()
	if _, err := cluster.Until(e.wait(), e.api, &karpv1.NodeClaimList{}, func(claims []*karpv1.NodeClaim) (bool, string, error) {
		for _, c := range claims {
			if !initialized(c) || c.DeletionTimestamp != nil {
				return false, "claim " + c.Name + " to be in service or gone", nil
			}
		}
		return len(claims) == nodes, fmt.Sprintf("%d nodes, not %d", nodes, len(claims)), nil
	}); err != nil {
		e.Fatal(err)
	}
	if _, err := cluster.Until(e.wait(), e.api, &corev1.PodList{}, func(list []*corev1.Pod) (bool, string, error) {
		running := 0
		for _, p := range list {
			if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
				running++
			}
		}
		return running == pods && len(list) == pods, fmt.Sprintf("%d running pods, not %d of %d", pods, running, len(list)), nil
	}); err != nil {
		e.Fatal(err)
	}
}

// evictions judges evictions of pods that request millis of CPU each, from the writes of all clients in their order.
type evictions struct {
	*testing.T
	millis                     int64
	pods                       map[types.UID]*corev1.Pod
	nodes                      map[string]*corev1.Node
	claims                     map[string]*karpv1.NodeClaim // by node
	evicted, scaledIn, emptied int
}

func (j *evictions) take(event record.Event) {
	gone := event.Type == watch.Deleted
	switch o := event.Object.(type) {
	case *corev1.Pod:
		if was := j.pods[o.UID]; was != nil && was.DeletionTimestamp == nil && (gone || o.DeletionTimestamp != nil) {
			j.judge(was, event.Revision)
		}
		if j.pods[o.UID] = o; gone {
			delete(j.pods, o.UID)
		}
	case *corev1.Node:
		if j.nodes[o.Name] = o; gone {
			delete(j.nodes, o.Name)
		}
	case *karpv1.NodeClaim:
		name := o.Status.NodeName
		if was := j.claims[name]; was != nil && was.DeletionTimestamp == nil && o.DeletionTimestamp != nil {
			j.emptied++
		}
		if j.claims[name] = o; gone {
			delete(j.claims, name)
		}
	}
}

// judge checks at an eviction that the free capacity of other nodes holds all pods that have to move.
func (j *evictions) judge(pod *corev1.Pod, revision uint64) {
	ends := func(node string) bool { return j.claims[node] != nil && j.claims[node].DeletionTimestamp != nil }
	if !ends(pod.Spec.NodeName) {
		j.scaledIn++
		return
	}
	j.evicted++
	room, moving := int64(0), int64(0)
	used := map[string]int64{}
	for _, p := range j.pods {
		used[p.Spec.NodeName] += p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue() // pods that go already among them
		if p.DeletionTimestamp == nil && (p.Spec.NodeName == "" || ends(p.Spec.NodeName)) {
			moving++
		}
	}
	for name, n := range j.nodes {
		if claim := j.claims[name]; claim == nil || claim.DeletionTimestamp != nil || !initialized(claim) || !objects.Ready(n) || len(n.Spec.Taints) > 0 {
			continue
		}
		room += (n.Status.Allocatable.Cpu().MilliValue() - used[name]) / j.millis
	}
	if room < moving {
		j.Errorf("at revision %d pod %s is evicted from node %s: %d pods have to move, other nodes have room for %d", revision, pod.Name, pod.Spec.NodeName, moving, room)
	}
}
