package karpenter

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/scheduling"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
)

// launchedFrom returns a claim that was launched for the pool, with the labels of a small instance.
func launchedFrom(t *testing.T, np *karpv1.NodePool, change ...func(*karpv1.NodeClaim)) *karpv1.NodeClaim {
	t.Helper()
	nc, err := NodeClaimOf(testClaim("default-abc"), np, &Batches{})
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(nc.Labels, map[string]string{
		corev1.LabelInstanceTypeStable: "m5.large", corev1.LabelTopologyZone: "us-west-2a", karpv1.CapacityTypeLabelKey: "spot", corev1.LabelArchStable: "amd64",
	})
	for _, f := range change {
		f(nc)
	}
	return nc
}

// stamped returns the pool with its stamp, as the store writes it.
func stamped(np *karpv1.NodePool) *karpv1.NodePool {
	if np.Annotations == nil {
		np.Annotations = map[string]string{}
	}
	PoolStamp(np).Put(np.Annotations)
	return np
}

func requires(key string, op corev1.NodeSelectorOperator, values ...string) karpv1.NodeSelectorRequirementWithMinValues {
	return karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: op, Values: values}
}

// Karpenter's table of fields: which edits of a pool make its nodes drift, and why.
func TestPoolDrift(t *testing.T) {
	type change = func(np *karpv1.NodePool, t *karpv1.NodeClaimTemplate, nc *karpv1.NodeClaim)
	require := func(key string, op corev1.NodeSelectorOperator, values ...string) change {
		return func(_ *karpv1.NodePool, t *karpv1.NodeClaimTemplate, _ *karpv1.NodeClaim) {
			t.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{requires(key, op, values...)}
		}
	}
	for name, tc := range map[string]struct {
		change change
		want   cloudprovider.DriftReason
	}{
		"nothing":               {func(*karpv1.NodePool, *karpv1.NodeClaimTemplate, *karpv1.NodeClaim) {}, ""},
		"a label":               {func(_ *karpv1.NodePool, t *karpv1.NodeClaimTemplate, _ *karpv1.NodeClaim) { t.Labels["team"] = "b" }, cloudprovider.NodePoolDrifted},
		"a taint":               {func(_ *karpv1.NodePool, t *karpv1.NodeClaimTemplate, _ *karpv1.NodeClaim) { t.Spec.Taints = nil }, cloudprovider.NodePoolDrifted},
		"another zone":          {require(corev1.LabelTopologyZone, "In", "us-west-2b"), cloudprovider.RequirementsDrifted},
		"a zone by its old key": {require(corev1.LabelFailureDomainBetaZone, "In", "us-west-2b"), cloudprovider.RequirementsDrifted},
		"one zone more":         {require(corev1.LabelTopologyZone, "In", "us-west-2a", "us-west-2b"), ""},
		"not this type":         {require(corev1.LabelInstanceTypeStable, "NotIn", "m5.large"), cloudprovider.RequirementsDrifted},
		"a label of one's own":  {require("example.com/disk", "In", "fast"), cloudprovider.RequirementsDrifted},
		"a label that isn't":    {require("example.com/disk", "DoesNotExist"), ""},
		"any value":             {require("example.com/disk", "Exists"), cloudprovider.RequirementsDrifted},
		"minValues": {func(_ *karpv1.NodePool, t *karpv1.NodeClaimTemplate, _ *karpv1.NodeClaim) {
			n := 9
			t.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelInstanceTypeStable, Operator: "Exists", MinValues: &n}}
		}, ""},
		"both: the hash counts": {func(np *karpv1.NodePool, t *karpv1.NodeClaimTemplate, nc *karpv1.NodeClaim) {
			t.Labels["team"] = "b"
			require(corev1.LabelTopologyZone, "In", "us-west-2b")(np, t, nc)
		}, cloudprovider.NodePoolDrifted},
		"limits, weight, disruption": {func(np *karpv1.NodePool, _ *karpv1.NodeClaimTemplate, _ *karpv1.NodeClaim) {
			np.Spec.Limits, np.Spec.Weight, np.Spec.Disruption = nil, nil, karpv1.Disruption{}
		}, ""},
		"replicas": {func(np *karpv1.NodePool, _ *karpv1.NodeClaimTemplate, _ *karpv1.NodeClaim) {
			n := int64(3)
			np.Spec.Replicas = &n
		}, ""},
		"a label of the pool itself": {func(np *karpv1.NodePool, _ *karpv1.NodeClaimTemplate, _ *karpv1.NodeClaim) {
			np.Labels = map[string]string{"team": "b"}
		}, ""},
		"a label of the claim, by hand": {func(_ *karpv1.NodePool, _ *karpv1.NodeClaimTemplate, nc *karpv1.NodeClaim) { nc.Labels["a"] = "b" }, ""},
		"a hash of another version": {func(_ *karpv1.NodePool, t *karpv1.NodeClaimTemplate, nc *karpv1.NodeClaim) {
			t.Labels["team"] = "b"
			nc.Annotations[karpv1.NodePoolHashVersionAnnotationKey] = "v2"
		}, ""},
		"no hash": {func(_ *karpv1.NodePool, t *karpv1.NodeClaimTemplate, nc *karpv1.NodeClaim) {
			t.Labels["team"] = "b"
			delete(nc.Annotations, karpv1.NodePoolHashAnnotationKey)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			np := testPool("default")
			np.Spec.Template.Spec.Requirements = nil
			nc := launchedFrom(t, np)
			tc.change(np, &np.Spec.Template, nc)
			if got := PoolDrift(stamped(np), nc); got != tc.want {
				t.Errorf("drifted because of %q, want %q", got, tc.want)
			}
		})
	}
}

