package explain

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// A reason to keep a node was written in an earlier pass: what pods, the node and the time say now is believed instead.
func TestReasonThatIsOutOfDate(t *testing.T) {
	pod := func(name, node string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PodSpec{NodeName: node}}
	}
	daemon := pod("agent", "node")
	yes := true
	daemon.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", Controller: &yes}}
	ended := pod("done", "node")
	ended.Status.Phase = corev1.PodSucceeded
	const empty = "OtherReason: the node is empty: it is removed when consolidateAfter is over, as soon as the pool's disruption budgets allow"
	for name, tc := range map[string]struct {
		kept     string
		ready    bool
		pods     []*corev1.Pod
		outdated string // empty: it isn't
	}{
		"empty, and is":                     {kept: empty, ready: true, pods: []*corev1.Pod{daemon, ended, pod("web", "another")}},
		"empty, and isn't any more":         {kept: empty, ready: true, pods: []*corev1.Pod{daemon, pod("a", "node"), pod("b", "node")}, outdated: "2 pods beside those of DaemonSets"},
		"not ready, and isn't":              {kept: "NotReady: the node isn't ready: its condition Ready isn't True"},
		"not ready, and is":                 {kept: "NotReady: the node isn't ready: it isn't initialized", ready: true, outdated: "the node is initialized and Ready now"},
		"a time that comes":                 {kept: "Young: the node is new: its first hour is over at 2026-11-27T10:00:01Z", ready: true},
		"a time that is over":               {kept: "Young: the node is new: its first hour is over at 2026-11-27T09:50:00Z", ready: true, outdated: "its time was over 10m ago"},
		"a time that has just been over":    {kept: "Young: the node is new: its first hour is over at 2026-11-27T09:59:00Z", ready: true},
		"quiet for long":                    {kept: "NotQuiet: pods came or went: consolidateAfter is over at 2026-11-27T09:40:00Z", ready: true, outdated: "its time was over 20m ago"},
		"busy until lately":                 {kept: "NotQuiet: pods came or went: consolidateAfter is over at 2026-11-27T09:50:00Z", ready: true},
		"a time that isn't the end":         {kept: "RollOut: tried at 2026-11-27T09:50:00Z", ready: true},
		"a pod that is there":               {kept: "PDB: the PodDisruptionBudget web allows no eviction of pod shop/web.0", ready: true, pods: []*corev1.Pod{pod("web.0", "node")}},
		"a pod that has gone":               {kept: "Full: there is no other place for pod shop/web, which needs more cpu than is free", ready: true, pods: []*corev1.Pod{pod("web", "another")}, outdated: "pod shop/web isn't on the node any more"},
		"a pod at the end of a clause":      {kept: "Surge: Deployment shop/web asks to be moved by a roll-out (annotation dovetail.sh/move), for pod shop/web: busy", ready: true, pods: []*corev1.Pod{pod("web", "node")}},
		"the pods of a node, without names": {kept: "Dearer: its pods would cost $0.3000/h elsewhere, and it costs $0.2000/h", ready: true},
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
		if tc.ready {
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		}
		claim := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim", Labels: map[string]string{karpv1.NodePoolLabelKey: "default"}, Annotations: map[string]string{objects.AnnotationKept: tc.kept, objects.AnnotationKeptSince: "2026-11-27T09:20:00Z"}},
			Status: karpv1.NodeClaimStatus{NodeName: "node", Conditions: conditions(karpv1.ConditionTypeLaunched, karpv1.ConditionTypeRegistered, karpv1.ConditionTypeInitialized)}}
		set := (&manifest.Set{}).With(node, claim)
		for _, p := range tc.pods {
			set = set.With(p)
		}
		a, err := clusterOf(set).Node("node")
		if err != nil {
			t.Fatal(err)
		}
		kind, text, _ := strings.Cut(tc.kept, ": ")
		counted := kind
		if tc.outdated != "" {
			counted = NodeOutOfDate
		}
		if rows := keptOf(clusterOf(set), "default"); len(rows) != 1 || rows[0][0] != counted {
			t.Errorf("%s: the pool's nodes are kept for %v, want %s", name, rows, counted)
		}
		switch {
		case !strings.Contains(a.Summary, text) || !strings.Contains(a.Summary, "(written 40m ago)"):
			t.Errorf("%s: the reason and its age are missing: %s", name, a.Summary)
		case tc.outdated == "" && (a.Kind != kind || !strings.HasPrefix(a.Summary, "is kept: ")):
			t.Errorf("%s: %s, %s", name, a.Kind, a.Summary)
		case tc.outdated != "" && (a.Kind != NodeOutOfDate || !strings.Contains(a.Summary, tc.outdated)):
			t.Errorf("%s: %s, %s; want %q", name, a.Kind, a.Summary, tc.outdated)
		}
		claim.Status.Conditions = append(claim.Status.Conditions, conditions(karpv1.ConditionTypeDrifted)...)
		if a, err = clusterOf(set).Node("node"); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(a.Sections[0].Title, "out of date"); a.Kind != NodeDrifted || got != (tc.outdated != "") {
			t.Errorf("%s, drifted: %s, %+v", name, a.Kind, a.Sections[0])
		}
	}
}
