package karpenter

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/legacy"
)

// FuzzProvisioner: any input yields either a usable pool and class, or an error.
// maxTerms is the limit of the definition of EC2NodeClass.
const maxTerms = 30

func FuzzProvisioner(f *testing.F) {
	for _, spec := range []string{
		inline + `}`, byRef + `, labels: {a: b}, weight: 7}`,
		inline + `, requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [spot]}, {key: a, operator: Gt, values: ["3"]}], limits: {resources: {cpu: 1000}}, ttlSecondsAfterEmpty: 30, ttlSecondsUntilExpired: 9}`,
		inline + `, taints: [{key: a, effect: NoSchedule}], startupTaints: [{key: a, effect: NoExecute}], consolidation: {enabled: true}, kubeletConfiguration: {maxPods: 3, evictionHard: {memory.available: 5%}}}`,
	} {
		for _, settings := range []string{
			settled + `}`, settled + `, amiSelector: {"aws::name": "x*", "aws::owners": "self,amazon"}, amiFamily: Bottlerocket}`,
			`{launchTemplate: x, subnetSelector: {aws-ids: "subnet-1,subnet-2"}}`,
			settled + `, blockDeviceMappings: [{deviceName: a, ebs: {volumeSize: 10Gi}}], tags: {a: b}, metadataOptions: {httpTokens: optional}}`,
		} {
			raw := func(k CustomKind, spec string) string {
				text, err := asUnstructured(f, k, manifest(f, k, "x", spec)).MarshalJSON()
				if err != nil {
					f.Fatal(err)
				}
				return string(text)
			}
			f.Add(raw(Provisioners, spec), raw(NodeTemplates, settings))
		}
	}
	f.Fuzz(func(t *testing.T, one, other string) {
		u, v := &unstructured.Unstructured{}, &unstructured.Unstructured{}
		if u.UnmarshalJSON([]byte(one)) != nil || v.UnmarshalJSON([]byte(other)) != nil {
			return
		}
		p, isProvisioner := Decode(u, Provisioners.New).(*legacy.Provisioner)
		template, isTemplate := Decode(v, NodeTemplates.New).(*legacy.AWSNodeTemplate)
		if !isProvisioner || !isTemplate || strings.Contains(p.Name, derivedMark) {
			return
		}
		np, nc, errs := fromProvisioner(p, template, nodeclass.Legacy{DefaultInstanceProfile: "p"})
		if len(errs) > 0 {
			return
		}
		if errs := ValidatePool(np, classKind); len(errs) > 0 {
			t.Fatalf("it makes a pool that is refused: %v", errs.ToAggregate())
		}
		if pool := PoolOf(np, classKind); pool.Unready != "" {
			t.Fatalf("it makes a pool that can't be used: %s", pool.Unready)
		}
		if len(nc.Spec.SubnetSelectorTerms) == 0 || len(nc.Spec.SubnetSelectorTerms) > maxTerms {
			t.Fatalf("it makes a class with %d terms for subnets", len(nc.Spec.SubnetSelectorTerms))
		}
	})
}
