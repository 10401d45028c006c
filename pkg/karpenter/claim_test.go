package karpenter

import (
	"fmt"
	"strings"
	"testing"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

func testNodeClaim(t *testing.T) *karpv1.NodeClaim {
	t.Helper()
	nc, err := NodeClaimOf(testClaim("default-abc"), testPool("default"), &Batches{})
	if err != nil {
		t.Fatal(err)
	}
	return nc
}

func TestNodeClaimOf(t *testing.T) {
	np := testPool("default")
	got := testNodeClaim(t)
	want := &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name:       "default-abc",
			Finalizers: []string{"karpenter.sh/termination"},
			Labels: map[string]string{
				"team": "a", "karpenter.sh/nodepool": "default", "karpenter.k8s.aws/ec2nodeclass": "default",
				corev1.LabelArchStable: "amd64", "example.com/tier": "silver",
			},
			Annotations: map[string]string{
				"example.com/note": "kept", "example.com/plan": "7",
				"karpenter.sh/nodepool-hash": np.Hash(), "karpenter.sh/nodepool-hash-version": karpv1.NodePoolHashVersion,
				"dovetail.sh/launch-batch": `{"token":"token-1","attempt":1,"claims":["default-abc"],"pool":"default","nodeClass":"default","capacityType":"spot","offers":[` +
					`{"type":"m5.large","zone":"us-west-2b","capacityType":"spot"},{"type":"m5.large","zone":"us-west-2a","capacityType":"spot"},` +
					`{"type":"c5.large","zone":"us-west-2a","capacityType":"spot"}],"request":"eyJUeXBlIjoiaW5zdGFudCJ9"}`,
				"dovetail.sh/planned-pods": `[{"pod":{"uid":"pod-1","namespace":"web","name":"web-1"},"class":"class-1","order":1,"group":"g"},` +
					`{"pod":{"uid":""},"owner":"owner-1","class":"class-1","order":2}]`,
				"dovetail.sh/largest-capacity": `{"cpu":4000,"memory":17179869184}`,
			},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "karpenter.sh/v1", Kind: "NodePool", Name: "default", UID: "uid-of-pool-default", BlockOwnerDeletion: ptr.To(true),
			}},
		},
		Spec: karpv1.NodeClaimSpec{
			NodeClassRef:  &karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"},
			Taints:        []corev1.Taint{{Key: "team", Value: "a", Effect: corev1.TaintEffectNoSchedule}},
			StartupTaints: []corev1.Taint{{Key: "cni", Effect: corev1.TaintEffectNoExecute}},
			Resources: karpv1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("1500m"), corev1.ResourceMemory: resource.MustParse("2Gi"),
				corev1.ResourcePods: resource.MustParse("4"), "nvidia.com/gpu": resource.MustParse("1"),
			}},
			Requirements: []karpv1.NodeSelectorRequirementWithMinValues{
				{Key: corev1.LabelArchStable, Operator: "In", Values: []string{"amd64"}},
				{Key: "example.com/tier", Operator: "In", Values: []string{"silver"}},
				{Key: "karpenter.sh/capacity-type", Operator: "In", Values: []string{"spot"}},
				{Key: corev1.LabelInstanceTypeStable, Operator: "In", Values: []string{"m5.large", "c5.large"}, MinValues: ptr.To(2)},
				{Key: corev1.LabelTopologyZone, Operator: "In", Values: []string{"us-west-2b", "us-west-2a"}},
				{Key: "karpenter.k8s.aws/ec2nodeclass", Operator: "In", Values: []string{"default"}},
				{Key: "karpenter.sh/nodepool", Operator: "In", Values: []string{"default"}},
				{Key: "team", Operator: "In", Values: []string{"a"}},
			},
			TerminationGracePeriod: np.Spec.Template.Spec.TerminationGracePeriod,
			ExpireAfter:            np.Spec.Template.Spec.ExpireAfter,
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("NodeClaim (-want +got):\n%s", diff)
	}
}

func TestClaimRoundTrip(t *testing.T) {
	want := testClaim("default-abc", func(c *capacity.Claim) {
		c.Labels = map[string]string{
			corev1.LabelArchStable: "amd64", "example.com/tier": "silver", "team": "a",
			"karpenter.sh/nodepool": "default", "karpenter.k8s.aws/ec2nodeclass": "default",
		}
	})
	got := ClaimOf(testNodeClaim(t), classKind)
	delete(got.Annotations, "karpenter.sh/nodepool-hash")
	delete(got.Annotations, "karpenter.sh/nodepool-hash-version")
	delete(got.Annotations, "example.com/note") // the pool's
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("claim (-want +got):\n%s", diff)
	}
}

func TestClaimOfSharesNothing(t *testing.T) {
	nc := testNodeClaim(t)
	before := nc.DeepCopy()
	c := ClaimOf(nc, classKind)
	c.Labels["x"], c.Annotations["x"] = "y", "y"
	c.Taints[0].Key, c.StartupTaints[0].Key = "y", "y"
	c.Requests["x"] = 1
	if diff := cmp.Diff(before, nc); diff != "" {
		t.Errorf("a change of the claim got into the object (-want +got):\n%s", diff)
	}
}

