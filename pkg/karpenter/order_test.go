package karpenter

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// byHand returns a standalone NodeClaim.
func byHand(change ...func(*karpv1.NodeClaim)) *karpv1.NodeClaim {
	nc := &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "mine", UID: "uid-of-mine", Labels: map[string]string{"team": "a"}, CreationTimestamp: metav1.Time{Time: start}},
		Spec: karpv1.NodeClaimSpec{
			NodeClassRef: &karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"},
			Requirements: []karpv1.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"arm64"}}},
			Resources:    karpv1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}},
		},
	}
	for _, f := range change {
		f(nc)
	}
	return nc
}

func TestOrderOf(t *testing.T) {
	require := func(key string, op corev1.NodeSelectorOperator, values ...string) func(*karpv1.NodeClaim) {
		return func(nc *karpv1.NodeClaim) {
			nc.Spec.Requirements = append(nc.Spec.Requirements, karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: op, Values: values})
		}
	}
	for _, tt := range []struct {
		name    string
		change  func(*karpv1.NodeClaim)
		invalid string // prefix
	}{
		{"as it should be", func(*karpv1.NodeClaim) {}, ""},
		{"of a pool", func(nc *karpv1.NodeClaim) { nc.Labels["karpenter.sh/nodepool"] = "default" }, ""},
		{"as Karpenter writes it", func(nc *karpv1.NodeClaim) {
			nc.Labels["karpenter.sh/nodepool"] = "default"
			require("karpenter.sh/nodepool", "In", "default")(nc)
		}, ""},
		{"of two pools", func(nc *karpv1.NodeClaim) {
			nc.Labels["karpenter.sh/nodepool"] = "default"
			require("karpenter.sh/nodepool", "In", "other")(nc)
		}, "spec.requirements: with the labels of the claim karpenter.sh/nodepool can have no value"},
		{"at odds with itself", require(corev1.LabelArchStable, "In", "amd64"), "spec.requirements: with the labels of the claim kubernetes.io/arch can have no value"},
		{"an operator that there is not", require("team", "Like", "a"), `spec.requirements[1].operator: Unsupported value: "Like"`},
		{"a bound that is no number", require("karpenter.k8s.aws/instance-cpu", "Gt", "many"), `spec.requirements[1].values: Invalid value: "many"`},
		{"a reserved key", require("karpenter.sh/initialized", "In", "true"), "spec.requirements[1].key: Forbidden"},
		{"a taint without key", func(nc *karpv1.NodeClaim) { nc.Spec.Taints = []corev1.Taint{{Effect: "NoSchedule"}} }, "spec.taints[0].key: Required value"},
		{"a startup taint without effect", func(nc *karpv1.NodeClaim) { nc.Spec.StartupTaints = []corev1.Taint{{Key: "a"}} }, "spec.startupTaints[0].effect: Unsupported value"},
		{"no class", func(nc *karpv1.NodeClaim) { nc.Spec.NodeClassRef = nil }, "spec.nodeClassRef: Required value"},
		{"another cloud's class", func(nc *karpv1.NodeClaim) { nc.Spec.NodeClassRef.Kind = "KWOKNodeClass" }, "spec.nodeClassRef.kind: Unsupported value"},
		{"less than nothing", func(nc *karpv1.NodeClaim) { nc.Spec.Resources.Requests["memory"] = resource.MustParse("-1Gi") }, "spec.resources.requests[memory]: Invalid value"},
		{"a time that is over", func(nc *karpv1.NodeClaim) { nc.Spec.TerminationGracePeriod = &metav1.Duration{Duration: -time.Second} }, "spec.terminationGracePeriod: Invalid value"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := ClaimOf(byHand(tt.change), classKind)
			if c.Order == nil || c.Unreadable != "" || c.LaunchBatch != nil {
				t.Fatalf("claim %+v", c)
			}
			if !strings.HasPrefix(c.Order.Invalid, tt.invalid) || (tt.invalid == "") != (c.Order.Invalid == "") {
				t.Errorf("invalid because %q, want %q", c.Order.Invalid, tt.invalid)
			}
			if arch, ok := c.Order.Requirements[corev1.LabelArchStable].Single(); tt.invalid == "" && (!ok || arch != "arm64" || !c.Order.Requirements["team"].Has("a")) {
				t.Errorf("requirements %v", c.Order.Requirements)
			}
		})
	}
}

