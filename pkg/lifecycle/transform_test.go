package lifecycle

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

func taint(key string, effect corev1.TaintEffect) corev1.Taint {
	return corev1.Taint{Key: key, Effect: effect}
}

func show(taints []corev1.Taint) string {
	var out []string
	for _, t := range taints {
		out = append(out, fmt.Sprintf("%s:%s", t.Key, t.Effect))
	}
	return strings.Join(out, " ")
}

func TestHideEphemeralTaints(t *testing.T) {
	all := []corev1.Taint{
		taint("node.kubernetes.io/not-ready", "NoSchedule"),
		taint("node.kubernetes.io/not-ready", "NoExecute"),
		taint("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule"),
		taint("karpenter.sh/unregistered", "NoSchedule"),
		taint("example.com/startup", "NoSchedule"),
		taint("node.kubernetes.io/unreachable", "NoSchedule"),
		taint("karpenter.sh/disrupted", "NoSchedule"),
	}
	ours := map[string]string{karpv1.NodePoolLabelKey: "default"}
	for _, tc := range []struct {
		name        string
		labels      map[string]string
		annotations map[string]string
		ready       corev1.ConditionStatus
		reason      string // of that condition
		want        string
	}{
		{
			name:   "a node of ours that is initializing shows only what must hold pods",
			labels: ours,
			ready:  corev1.ConditionUnknown,
			want:   "example.com/startup:NoSchedule node.kubernetes.io/unreachable:NoSchedule karpenter.sh/disrupted:NoSchedule",
		},
		{
			name:   "its kubelet has not been heard from yet, which is no reason to call it unreachable",
			labels: ours,
			ready:  corev1.ConditionUnknown,
			reason: "NodeStatusNeverUpdated",
			want:   "example.com/startup:NoSchedule karpenter.sh/disrupted:NoSchedule",
		},
		{
			name:   "nor before the node lifecycle controller has looked",
			labels: ours,
			want:   "example.com/startup:NoSchedule karpenter.sh/disrupted:NoSchedule",
		},
		{
			name:   "nor once the kubelet says that it isn't Ready",
			labels: ours,
			ready:  corev1.ConditionFalse,
			want:   "example.com/startup:NoSchedule karpenter.sh/disrupted:NoSchedule",
		},
		{
			name:   "an initialized node shows everything",
			labels: map[string]string{karpv1.NodePoolLabelKey: "default", karpv1.NodeInitializedLabelKey: "true"},
			want:   show(all),
		},
		{
			name:   "an initialized node that is Ready doesn't show what says otherwise",
			labels: map[string]string{karpv1.NodePoolLabelKey: "default", karpv1.NodeInitializedLabelKey: "true"},
			ready:  corev1.ConditionTrue,
			want:   show(slices.Delete(slices.Clone(all[2:]), 3, 4)), // unreachable, written late
		},
		{
			name:   "so does one that is still initializing",
			labels: ours,
			ready:  corev1.ConditionTrue,
			want:   "example.com/startup:NoSchedule karpenter.sh/disrupted:NoSchedule",
		},
		{
			name:   "one whose kubelet is back but isn't Ready shows everything: unreachable stays until not-ready is written",
			labels: map[string]string{karpv1.NodePoolLabelKey: "default", karpv1.NodeInitializedLabelKey: "true"},
			ready:  corev1.ConditionFalse,
			want:   show(all),
		},
		{
			name: "a node of somebody else shows everything",
			want: show(all),
		},
		{
			name:  "also when it is Ready",
			ready: corev1.ConditionTrue,
			want:  show(all),
		},
		{
			name:        "a node marked failed shows everything",
			labels:      ours,
			annotations: map[string]string{objects.AnnotationFailed: "registration timeout"},
			want:        show(all),
		},
		{
			name:        "an annotation that isn't ours is dropped and hides nothing",
			labels:      ours,
			annotations: map[string]string{objects.AnnotationHiddenTaints: "nonsense"},
			ready:       corev1.ConditionUnknown,
			want:        "example.com/startup:NoSchedule node.kubernetes.io/unreachable:NoSchedule karpenter.sh/disrupted:NoSchedule",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node := &corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: tc.labels, Annotations: tc.annotations},
				Spec:       corev1.NodeSpec{Taints: slices.Clone(all)},
			}
			if tc.ready != "" {
				node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: tc.ready, Reason: tc.reason}}
			}
			before := node.DeepCopy()
			got, err := HideEphemeralTaints(ownClass)(node)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, node); diff != "" {
				t.Errorf("the object handed in was changed (-before +after):\n%s", diff)
			}
			if diff := cmp.Diff(tc.want, show(got.(*corev1.Node).Spec.Taints)); diff != "" {
				t.Errorf("visible taints (-want +got):\n%s", diff)
			}
		})
	}
}

