package karpenter

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// With another version of Karpenter's module, hashes must not change without their version: otherwise every node would drift.
func TestHashesOfThisVersion(t *testing.T) {
	st := PoolStamp(testPool("default"))
	if got, want := st.Version+" "+st.Hash, "v3 13956927613700615719"; got != want {
		t.Errorf("pool: %s, want %s", got, want)
	}
}

// Which changes count: what only a new node can have.
func TestPoolHash(t *testing.T) {
	base := func() *karpv1.NodePool {
		return testPool("default", func(np *karpv1.NodePool) {
			np.Spec.Template.Spec.Taints = append(np.Spec.Template.Spec.Taints, corev1.Taint{Key: "other", Effect: "NoSchedule"})
		})
	}
	type change = func(*karpv1.NodePool, *karpv1.NodeClaimTemplate)
	for name, tc := range map[string]struct {
		change change
		counts bool
	}{
		"a label":         {func(_ *karpv1.NodePool, t *karpv1.NodeClaimTemplate) { t.Labels["team"] = "b" }, true},
		"an annotation":   {func(_ *karpv1.NodePool, t *karpv1.NodeClaimTemplate) { t.Annotations["new"] = "" }, true},
		"a taint":         {func(_ *karpv1.NodePool, t *karpv1.NodeClaimTemplate) { t.Spec.Taints[0].Value = "b" }, true},
		"a startup taint": {func(_ *karpv1.NodePool, t *karpv1.NodeClaimTemplate) { t.Spec.StartupTaints = nil }, true},
		"the node class":  {func(_ *karpv1.NodePool, t *karpv1.NodeClaimTemplate) { t.Spec.NodeClassRef.Name = "other" }, true},
		"expireAfter": {func(_ *karpv1.NodePool, t *karpv1.NodeClaimTemplate) {
			t.Spec.ExpireAfter = karpv1.MustParseNillableDuration("1h")
		}, true},
		"expireAfter Never": {func(_ *karpv1.NodePool, t *karpv1.NodeClaimTemplate) {
			t.Spec.ExpireAfter = karpv1.MustParseNillableDuration("Never")
		}, true},
		"expireAfter in other words": {func(_ *karpv1.NodePool, t *karpv1.NodeClaimTemplate) {
			t.Spec.ExpireAfter = karpv1.MustParseNillableDuration("2880m")
		}, false},
		"terminationGracePeriod": {func(_ *karpv1.NodePool, t *karpv1.NodeClaimTemplate) {
			t.Spec.TerminationGracePeriod = &metav1.Duration{Duration: time.Minute}
		}, true},
		"the order of taints": {func(_ *karpv1.NodePool, t *karpv1.NodeClaimTemplate) {
			t.Spec.Taints[0], t.Spec.Taints[1] = t.Spec.Taints[1], t.Spec.Taints[0]
		}, false},
		"requirements":  {func(_ *karpv1.NodePool, t *karpv1.NodeClaimTemplate) { t.Spec.Requirements = nil }, false},
		"an empty list": {func(np *karpv1.NodePool, t *karpv1.NodeClaimTemplate) { np.Spec.Disruption.Budgets = []karpv1.Budget{} }, false},
		"limits":        {func(np *karpv1.NodePool, _ *karpv1.NodeClaimTemplate) { np.Spec.Limits = nil }, false},
		"weight":        {func(np *karpv1.NodePool, _ *karpv1.NodeClaimTemplate) { np.Spec.Weight = nil }, false},
		"disruption":    {func(np *karpv1.NodePool, _ *karpv1.NodeClaimTemplate) { np.Spec.Disruption = karpv1.Disruption{} }, false},
		"the name":      {func(np *karpv1.NodePool, _ *karpv1.NodeClaimTemplate) { np.Name = "other" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := base(), base()
			tc.change(after, &after.Spec.Template)
			if got := PoolStamp(before).Hash != PoolStamp(after).Hash; got != tc.counts {
				t.Errorf("changes the hash: %v, want %v", got, tc.counts)
			}
		})
	}
}
