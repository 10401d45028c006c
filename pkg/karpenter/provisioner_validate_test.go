package karpenter

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/legacy"
)

// Each case is refused by FromProvisioner, naming the field; most of them are also refused by the definition, which names the field,
// too, or its parent if a rule covers several fields.
func TestInvalidProvisioners(t *testing.T) {
	fields := newDrivenFields(t, Provisioners)
	for _, tc := range []struct {
		name string
		spec string
		want string // the field and part of the error
		api  string // the field that the definition refuses; empty: it accepts the value
	}{
		{"a label of the program's own", inline + `, labels: {karpenter.sh/provisioner-name: x}}`, "spec.labels[karpenter.sh/provisioner-name]: Forbidden", "spec.labels"},
		{"a label nobody may set", inline + `, labels: {kubernetes.io/hostname: x}}`, "spec.labels[kubernetes.io/hostname]: Forbidden", "spec.labels"},
		{"a label in Karpenter's domain", inline + `, labels: {karpenter.sh/other: x}}`, "spec.labels[karpenter.sh/other]: Forbidden", ""},
		{"a label value with a blank", inline + `, labels: {a: "b c"}}`, "spec.labels[a]: Invalid value", "spec.labels.a"},
		{"a label key that is none", inline + `, labels: {"a b": c}}`, "spec.labels[a b]: Invalid value", ""},
		{"an annotation key that is none", inline + `, annotations: {"a b": c}}`, "spec.annotations[a b]: Invalid value", ""},
		{"a taint without key", inline + `, taints: [{key: "", effect: NoSchedule}]}`, "spec.taints[0].key: Required", "spec.taints[0].key"},
		{"a taint without effect", inline + `, taints: [{key: a}]}`, "spec.taints[0].effect: Unsupported value", "spec.taints[0].effect"},
		{"a taint with another effect", inline + `, startupTaints: [{key: a, effect: Never}]}`, "spec.startupTaints[0].effect: Unsupported value", "spec.startupTaints[0].effect"},
		{"a taint value with a blank", inline + `, taints: [{key: a, value: "b c", effect: NoSchedule}]}`, "spec.taints[0].value: Invalid value", "spec.taints[0].value"},
		{"a taint in both lists", inline + `, taints: [{key: a, effect: NoSchedule}], startupTaints: [{key: a, effect: NoSchedule}]}`, "spec.startupTaints[0]: Duplicate value", ""},
		{"an operator of a later time", inline + `, requirements: [{key: a, operator: Gte, values: ["1"]}]}`, `spec.requirements[0].operator: Unsupported value: "Gte"`, "spec.requirements[0].operator"},
		{"In nothing", inline + `, requirements: [{key: a, operator: In}]}`, "spec.requirements[0].values: Required", "spec.requirements[0]"},
		{"Gt a word", inline + `, requirements: [{key: a, operator: Gt, values: [x]}]}`, "spec.requirements[0].values: Invalid value", "spec.requirements[0]"},
		{"Lt less than nothing", inline + `, requirements: [{key: a, operator: Lt, values: ["-1"]}]}`, "spec.requirements[0].values: Invalid value", "spec.requirements[0]"},
		{"Lt two numbers", inline + `, requirements: [{key: a, operator: Lt, values: ["1", "2"]}]}`, "spec.requirements[0].values: Invalid value", "spec.requirements[0]"},
		{"a value that no label has", inline + `, requirements: [{key: a, operator: In, values: ["b c"]}]}`, "spec.requirements[0].values[0]: Invalid value", ""},
		{"a requirement on the Provisioner", inline + `, requirements: [{key: karpenter.sh/provisioner-name, operator: In, values: [x]}]}`, "spec.requirements[0].key: Forbidden", ""},
		{"a requirement on the host name", inline + `, requirements: [{key: kubernetes.io/hostname, operator: Exists}]}`, "spec.requirements[0].key: Forbidden", ""},
		{"a capacity type that there isn't", inline + `, requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [cheap]}]}`, "spec.requirements[0].values: Unsupported value", ""},
		{"a startup taint with a value that is none", inline + `, startupTaints: [{key: a, value: "b c", effect: NoSchedule}]}`, "spec.startupTaints[0].value: Invalid value", "spec.startupTaints[0].value"},
		{"a taint of no time", inline + `, taints: [{key: a, effect: NoSchedule, timeAdded: yesterday}]}`, "spec.taints[0].timeAdded", "spec.taints[0].timeAdded"},
		{"a startup taint of no time", inline + `, startupTaints: [{key: a, effect: NoSchedule, timeAdded: yesterday}]}`, "spec.startupTaints[0].timeAdded", "spec.startupTaints[0].timeAdded"},
		{"two providers", `{providerRef: {name: t}, provider: ` + settled + `}}`, "spec.provider: Required value: exactly one", "spec"},
		{"no provider", `{}`, "spec.provider: Required value: exactly one", "spec"},
		{"a template of another kind", `{providerRef: {name: t, kind: EC2NodeClass}}`, "spec.providerRef.kind: Unsupported value", "spec.providerRef.kind"},
		{"a template without name", `{providerRef: {name: ""}}`, "spec.providerRef.name: Required", "spec.providerRef.name"},
		{"a template that isn't there", `{providerRef: {name: other}}`, `spec.providerRef.name: Invalid value: "other": there is no such AWSNodeTemplate`, ""},
		{"a template that is wrong itself", `{providerRef: {name: broken}}`, `spec.providerRef.name: Invalid value: "broken": AWSNodeTemplate broken: spec.amiFamily: Invalid value: "AL2": AL2 has no images for Kubernetes 1.33 and newer`, ""},
		{"ttlSecondsAfterEmpty below zero", inline + `, ttlSecondsAfterEmpty: -1}`, "spec.ttlSecondsAfterEmpty: Invalid value", "spec.ttlSecondsAfterEmpty"},
		{"ttlSecondsAfterEmpty for ever", inline + `, ttlSecondsAfterEmpty: 9000000001}`, "spec.ttlSecondsAfterEmpty: Invalid value", "spec.ttlSecondsAfterEmpty"},
		{"ttlSecondsAfterEmpty and consolidation", inline + `, ttlSecondsAfterEmpty: 30, consolidation: {enabled: true}}`, "spec.ttlSecondsAfterEmpty: Forbidden", "spec"},
		{"nodes that expire at once", inline + `, ttlSecondsUntilExpired: 0}`, "spec.ttlSecondsUntilExpired: Invalid value: 0", "spec.ttlSecondsUntilExpired"},
		{"ttlSecondsUntilExpired for ever", inline + `, ttlSecondsUntilExpired: 9223372036854775807}`, "spec.ttlSecondsUntilExpired: Invalid value", "spec.ttlSecondsUntilExpired"},
		{"a negative limit", inline + `, limits: {resources: {cpu: -1}}}`, "spec.limits.resources[cpu]: Invalid value", ""},
		{"a limit that is no quantity", inline + `, limits: {resources: {cpu: many}}}`, "spec.limits.resources.cpu", "spec.limits.resources.cpu"},
		{"weight 0", inline + `, weight: 0}`, "spec.weight: Invalid value", "spec.weight"},
		{"weight 101", inline + `, weight: 101}`, "spec.weight: Invalid value", "spec.weight"},
		{"kubelet: a runtime that is gone", inline + `, kubeletConfiguration: {containerRuntime: dockerd}}`, "spec.kubeletConfiguration.containerRuntime: Unsupported value", ""},
		{"kubelet: maxPods below zero", inline + `, kubeletConfiguration: {maxPods: -1}}`, "spec.kubeletConfiguration.maxPods: Invalid value", "spec.kubeletConfiguration.maxPods"},
		{"kubelet: podsPerCore below zero", inline + `, kubeletConfiguration: {podsPerCore: -1}}`, "spec.kubeletConfiguration.podsPerCore: Invalid value", "spec.kubeletConfiguration.podsPerCore"},
		{"kubelet: a DNS server that is no address", inline + `, kubeletConfiguration: {clusterDNS: [dns]}}`, "spec.kubeletConfiguration.clusterDNS[0]: Invalid value", ""},
		{"kubelet: reserved of something else", inline + `, kubeletConfiguration: {kubeReserved: {gpu: 1}}}`, "spec.kubeletConfiguration.kubeReserved[gpu]: Unsupported value", "spec.kubeletConfiguration.kubeReserved"},
		{"kubelet: reserved below zero", inline + `, kubeletConfiguration: {systemReserved: {cpu: "-1"}}}`, "spec.kubeletConfiguration.systemReserved[cpu]: Invalid value", "spec.kubeletConfiguration.systemReserved.cpu"},
		{"kubelet: another eviction signal", inline + `, kubeletConfiguration: {evictionHard: {cpu.available: 5%}}}`, "spec.kubeletConfiguration.evictionHard[cpu.available]: Unsupported value", "spec.kubeletConfiguration.evictionHard"},
		{"kubelet: more than all", inline + `, kubeletConfiguration: {evictionHard: {memory.available: 101%}}}`, "spec.kubeletConfiguration.evictionHard[memory.available]: Invalid value", ""},
		{"kubelet: a threshold that is no quantity", inline + `, kubeletConfiguration: {evictionHard: {memory.available: much}}}`, "spec.kubeletConfiguration.evictionHard[memory.available]: Invalid value", ""},
		{"kubelet: a soft threshold without grace", inline + `, kubeletConfiguration: {evictionSoft: {memory.available: 5%}}}`, "spec.kubeletConfiguration.evictionSoftGracePeriod[memory.available]: Required", "spec.kubeletConfiguration"},
		{"kubelet: grace without threshold", inline + `, kubeletConfiguration: {evictionSoftGracePeriod: {memory.available: 1m}}}`, "spec.kubeletConfiguration.evictionSoftGracePeriod[memory.available]: Forbidden", "spec.kubeletConfiguration"},
		{"kubelet: grace below zero", inline + `, kubeletConfiguration: {evictionSoft: {memory.available: 5%}, evictionSoftGracePeriod: {memory.available: -1m}}}`, "spec.kubeletConfiguration.evictionSoftGracePeriod[memory.available]: Invalid value", ""},
		{"kubelet: grace that is no duration", inline + `, kubeletConfiguration: {evictionSoft: {memory.available: 5%}, evictionSoftGracePeriod: {memory.available: soon}}}`, "spec.kubeletConfiguration.evictionSoftGracePeriod", ""},
		{"kubelet: evictionMaxPodGracePeriod below zero", inline + `, kubeletConfiguration: {evictionMaxPodGracePeriod: -1}}`, "spec.kubeletConfiguration.evictionMaxPodGracePeriod: Invalid value", "spec.kubeletConfiguration.evictionMaxPodGracePeriod"},
		{"kubelet: collecting above all", inline + `, kubeletConfiguration: {imageGCHighThresholdPercent: 101}}`, "spec.kubeletConfiguration.imageGCHighThresholdPercent: Invalid value", "spec.kubeletConfiguration.imageGCHighThresholdPercent"},
		{"kubelet: collecting from below nothing", inline + `, kubeletConfiguration: {imageGCLowThresholdPercent: -1}}`, "spec.kubeletConfiguration.imageGCLowThresholdPercent: Invalid value", "spec.kubeletConfiguration.imageGCLowThresholdPercent"},
		{"kubelet: collecting from above to below", inline + `, kubeletConfiguration: {imageGCHighThresholdPercent: 10, imageGCLowThresholdPercent: 20}}`, "spec.kubeletConfiguration.imageGCHighThresholdPercent: Invalid value", "spec.kubeletConfiguration"},
		{"kubelet: cpuCFSQuota is yes or no", inline + `, kubeletConfiguration: {cpuCFSQuota: maybe}}`, "spec.kubeletConfiguration.cpuCFSQuota", "spec.kubeletConfiguration.cpuCFSQuota"},
		{"consolidation is on or off", inline + `, consolidation: {enabled: often}}`, "spec.consolidation.enabled", "spec.consolidation.enabled"},
		{"more than a pool holds", inline + `, requirements: ` + manyRequirements + `}`, "spec.requirements: Too many", "spec.requirements"},
	} {
		fields.by(tc.spec)
		t.Run(tc.name, func(t *testing.T) {
			p := provisioner(t, tc.spec)
			templates := map[string]*legacy.AWSNodeTemplate{"t": nodeTemplate(t, settled+`}`), "broken": nodeTemplate(t, settled+`, amiFamily: AL2}`)}
			templates["broken"].Name = "broken"
			var template *legacy.AWSNodeTemplate
			if ref := p.Spec.ProviderRef; ref != nil {
				template = templates[ref.Name]
			}
			_, _, errs := fromProvisioner(p, template, nodeclass.Legacy{})
			if len(errs) == 0 {
				t.Fatal("accepted")
			}
			if got := errs.ToAggregate().Error(); !strings.Contains(got, tc.want) {
				t.Errorf("refused with %q, want %q", got, tc.want)
			}
			refusedByDefinition(t, Provisioners, tc.spec, tc.api)
		})
	}
	fields.all("", "provider." /* TestInvalidAWSSettings */, "providerRef.apiVersion" /* its kind counts */)
}

