package karpenter

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

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