func TestWhoseClaimItIs(t *testing.T) {
	recorded := func(w capacity.LaunchBatch) func(*karpv1.NodeClaim) {
		return func(nc *karpv1.NodeClaim) {
			value, err := EncodeBatch(&w)
			if err != nil {
				t.Fatal(err)
			}
			nc.Annotations = map[string]string{objects.AnnotationLaunchBatch: value}
		}
	}
	owned := func(apiVersion, kind string) func(*karpv1.NodeClaim) {
		return func(nc *karpv1.NodeClaim) {
			nc.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: "default", UID: "u", BlockOwnerDeletion: ptr.To(true)}}
		}
	}
	for _, tt := range []struct {
		name               string
		change             func(*karpv1.NodeClaim)
		order, provisioned bool
	}{
		{"made by hand", func(*karpv1.NodeClaim) {}, true, false},
		{"made by hand, about to be launched", recorded(capacity.LaunchBatch{Token: "t", Attempt: 2, For: capacity.ForOrder}), true, false},
		{"planned", recorded(capacity.LaunchBatch{Pool: "default"}), false, false},
		{"planned, about to be launched", recorded(capacity.LaunchBatch{Token: "t"}), false, false},
		{"for a static pool", recorded(capacity.LaunchBatch{For: capacity.ForPool}), false, false},
		{"made by Karpenter for pods", owned("karpenter.sh/v1", "NodePool"), true, true},
		{"made by an older Karpenter for pods", owned("karpenter.sh/v1beta1", "NodePool"), true, true},
		{"owned by something else", owned("example.com/v1", "NodePool"), true, false},
		{"with a record that is damaged", func(nc *karpv1.NodeClaim) { nc.Annotations = map[string]string{objects.AnnotationLaunchBatch: "{"} }, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := ClaimOf(byHand(tt.change), classKind)
			if (c.Order != nil) != tt.order || c.Order != nil && c.Order.Provisioned != tt.provisioned {
				t.Errorf("order %+v", c.Order)
			}
		})
	}
}

func TestTakeAnOrder(t *testing.T) {
	w := newWorld(t, newFakeAPI(testClass("default"), byHand(func(nc *karpv1.NodeClaim) { nc.Finalizers = []string{"example.com/mine"} }))).ready()
	c := *w.Claim("mine")
	c.Largest = capacity.Resources{corev1.ResourceCPU: 64000}
	if err := w.Take(w.ctx, &c); err != nil {
		t.Fatal(err)
	}
	nc := &karpv1.NodeClaim{}
	if err := w.api.Get(w.ctx, client.ObjectKey{Name: "mine"}, nc); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"example.com/mine", "karpenter.sh/termination"}, nc.Finalizers); diff != "" {
		t.Errorf("finalizers (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"team": "a", "karpenter.k8s.aws/ec2nodeclass": "default"}, nc.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	if got := w.Claim("mine"); got.Largest[corev1.ResourceCPU] != 64000 || got.Order == nil {
		t.Errorf("what it counts for: %v, order %v", got.Largest, got.Order)
	}
	c.UID = "of an earlier one"
	if err := w.Take(w.ctx, &c); err == nil {
		t.Error("another claim of the same name was taken")
	}
	for _, err := range []error{w.RecordBatch(w.ctx, &c, capacity.LaunchBatch{}), w.RecordLaunched(w.ctx, &c, testInstance, nil, nil, nil)} {
		if err == nil || w.Claim("mine").Launched || w.Claim("mine").LaunchBatch != nil {
			t.Errorf("recorded on another claim of the same name: %v", err)
		}
	}
}

func TestRefusedOrderIsReportedOnce(t *testing.T) {
	w := newWorld(t, newFakeAPI(testClass("default"), byHand())).ready()
	for _, again := range []bool{true, true, false} {
		if err := w.RecordRefused(w.ctx, "mine", "Invalid", "spec.taints[0].key: Required value", again); err != nil {
			t.Fatal(err)
		}
	}
	nc := &karpv1.NodeClaim{}
	if err := w.api.Get(w.ctx, client.ObjectKey{Name: "mine"}, nc); err != nil {
		t.Fatal(err)
	}
	if got, want := conditions(nc)["Launched"], "False Invalid: spec.taints[0].key: Required value"; got != want {
		t.Errorf("condition %q, want %q", got, want)
	}
	if got, want := <-w.events.Events, "Warning Invalid spec.taints[0].key: Required value"; got != want {
		t.Errorf("event %q, want %q", got, want)
	}
	if n := len(w.events.Events); n > 0 {
		t.Errorf("%d more events", n)
	}
}
