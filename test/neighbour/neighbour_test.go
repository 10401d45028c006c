package main

import (
	"testing"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/record"
)

func TestDisturbances(t *testing.T) {
	claim := func(name string, change func(*karpv1.NodeClaim)) *karpv1.NodeClaim {
		c := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
		change(c)
		return c
	}
	quiet := claim("quiet", func(c *karpv1.NodeClaim) { c.StatusConditions().SetTrue(karpv1.ConditionTypeConsolidatable) })
	drifted := claim("drifted", func(c *karpv1.NodeClaim) {
		c.StatusConditions().SetTrueWithReason(karpv1.ConditionTypeDrifted, "AMIDrift", "AMIDrift")
	})
	leaving := claim("leaving", func(c *karpv1.NodeClaim) { c.DeletionTimestamp = &metav1.Time{} })
	disrupted := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "disrupted"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: karpv1.DisruptedTaintKey}}}}
	got := disturbances([]record.Event{
		{Type: watch.Modified, Object: quiet}, {Type: watch.Modified, Object: drifted}, {Type: watch.Modified, Object: drifted},
		{Type: watch.Modified, Object: disrupted}, {Type: watch.Modified, Object: leaving}, {Type: watch.Deleted, Object: leaving},
		{Type: watch.Added, Object: claim("new", func(*karpv1.NodeClaim) {})},
	})
	want := []string{"claim drifted is Drifted: AMIDrift", "node disrupted is being disrupted", "claim leaving is being deleted", "claim leaving is gone", "claim new was created"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestWrongStates(t *testing.T) {
	hashes := func(pool, class string) map[string]string {
		return map[string]string{
			karpv1.NodePoolHashAnnotationKey: pool, karpv1.NodePoolHashVersionAnnotationKey: "v1",
			ec2nc.AnnotationEC2NodeClassHash: class, ec2nc.AnnotationEC2NodeClassHashVersion: "v1", ec2nc.AnnotationInstanceProfile: "profile",
		}
	}
	st := func() *state {
		return &state{
			claims: map[types.UID]*karpv1.NodeClaim{"u": {
				ObjectMeta: metav1.ObjectMeta{Name: "c", Labels: map[string]string{karpv1.NodePoolLabelKey: "p"}, Annotations: hashes("1", "2")},
				Status:     karpv1.NodeClaimStatus{NodeName: "n", ProviderID: "aws:///a/i-1"},
			}},
			nodes: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{ProviderID: "aws:///a/i-1"}}},
			pools: map[string]*karpv1.NodePool{"p": {ObjectMeta: metav1.ObjectMeta{Name: "p", Annotations: hashes("1", "")}}},
			class: &ec2nc.EC2NodeClass{
				ObjectMeta: metav1.ObjectMeta{Annotations: hashes("", "2")}, Status: ec2nc.EC2NodeClassStatus{InstanceProfile: "profile"},
			},
			instances: []string{"i-1"},
		}
	}
	for name, tc := range map[string]struct {
		change func(*state)
		want   int
	}{
		"all right":           {func(*state) {}, 0},
		"no node":             {func(st *state) { st.nodes = nil }, 1},
		"no instance":         {func(st *state) { st.instances = nil }, 1},
		"no pool":             {func(st *state) { st.pools = nil }, 1},
		"pool's hash differs": {func(st *state) { st.pools["p"].Annotations[karpv1.NodePoolHashAnnotationKey] = "3" }, 1},
		"class has no hash":   {func(st *state) { st.class.Annotations = nil }, 2},
		"another profile":     {func(st *state) { st.class.Status.InstanceProfile = "other" }, 1},
		"claim has no notes":  {func(st *state) { st.claims["u"].Annotations = nil }, 5},
	} {
		s := st()
		tc.change(s)
		if got := s.wrong(); len(got) != tc.want {
			t.Errorf("%s: %d faults: %q", name, len(got), got)
		}
	}
}