var manyRequirements = func() string {
	var all []string
	for i := range maxRequirements + 1 {
		all = append(all, fmt.Sprintf("{key: k%d, operator: Exists}", i))
	}
	return "[" + strings.Join(all, ", ") + "]"
}()

// refusedByDefinition checks that the definition refuses the spec in this field and in no other; if at is empty, in none.
func refusedByDefinition(t *testing.T, k CustomKind, spec, at string) {
	t.Helper()
	u := fromYAML(t, "apiVersion: "+k.GroupVersion().String()+"\nkind: "+k.Kind+"\nmetadata: {name: x}\nspec: "+spec)
	errs, unknown := refusedBy(t, u)
	var got []string
	for _, err := range errs {
		if f := strings.NewReplacer("[", ".", "]", "").Replace(err.Field); !slices.Contains(got, f) {
			got = append(got, f)
		}
	}
	if len(unknown) > 0 {
		t.Errorf("fields that the definition doesn't know: %v", unknown)
	}
	want := strings.NewReplacer("[", ".", "]", "").Replace(at)
	if at == "" && len(got) > 0 || at != "" && !slices.Contains(got, want) {
		t.Errorf("the definition refuses %v, want %q: %v", got, want, errs.ToAggregate())
	}
}

// A Provisioner that can't be decoded is refused with the name of the field, like any other object.
func TestProvisionerThatCannotBeRead(t *testing.T) {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "karpenter.sh/v1alpha5", "kind": "Provisioner", "metadata": map[string]any{"name": "old"},
		"spec": map[string]any{"ttlSecondsAfterEmpty": "30"},
	}}
	_, _, errs := fromProvisioner(Decode(u, Provisioners.New).(*legacy.Provisioner), nil, nodeclass.Legacy{})
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "spec.ttlSecondsAfterEmpty: ") {
		t.Errorf("refused with %v", errs)
	}
}

func TestLongProvisionerName(t *testing.T) {
	p := provisioner(t, inline+`}`)
	p.Name = strings.Repeat("x", 64)
	_, _, errs := fromProvisioner(p, nil, nodeclass.Legacy{})
	if len(errs) != 1 || errs[0].Field != "metadata.name" {
		t.Errorf("refused with %v, want the name to be too long for a label", errs)
	}
}
