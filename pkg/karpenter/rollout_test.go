package karpenter

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// The template is another one when something has changed that new nodes come from, and only then.
func TestTemplate(t *testing.T) {
	kind := &cloudprovider.NodeClassKind{HashKey: "hash"}
	images := func(ids ...string) (out []ec2nc.AMI) {
		for _, id := range ids {
			out = append(out, ec2nc.AMI{ID: id})
		}
		return out
	}
	for name, tc := range map[string]struct {
		pool        func(*karpv1.NodePool)
		class       func(*ec2nc.EC2NodeClass)
		inPool, out bool // changed: of the pool, of the class
	}{
		"nothing": {},
		"limits": {pool: func(np *karpv1.NodePool) {
			np.Spec.Limits, np.Generation = karpv1.Limits{}, 7
		}},
		"a label": {pool: func(np *karpv1.NodePool) { np.Spec.Template.Labels = map[string]string{"a": "b"} }, inPool: true},
		"requirements": {pool: func(np *karpv1.NodePool) {
			np.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{{Key: "a", Operator: corev1.NodeSelectorOpExists}}
		}, inPool: true},
		"spec of the class":    {class: func(c *ec2nc.EC2NodeClass) { c.Generation++ }, out: true},
		"another hash":         {class: func(c *ec2nc.EC2NodeClass) { c.Annotations = map[string]string{"hash": "2"} }, out: true},
		"another image":        {class: func(c *ec2nc.EC2NodeClass) { c.Status.AMIs = images("ami-1", "ami-2") }, out: true},
		"the order of subnets": {class: func(c *ec2nc.EC2NodeClass) { slices.Reverse(c.Status.Subnets) }},
		"free addresses":       {class: func(c *ec2nc.EC2NodeClass) { c.Status.Subnets[0].Zone = "z" }},
		"conditions":           {class: func(c *ec2nc.EC2NodeClass) { c.Status.Conditions = []status.Condition{{Type: "Ready"}} }},
	} {
		t.Run(name, func(t *testing.T) {
			np := &karpv1.NodePool{}
			nc := &ec2nc.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{UID: "u", Annotations: map[string]string{"hash": "1"}},
				Status: ec2nc.EC2NodeClassStatus{AMIs: images("ami-1"), Subnets: []ec2nc.Subnet{{ID: "a"}, {ID: "b"}}}}
			pool, of, err := Template(np, nc, kind)
			if err != nil {
				t.Fatal(err)
			}
			if tc.pool != nil {
				tc.pool(np)
			}
			if tc.class != nil {
				tc.class(nc)
			}
			pool2, of2, err := Template(np, nc, kind)
			if err != nil {
				t.Fatal(err)
			}
			if (pool != pool2) != tc.inPool || (of != of2) != tc.out {
				t.Errorf("pool %s then %s, class %s then %s", pool, pool2, of, of2)
			}
		})
	}
}

func TestRollOutRecord(t *testing.T) {
	at := time.Date(2026, 11, 25, 9, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		r      RollOut
		reason string
	}{
		"going on":     {RollOut{Template: "t", Since: at, Canaries: []string{"a"}, Launched: at}, ""},
		"failed":       {RollOut{Template: "t", Since: at, Failed: 2, Until: at, Why: "it ended"}, "CanaryFailed"},
		"proved since": {RollOut{Template: "t", Since: at, Proved: true}, ""},
		"drifts again": {RollOut{Template: "t", Since: at, Proved: true, Again: []string{"a"}}, "DriftsAgain"},
	} {
		t.Run(name, func(t *testing.T) {
			if reason, why := tc.r.Problem(); reason != tc.reason || (reason == "") != (why == "") {
				t.Errorf("%s: %s, want %s", reason, why, tc.reason)
			}
			raw, err := json.Marshal(&tc.r)
			if err != nil {
				t.Fatal(err)
			}
			np := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{objects.AnnotationRollOut: string(raw)}}}
			if got, ok := RollOutOf(np); !ok || got.Template != "t" || !got.Since.Equal(at) || got.Failed != tc.r.Failed || !got.Until.Equal(tc.r.Until) {
				t.Errorf("read %+v", got)
			}
		})
	}
	if _, ok := RollOutOf(&karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{objects.AnnotationRollOut: "{"}}}); ok {
		t.Error("what can't be read counts")
	}
}
