package check

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/record"
)

// Two nodes of 2 CPUs, the first with a pod of 1 CPU. Its claim is deleted and its pod evicted: each change makes that wrong in one way.
func TestWhatIsWrongWithEmptiedNodes(t *testing.T) {
	now := &metav1.Time{Time: time.Unix(1, 0)}
	for name, tc := range map[string]struct {
		change func(pod *corev1.Pod, receiver *corev1.Node, other *karpv1.NodeClaim)
		budget string
		after  float64
		wrong  string
	}{
		"nothing": {},
		"no capacity": {change: func(_ *corev1.Pod, n *corev1.Node, _ *karpv1.NodeClaim) {
			n.Status.Allocatable[corev1.ResourceCPU] = apiresource.MustParse("500m")
		}, wrong: "no capacity for pod"},
		"the receiver isn't Ready": {change: func(_ *corev1.Pod, n *corev1.Node, _ *karpv1.NodeClaim) { n.Status.Conditions = nil }, wrong: "no capacity for pod"},
		"the receiver ends, too":   {change: func(_ *corev1.Pod, _ *corev1.Node, c *karpv1.NodeClaim) { c.DeletionTimestamp = now }, wrong: "no capacity for pod"},
		"no controller":            {change: func(p *corev1.Pod, _ *corev1.Node, _ *karpv1.NodeClaim) { p.OwnerReferences = nil }, wrong: "no controller"},
		"protected": {change: func(p *corev1.Pod, _ *corev1.Node, _ *karpv1.NodeClaim) {
			p.Annotations = map[string]string{karpv1.DoNotDisruptAnnotationKey: "true"}
		}, wrong: "asks not to be disrupted"},
		"no budget":       {budget: "0", wrong: "the budget 0 of 2"},
		"a part of nodes": {budget: "34%"},
		"dearer":          {after: 3, wrong: "$3.0000/h afterwards"},
	} {
		t.Run(name, func(t *testing.T) {
			claim := func(name string) *karpv1.NodeClaim {
				c := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{karpv1.NodePoolLabelKey: "pool"}}}
				c.Status.NodeName = "node-" + name
				c.StatusConditions().SetTrue(karpv1.ConditionTypeInitialized)
				return c
			}
			node := func(name string) *corev1.Node {
				n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: map[string]string{karpv1.NodeInitializedLabelKey: "true"}}}
				n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: apiresource.MustParse("2"), corev1.ResourcePods: apiresource.MustParse("10")}
				n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
				return n
			}
			yes := true
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "web", OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Controller: &yes}}}}
			pod.Spec.NodeName = "node-a"
			pod.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: apiresource.MustParse("1")}}}}
			receiver, other := node("node-b"), claim("b")
			if tc.change != nil {
				tc.change(pod, receiver, other)
			}
			ending, gone := claim("a"), pod.DeepCopy()
			ending.DeletionTimestamp, gone.DeletionTimestamp = now, now
			gone.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI"}}
			c := &Consolidation{Since: 5, Budget: "100%", Before: 2, After: 1}
			if tc.budget != "" {
				c.Budget = tc.budget
			}
			if tc.after > 0 {
				c.After = tc.after
			}
			for i, o := range []client.Object{claim("a"), other, node("node-a"), receiver, pod, ending, gone} {
				c.Events = append(c.Events, record.Event{Revision: uint64(i + 1), Type: watch.Modified, Object: o, At: time.Unix(int64(i), 0)})
			}
			r := &Report{}
			if err := JudgeConsolidation(t.Context(), c, r); err != nil {
				t.Fatal(err)
			}
			if found := slices.ContainsFunc(r.Problems(), func(line string) bool { return tc.wrong != "" && strings.Contains(line, tc.wrong) }); found != (tc.wrong != "") || !found && len(r.Disrupted) > 0 {
				t.Errorf("want %q, found %q", tc.wrong, r.Problems())
			}
			if r.Ended != 1 || r.Evicted != 1 {
				t.Errorf("%d nodes ended, %d pods evicted", r.Ended, r.Evicted)
			}
		})
	}
}