// randomTemplate changes what pools declare of their nodes.
func randomTemplate(d *rand.Rand, np *karpv1.NodePool) {
	t := &np.Spec.Template
	for range d.IntN(3) {
		t.Labels[fmt.Sprint("example.com/", d.IntN(2))] = fmt.Sprint(d.IntN(2))
		t.Spec.Taints = append(t.Spec.Taints, corev1.Taint{Key: fmt.Sprint(d.IntN(2)), Effect: corev1.TaintEffectNoSchedule})
		t.Spec.StartupTaints = append(t.Spec.StartupTaints, corev1.Taint{Key: fmt.Sprint(d.IntN(2)), Effect: corev1.TaintEffectNoExecute})
	}
	t.Spec.ExpireAfter = karpv1.MustParseNillableDuration([]string{"Never", "60m", "1h", "720h"}[d.IntN(4)])
	if d.IntN(2) == 0 {
		t.Spec.TerminationGracePeriod = &metav1.Duration{Duration: time.Duration(d.IntN(2)) * time.Minute}
	}
	d.Shuffle(len(t.Spec.Taints), func(i, j int) { t.Spec.Taints[i], t.Spec.Taints[j] = t.Spec.Taints[j], t.Spec.Taints[i] })
	t.Spec.Requirements = nil
	for range d.IntN(4) {
		key := []string{corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaZone, corev1.LabelInstanceTypeStable, "example.com/0", "example.com/size"}[d.IntN(5)]
		r := requires(key, []corev1.NodeSelectorOperator{"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"}[d.IntN(6)])
		switch r.Operator {
		case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
			for i := range 1 + d.IntN(2) {
				r.Values = append(r.Values, [][]string{{"us-west-2a", "m5.large", "0"}, {"us-west-2b", "c5.large", "1"}}[i][d.IntN(3)])
			}
		case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
			r.Values = []string{fmt.Sprint(d.IntN(4))}
		}
		t.Spec.Requirements = append(t.Spec.Requirements, r)
	}
}

// A claim is made from a random pool, and the pool becomes another one. Whether the claim has drifted is compared with what Karpenter's
// hash and Karpenter's requirements say. A pool whose requirements nothing can satisfy is left out: Karpenter's form of a contradiction
// allows nodes without the label.
func TestPoolDriftAgreesWithKarpenters(t *testing.T) {
	found := map[cloudprovider.DriftReason]int{}
	for seed := range uint64(5000) {
		d := rand.New(rand.NewPCG(seed, 3))
		before, after := testPool("default"), testPool("default")
		randomTemplate(d, before)
		if nc := d.IntN(3); nc > 0 {
			after = before.DeepCopy()
		}
		if d.IntN(2) == 0 {
			randomTemplate(d, after)
		} else {
			other := testPool("default")
			randomTemplate(d, other)
			after.Spec.Template.Spec.Requirements = other.Spec.Template.Spec.Requirements
		}
		own, err := poolRequirements(after.Spec.Template.Spec.Requirements, nil)
		if err != nil {
			t.Fatal(err)
		}
		if confusing(own) {
			continue
		}
		nc := launchedFrom(t, before, func(nc *karpv1.NodeClaim) {
			if d.IntN(2) == 0 {
				nc.Labels["example.com/size"] = fmt.Sprint(d.IntN(4))
			}
		})
		var want cloudprovider.DriftReason
		switch {
		case before.Hash() != after.Hash():
			want = cloudprovider.NodePoolDrifted
		case scheduling.NewLabelRequirements(nc.Labels).Compatible(scheduling.NewNodeSelectorRequirementsWithMinValues(after.Spec.Template.Spec.Requirements...)) != nil:
			want = cloudprovider.RequirementsDrifted
		}
		found[want]++
		if got := PoolDrift(stamped(after), nc); got != want {
			t.Fatalf("seed %d: drifted because of %q, Karpenter says %q; labels %v, requirements %v", seed, got, want, nc.Labels, after.Spec.Template.Spec.Requirements)
		}
	}
	if len(found) != 3 || found[""] < 100 || found[cloudprovider.RequirementsDrifted] < 100 || found[cloudprovider.NodePoolDrifted] < 100 {
		t.Errorf("the cases are too much alike: %v", found)
	}
}

// confusing reports whether Karpenter's form of a requirement has lost whether the label must be present: a contradiction, or NotIn together
// with something that asks for the label.
func confusing(rs capacity.Requirements) bool {
	for _, r := range rs {
		listed, excluded := r.Values()
		if r.Impossible() || excluded && len(listed) > 0 && !r.AllowsAbsent() {
			return true
		}
	}
	return false
}