// The Node of a claim without a pool doesn't have that label.
func TestNodeOfAClaimWithoutPoolIsOurs(t *testing.T) {
	for _, tc := range []struct {
		name  string
		owner metav1.OwnerReference
		want  string
	}{
		{"its claim owns it", metav1.OwnerReference{APIVersion: "karpenter.sh/v1", Kind: "NodeClaim", Name: "mine"}, ""},
		{"something else owns it", metav1.OwnerReference{APIVersion: "cluster.x-k8s.io/v1beta1", Kind: "Machine", Name: "m"}, "node.kubernetes.io/not-ready:NoSchedule"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", OwnerReferences: []metav1.OwnerReference{tc.owner}},
				Spec: corev1.NodeSpec{Taints: []corev1.Taint{taint("node.kubernetes.io/not-ready", "NoSchedule")}}}
			out, err := HideEphemeralTaints(ownClass)(node)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, seen := range out.(*corev1.Node).Spec.Taints {
				got = append(got, seen.ToString())
			}
			if diff := cmp.Diff(tc.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("taints (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHideEphemeralTaintsLetsOthersPass(t *testing.T) {
	for _, obj := range []any{
		cache.DeletedFinalStateUnknown{Key: "n", Obj: &corev1.Node{}},
		&corev1.Pod{},
		nil,
	} {
		got, err := HideEphemeralTaints(ownClass)(obj)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(obj, got); diff != "" {
			t.Errorf("changed (-want +got):\n%s", diff)
		}
	}
}

// A node goes through random states; after each the transform must be lossless, idempotent, and equal to what it makes of a fresh copy from
// the API.
func TestHideEphemeralTaintsIsLosslessAndIdempotent(t *testing.T) {
	keys := []string{
		"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable", "node.cloudprovider.kubernetes.io/uninitialized",
		"karpenter.sh/unregistered", "karpenter.sh/disrupted", "example.com/a", "readiness.k8s.io/net",
	}
	effects := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute, corev1.TaintEffectPreferNoSchedule}
	order := func(a, b corev1.Taint) int { return strings.Compare(a.Key+string(a.Effect), b.Key+string(b.Effect)) }
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{}, Annotations: map[string]string{}}}
		if r.IntN(4) > 0 {
			node.Labels[karpv1.NodePoolLabelKey] = "default"
		}
		if r.IntN(4) == 0 {
			node.Labels[karpv1.NodeInitializedLabelKey] = "true"
		}
		if r.IntN(6) == 0 {
			node.Annotations[objects.AnnotationFailed] = "gone"
		}
		for _, k := range keys {
			for _, e := range effects {
				if r.IntN(3) == 0 {
					node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: k, Effect: e, Value: "v"})
				}
			}
		}

		once, _ := HideEphemeralTaints(ownClass)(node)
		twice, _ := HideEphemeralTaints(ownClass)(once)
		if diff := cmp.Diff(once, twice); diff != "" {
			t.Fatalf("seed %d: not idempotent (-once +twice):\n%s", seed, diff)
		}
		want, got := slices.Clone(node.Spec.Taints), slices.Clone(Taints(once.(*corev1.Node)))
		slices.SortFunc(want, order)
		slices.SortFunc(got, order)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d: taints were lost or invented (-want +got):\n%s", seed, diff)
		}

		// The decision about an object that was transformed before follows its labels as they are now.
		flipped := once.(*corev1.Node).DeepCopy()
		flipped.Labels[karpv1.NodeInitializedLabelKey] = "true"
		shown, _ := HideEphemeralTaints(ownClass)(flipped)
		got = slices.Clone(shown.(*corev1.Node).Spec.Taints)
		slices.SortFunc(got, order)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d: an initialized node hides taints (-want +got):\n%s", seed, diff)
		}
	}
}
