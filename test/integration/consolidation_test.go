package integration

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/outside"
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
	recorder, err := record.Start(e.ctx, e.api, &corev1.PodList{}, &corev1.NodeList{}, &karpv1.NodeClaimList{}, &karpv1.NodePoolList{})
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
	j := outside.NewJudge(karpv1.DisruptionReasonUnderutilized)
	for _, event := range events {
		j.Take(event)
	}
	t.Logf("%d evictions, %d nodes emptied", j.Evicted, j.Ended)
	for _, w := range j.Wrong {
		t.Error(w)
	}
	if j.Ended < pods/2 || j.Evicted < j.Ended || j.Undecided > 0 {
		t.Errorf("%d nodes emptied, %d pods evicted, %d evictions undecided", j.Ended, j.Evicted, j.Undecided)
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
	e.allRun(pods)
}

// allRun waits until so many pods run and there are no others.
func (e *env) allRun(pods int) {
	e.Helper()
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