func TestClaimsOfOthers(t *testing.T) {
	t.Run("made by hand, with nothing but what is required", func(t *testing.T) {
		nc := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}
		nc.Spec.NodeClassRef = &karpv1.NodeClassReference{Name: "default"}
		want := &capacity.Claim{Name: "mine", NodeClass: "default", Order: &capacity.Order{
			Invalid: `spec.nodeClassRef.group: Unsupported value: "": supported values: "karpenter.k8s.aws"`}}
		if diff := cmp.Diff(want, ClaimOf(nc, classKind), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("claim (-want +got):\n%s", diff)
		}
	})
	t.Run("made by Karpenter, with conditions that are not ours", func(t *testing.T) {
		nc := testNodeClaim(t)
		nc.Annotations = map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}", "a": "b"}
		set := nc.StatusConditions()
		set.SetTrue(karpv1.ConditionTypeLaunched)
		set.SetTrue(karpv1.ConditionTypeRegistered)
		set.SetTrue(karpv1.ConditionTypeDrifted)
		nc.DeletionTimestamp = &metav1.Time{Time: start}
		c := ClaimOf(nc, classKind)
		if !c.Launched || !c.Registered || c.Initialized || !c.Deleting || !c.Drifted || c.LaunchBatch != nil || c.Unreadable != "" {
			t.Errorf("claim is %+v", c)
		}
		if diff := cmp.Diff(map[string]string{"a": "b"}, c.Annotations); diff != "" {
			t.Errorf("annotations for the Node (-want +got):\n%s", diff)
		}
	})
	t.Run("a record of another version is not an empty record", func(t *testing.T) {
		nc := testNodeClaim(t)
		nc.Annotations[objects.AnnotationLaunchBatch] = `{"token":"t","from":"the future"}`
		if c := ClaimOf(nc, classKind); c.LaunchBatch != nil || !strings.Contains(c.Unreadable, objects.AnnotationLaunchBatch) {
			t.Errorf("launch batch %v, unreadable %q", c.LaunchBatch, c.Unreadable)
		}
	})
}

func TestClaimRequirements(t *testing.T) {
	type req = karpv1.NodeSelectorRequirementWithMinValues
	three := req{Key: corev1.LabelInstanceTypeStable, Operator: "In", Values: []string{"a", "b", "c"}, MinValues: ptr.To(3)}
	for name, tc := range map[string]struct {
		template    []req
		labels      map[string]string
		chosen      map[string]string
		offers      []capacity.OfferKey
		want        []req
		wantRelaxed bool
	}{
		"no launch batch yet: the pool's own, by their current names": {
			template: []req{three, {Key: "beta.kubernetes.io/os", Operator: "NotIn", Values: []string{"windows"}}},
			want:     []req{three, {Key: "kubernetes.io/os", Operator: "NotIn", Values: []string{"windows"}}},
		},
		"nothing at all is an empty list, not null": {want: []req{}},
		"fewer types than minValues: it is dropped, and said": {
			template:    []req{three},
			offers:      []capacity.OfferKey{{InstanceType: "b"}, {InstanceType: "a"}},
			want:        []req{{Key: corev1.LabelInstanceTypeStable, Operator: "In", Values: []string{"b", "a"}}},
			wantRelaxed: true,
		},
		"a reservation is named": {
			offers: []capacity.OfferKey{{CapacityType: "reserved", ReservationID: "cr-1"}},
			want: []req{
				{Key: "karpenter.k8s.aws/capacity-reservation-id", Operator: "In", Values: []string{"cr-1"}},
				{Key: "karpenter.sh/capacity-type", Operator: "In", Values: []string{"reserved"}},
			},
		},
		"hardware of one's own is named, and so is that of others beside it": {
			offers: []capacity.OfferKey{{Tenancy: "dedicated"}, {}},
			want:   []req{{Key: "karpenter.k8s.aws/instance-tenancy", Operator: "In", Values: []string{"dedicated", "default"}}},
		},
		"a choice for a key of the user's own": {
			template: []req{{Key: "tier", Operator: "In", Values: []string{"gold", "silver"}}, {Key: "kubernetes.io/arch", Operator: "In", Values: []string{"amd64", "arm64"}}},
			chosen:   map[string]string{"tier": "silver", "kubernetes.io/arch": "amd64", "other": "x"},
			want: []req{
				{Key: "kubernetes.io/arch", Operator: "In", Values: []string{"amd64", "arm64"}}, {Key: "tier", Operator: "In", Values: []string{"silver"}},
			},
		},
		"a label that the offers speak of is not said twice": {
			labels: map[string]string{"failure-domain.beta.kubernetes.io/zone": "z", "team": "a"},
			offers: []capacity.OfferKey{{Zone: "z"}},
			want: []req{
				{Key: corev1.LabelTopologyZone, Operator: "In", Values: []string{"z"}},
				{Key: "team", Operator: "In", Values: []string{"a"}},
			},
		},
		"no more than the API takes": {
			template: make([]req, 100), labels: map[string]string{"team": "a"}, want: make([]req, 100),
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, relaxed := claimRequirements(tc.template, tc.labels, tc.chosen, tc.offers)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("requirements (-want +got):\n%s", diff)
			}
			if relaxed != tc.wantRelaxed {
				t.Errorf("relaxed is %v", relaxed)
			}
		})
	}
}

