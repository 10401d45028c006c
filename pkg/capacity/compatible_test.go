package capacity

import (
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/scheduling"
)

// randomRequirements makes the same requirements, several for some keys, as our type and as Karpenter's. The keys are a well-known one
// and two of the user's own; one sometimes has its older name.
func randomRequirements(d *rand.Rand, minValues bool) (Requirements, scheduling.Requirements) {
	ours, theirs := Requirements{}, scheduling.NewRequirements()
	for range d.IntN(5) {
		key := oneOf(d, corev1.LabelTopologyZone, corev1.LabelFailureDomainBetaZone, "example.com/a", "example.com/b")
		op, values := randomTerm(d)
		r, err := NewRequirement(NormalLabel(key), op, values...)
		if err != nil {
			panic(err)
		}
		var least *int
		if minValues && d.IntN(3) == 0 {
			r.MinValues = 1 + d.IntN(4)
			least = ptr.To(r.MinValues)
		}
		ours = ours.And(r)
		theirs.Add(scheduling.NewRequirementWithFlexibility(key, corev1.NodeSelectorOperator(op), least, values...))
	}
	return ours, theirs
}

// canMeet reports whether a node of a pool could satisfy both the pool's and the pod's requirements: a well-known key need not be in the
// pool's requirements, a user's own key must be.
func canMeet(pool, pod Requirements) bool {
	for key, r := range pod {
		if _, ok := pool[key]; !ok && !karpv1.WellKnownLabels.Has(key) && !r.AllowsAbsent() {
			return false
		}
	}
	_, impossible := pool.Intersect(pod).Impossible()
	return !impossible
}

// TestCompatibilityAgreesWithKarpenters compares pool and pod key by key. Where the results differ ours is right, and confused describes
// the only way in which they may differ.
func TestCompatibilityAgreesWithKarpenters(t *testing.T) {
	same, differ := 0, 0
	for seed := range uint64(20000) {
		d := rand.New(rand.NewPCG(seed, 5))
		pool, karpPool := randomRequirements(d, false)
		pod, karpPod := randomRequirements(d, false)
		got, want := canMeet(pool, pod), karpPool.IsCompatible(karpPod, scheduling.AllowUndefinedWellKnownLabels)
		switch {
		case got == want:
			same++
		case confused(pool) || confused(pod):
			differ++
		default:
			t.Fatalf("pool %v, pod %v: compatible %v, Karpenter says %v", pool, pod, got, want)
		}
	}
	if same < 10000 {
		t.Errorf("only %d worlds in which both could be compared, %d in which not", same, differ)
	}
}

// confused reports whether Karpenter's form of a requirement has lost whether the label must be present. Karpenter keeps only the set of
// values. A contradiction (In (a) and In (b)) becomes DoesNotExist, which a node without the label satisfies; a NotIn together with an
// Exists or a bound becomes a NotIn, which such a node satisfies, too. For kube-scheduler the node satisfies neither.
func confused(rs Requirements) bool {
	for _, r := range rs {
		listed, excluded := r.Values()
		if r.Impossible() || excluded && len(listed) > 0 && !r.AllowsAbsent() {
			return true
		}
	}
	return false
}

// TestHighestMinValuesWins also compares minValues with Karpenter's: every intersection keeps them.
func TestHighestMinValuesWins(t *testing.T) {
	for seed := range uint64(5000) {
		d := rand.New(rand.NewPCG(seed, 6))
		a, karpA := randomRequirements(d, true)
		b, karpB := randomRequirements(d, true)
		both := a.Intersect(b)
		karpA.Add(karpB.Values()...)
		for key, r := range both {
			if want := ptr.Deref(karpA.Get(key).MinValues, 0); r.MinValues != want {
				t.Fatalf("%v and %v: minValues of %s %d, Karpenter has %d", a, b, key, r.MinValues, want)
			}
			listed, _ := r.Values()
			theirs := karpA.Get(key).Values()
			slices.Sort(theirs)
			if !slices.Equal(listed, theirs) && !r.Empty() {
				t.Fatalf("%v and %v: values of %s %v, Karpenter has %v", a, b, key, listed, theirs)
			}
		}
		if len(both) != len(karpA) {
			t.Fatalf("%v and %v: %d keys, Karpenter has %d", a, b, len(both), len(karpA))
		}
	}
}
