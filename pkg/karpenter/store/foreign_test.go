package store

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func ofAutoMode() *karpv1.NodeClassReference {
	return &karpv1.NodeClassReference{Group: "eks.amazonaws.com", Kind: "NodeClass", Name: "default"}
}

func autoModePool(name string) *karpv1.NodePool {
	return testPool(name, func(np *karpv1.NodePool) { np.Spec.Template.Spec.NodeClassRef = ofAutoMode() })
}

func autoModeClaim(name string) *karpv1.NodeClaim {
	return &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{karpv1.NodePoolLabelKey: "general-purpose"}},
		Spec: karpv1.NodeClaimSpec{
			NodeClassRef: ofAutoMode(),
			Requirements: []karpv1.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpExists}},
		},
	}
}

// Objects of another provider under the same definitions are neither used nor changed, whether they exist from the start or are added
// later.
func TestObjectsOfOtherProvidersAreLeftAlone(t *testing.T) {
	api := newFakeAPI(testPool("default"), testClass("default"), autoModePool("general-purpose"), autoModeClaim("general-purpose-1"))
	w := newWorld(t, api)
	claims := make(chan string, 10)
	w.OnClaim(func(c *capacity.Claim, gone bool) { claims <- c.Name })
	w.leading()

	for _, o := range []client.Object{autoModePool("system"), autoModeClaim("system-1")} {
		if err := api.Create(w.ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Create(w.ctx, testClaim("ours")); err != nil {
		t.Fatal(err)
	}
	if name := <-claims; name != "ours" {
		t.Errorf("told of the claim %s first", name)
	}
	w.eventually("our pool is said to be valid", func() bool {
		np := &karpv1.NodePool{}
		return api.Get(w.ctx, client.ObjectKey{Name: "default"}, np) == nil && np.StatusConditions().Get(karpv1.ConditionTypeValidationSucceeded).IsTrue()
	})

	pools := w.Pools(func(string) ([]*capacity.InstanceType, error) { return nil, nil })
	if len(pools) != 1 || pools[0].Name != "default" {
		t.Errorf("%d pools", len(pools))
	}
	var list karpv1.NodeClaimList
	if err := w.Client().List(w.ctx, &list); err != nil || len(list.Items) != 1 || list.Items[0].Name != "ours" {
		t.Errorf("claims %v, error %v", list.Items, err)
	}
	if err := w.Client().Get(w.ctx, client.ObjectKey{Name: "system-1"}, &karpv1.NodeClaim{}); !apierrors.IsNotFound(err) {
		t.Errorf("reading another provider's claim: %v", err)
	}
	api.mu.Lock()
	defer api.mu.Unlock()
	if i := slices.IndexFunc(api.patches, func(p string) bool {
		return strings.HasPrefix(p, "general-purpose") || strings.HasPrefix(p, "system")
	}); i >= 0 {
		t.Errorf("written to: %s", api.patches[i])
	}
}

// A pool whose class is of our kind but of another group does not belong to another provider: the group is misspelt, and a condition
// says so.
func TestMisspeltGroupOfAPoolsClass(t *testing.T) {
	api := newFakeAPI(testPool("default"), testClass("default"), testPool("misspelt", func(np *karpv1.NodePool) {
		np.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: "karpenter.k8s.io", Kind: "EC2NodeClass", Name: "default"}
	}))
	w := newWorld(t, api).leading()
	const want = `False NodePoolValidationFailed: spec.template.spec.nodeClassRef.group: Unsupported value: "karpenter.k8s.io": supported values: "karpenter.k8s.aws"`
	w.eventually("the owner is told", func() bool { return conditions(w.getPool("misspelt"))["ValidationSucceeded"] == want })
	for _, p := range w.Pools(func(string) ([]*capacity.InstanceType, error) { return nil, nil }) {
		if p.Name == "misspelt" && p.Unready == "" {
			t.Error("the pool is used")
		}
	}
}

// The same mistake in a standalone claim.
func TestMisspeltGroupOfAClaimsClass(t *testing.T) {
	claim := autoModeClaim("mine")
	claim.Labels, claim.Spec.NodeClassRef = nil, &karpv1.NodeClassReference{Group: "karpenter.aws", Kind: "EC2NodeClass", Name: "default"}
	w := newWorld(t, newFakeAPI(testClass("default"), claim)).ready()
	for _, c := range w.Claims() {
		if c.Name == "mine" && c.Order != nil && strings.Contains(c.Order.Invalid, `spec.nodeClassRef.group: Unsupported value: "karpenter.aws"`) {
			return
		}
	}
	t.Errorf("the claim is not refused: %+v", w.Claims())
}

// The definitions forbid it, but an object that changes to another provider's counts as deleted.
func TestObjectThatBecomesAnotherProviders(t *testing.T) {
	api := newFakeAPI(testPool("default"), testClass("default"))
	w := newWorld(t, api).ready()
	np := &karpv1.NodePool{}
	if err := api.Get(w.ctx, client.ObjectKey{Name: "default"}, np); err != nil {
		t.Fatal(err)
	}
	np.Spec.Template.Spec.NodeClassRef = ofAutoMode()
	if err := api.Update(w.ctx, np); err != nil {
		t.Fatal(err)
	}
	w.eventually("the pool has gone", func() bool {
		return len(w.Pools(func(string) ([]*capacity.InstanceType, error) { return nil, nil })) == 0
	})
}