func TestNodeClaimOfTakesFromThePoolWhatThePlanLeavesOpen(t *testing.T) {
	nc, err := NodeClaimOf(&capacity.Claim{Name: "c", Pool: "default"}, testPool("default"), &Batches{})
	if err != nil {
		t.Fatal(err)
	}
	if nc.Labels["example.com/tier"] != "gold" {
		t.Errorf("label of an open choice is %q, want the first value", nc.Labels["example.com/tier"])
	}
	if diff := cmp.Diff(testPool("default").Spec.Template.Spec.Taints, nc.Spec.Taints); diff != "" {
		t.Errorf("taints (-want +got):\n%s", diff)
	}
	if _, ok := nc.Annotations[objects.AnnotationLaunchBatch]; ok {
		t.Error("a launch batch is recorded although there is none")
	}
}

func TestNodeClaimOfMarksRelaxedMinValues(t *testing.T) {
	c := testClaim("c", func(c *capacity.Claim) { c.LaunchBatch.Offers = c.LaunchBatch.Offers[:1] })
	nc, err := NodeClaimOf(c, testPool("default"), &Batches{})
	if err != nil {
		t.Fatal(err)
	}
	if nc.Annotations["karpenter.sh/nodeclaim-min-values-relaxed"] != "true" {
		t.Errorf("annotations %v don't say that minValues was relaxed", nc.Annotations)
	}
}

// The plan doesn't tell which keys have too few values, so no requirement of the claim may ask for more than there are.
func TestNodeClaimOfAPlanThatRelaxedMinValues(t *testing.T) {
	pool := testPool("default", func(np *karpv1.NodePool) {
		np.Spec.Template.Spec.Requirements = append(np.Spec.Template.Spec.Requirements,
			karpv1.NodeSelectorRequirementWithMinValues{Key: ec2nc.LabelInstanceFamily, Operator: corev1.NodeSelectorOpExists, MinValues: ptr.To(5)})
	})
	for relaxed, want := range map[string]int{"": 2, "true": 0} {
		nc, err := NodeClaimOf(testClaim("c", func(c *capacity.Claim) { c.Annotations[karpv1.NodeClaimMinValuesRelaxedAnnotationKey] = relaxed }), pool, &Batches{})
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		for _, r := range nc.Spec.Requirements {
			if r.MinValues != nil {
				got++
			}
		}
		if got != want {
			t.Errorf("relaxed %q: %d requirements of %v have minValues, want %d", relaxed, got, nc.Spec.Requirements, want)
		}
	}
}

func TestTheAPITakesEveryClaim(t *testing.T) {
	for name, tc := range map[string]struct {
		claim func(*capacity.Claim)
		pool  func(*karpv1.NodePool)
	}{
		"an ordinary one": {},
		"with less to choose from than minValues asks for": {claim: func(c *capacity.Claim) { c.LaunchBatch.Offers = c.LaunchBatch.Offers[:1] }},
		"without a launch batch":                           {claim: func(c *capacity.Claim) { c.LaunchBatch = nil }},
		"with nothing planned":                             {claim: func(c *capacity.Claim) { c.Slots, c.Largest, c.Requests = nil, nil, nil }},
		"in a reservation":                                 {claim: func(c *capacity.Claim) { c.LaunchBatch.Offers[0].ReservationID = "cr-0123" }},
		"of a pool without requirements":                   {claim: func(c *capacity.Claim) { c.LaunchBatch = nil }, pool: func(np *karpv1.NodePool) { np.Spec.Template.Spec.Requirements = nil }},
		"that never expires": {pool: func(np *karpv1.NodePool) {
			np.Spec.Template.Spec.ExpireAfter = karpv1.MustParseNillableDuration("Never")
		}},
		"of a pool as full as can be": {pool: func(np *karpv1.NodePool) {
			for i := range 95 {
				np.Spec.Template.Spec.Requirements = append(np.Spec.Template.Spec.Requirements, karpv1.NodeSelectorRequirementWithMinValues{Key: fmt.Sprintf("k%d", i), Operator: "Exists"})
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			pool, claim := testPool("default"), testClaim("default-abc")
			if tc.pool != nil {
				tc.pool(pool)
			}
			if tc.claim != nil {
				tc.claim(claim)
			}
			if err := PoolProblem(pool, classKind); err != nil {
				t.Fatal(err)
			}
			nc, err := NodeClaimOf(claim, pool, &Batches{})
			if err != nil {
				t.Fatal(err)
			}
			nc.SetGroupVersionKind(NodeClaims.GroupVersionKind)
			if err := acceptable(nc, ""); err != nil {
				t.Error(err)
			}
		})
	}
}
