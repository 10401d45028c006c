package karpenter

import (
	"strings"
	"testing"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
)

func inlined(t testing.TB, name, spec string) Inline {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(spec))
	if err != nil {
		t.Fatal(err)
	}
	return Inline{Name: name, Spec: raw}
}

func TestReadInline(t *testing.T) {
	pools, classes, errs := ReadInline(shipped, nodeclass.Kind,
		[]Inline{
			inlined(t, "main", inlinePool+`}}, weight: 3, limits: {cpu: 10}}`),
			inlined(t, "other", `{template: {metadata: {labels: {team: x}}, spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: object},
				requirements: [{key: kubernetes.io/arch, operator: In, values: [arm64]}], expireAfter: Never}}, disruption: {consolidateAfter: 1m, consolidationPolicy: WhenEmpty}}`),
		},
		[]Inline{inlined(t, "main", inlineClass)})
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	main, other, class := pools[0], pools[1], classes[0].(*ec2nc.EC2NodeClass)
	if main.Name != "args_main" || main.UID != "args_main" || class.Name != "args_main" || class.UID != "args_main" {
		t.Errorf("they are called %s and %s", main.Name, class.Name)
	}
	if ref := main.Spec.Template.Spec.NodeClassRef.Name; ref != "args_main" {
		t.Errorf("the pool refers to class %s, want the one beside it", ref)
	}
	if ref := other.Spec.Template.Spec.NodeClassRef.Name; ref != "object" {
		t.Errorf("the pool refers to class %s, want the object of that name", ref)
	}
	// With the defaults that an API server would have filled in.
	want := karpv1.NodePoolSpec{
		Weight: ptr.To[int32](3), Limits: karpv1.Limits{"cpu": resource.MustParse("10")},
		Template: karpv1.NodeClaimTemplate{Spec: karpv1.NodeClaimTemplateSpec{
			NodeClassRef: &karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "args_main"},
			Requirements: []karpv1.NodeSelectorRequirementWithMinValues{}, ExpireAfter: karpv1.MustParseNillableDuration("720h"),
		}},
		Disruption: karpv1.Disruption{ConsolidateAfter: karpv1.MustParseNillableDuration("0s"), ConsolidationPolicy: "WhenEmptyOrUnderutilized", Budgets: []karpv1.Budget{{Nodes: "10%"}}},
	}
	same(t, "pool", want, main.Spec)
	if m := class.Spec.MetadataOptions; m == nil || ptr.Deref(m.HTTPPutResponseHopLimit, 0) != 1 {
		t.Errorf("metadata options %v, want the definition's default", m)
	}
	for _, np := range pools {
		if p := PoolOf(np, classKind); p.Unready != "" {
			t.Error(p.Unready)
		}
	}
}

func TestReadInlineNamesWhatIsWrong(t *testing.T) {
	good, class := inlined(t, "main", inlinePool+`}}}`), inlined(t, "main", inlineClass)
	for _, tc := range []struct {
		name           string
		pools, classes []Inline
		want           []string
	}{
		{"no name", []Inline{{Spec: good.Spec}}, nil, []string{"nodePools[0].name: Required value"}},
		{"a name that no object could have", []Inline{{Name: "A_b", Spec: good.Spec}}, nil, []string{"nodePools[0].name: Invalid value"}},
		{"the same name twice", []Inline{good, good}, []Inline{class, class}, []string{"nodePools[1].name: Duplicate value", "ec2NodeClasses[1].name: Duplicate value"}},
		{"no spec", []Inline{{Name: "x"}}, []Inline{{Name: "y"}}, []string{"nodePools[0].spec: Required value", "ec2NodeClasses[0].spec: Required value"}},
		{"a spec that is no object", []Inline{{Name: "x", Spec: []byte(`"y"`)}}, nil, []string{"nodePools[0].spec: Invalid value"}},
		{"a misspelt field", []Inline{inlined(t, "x", inlinePool+`, taint: []}}, weihgt: 3}`)}, nil,
			[]string{"nodePools[0].spec.template.spec.taint: Forbidden: there is no such field", "nodePools[0].spec.weihgt: Forbidden: there is no such field"}},
		{"a field of a class that there isn't", nil, []Inline{class, inlined(t, "x", strings.Replace(inlineClass, "{", "{ami: x, ", 1))}, []string{"ec2NodeClasses[1].spec.ami: Forbidden: there is no such field"}},
		{"a value out of bounds", []Inline{good, inlined(t, "x", inlinePool+`}}, weight: 101}`)}, nil, []string{"nodePools[1].spec.weight: Invalid value: 101"}},
		{"a value of another type", []Inline{inlined(t, "x", inlinePool+`}}, weight: heavy}`)}, nil, []string{"nodePools[0].spec.weight: Invalid value"}},
		{"a requirement that the definition's rules refuse", []Inline{inlined(t, "x", strings.Replace(inlinePool, "requirements: []", "requirements: [{key: a, operator: In}]", 1)+`}}}`)}, nil,
			[]string{"nodePools[0].spec.template.spec.requirements"}},
		{"a requirement that only we refuse", []Inline{inlined(t, "x", strings.Replace(inlinePool, "requirements: []", "requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [cheap]}]", 1)+`}}}`)}, nil,
			[]string{"nodePools[0].spec.template.spec.requirements[0].values: Unsupported value"}},
		{"a time that no duration holds", []Inline{inlined(t, "x", inlinePool+`, expireAfter: 9999999h}}}`)}, nil, []string{"nodePools[0]: Invalid value: spec.template.spec.expireAfter: "}},
		{"a class that says two things", nil, []Inline{inlined(t, "x", strings.Replace(inlineClass, "role: r", "role: r, instanceProfile: p", 1))}, []string{"ec2NodeClasses[0].spec: Invalid value", "must specify exactly one of ['role', 'instanceProfile']"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pools, classes, errs := ReadInline(shipped, nodeclass.Kind, tc.pools, tc.classes)
			if len(errs) == 0 {
				t.Fatalf("accepted as %v and %v", pools, classes)
			}
			for _, want := range tc.want {
				if got := errs.ToAggregate().Error(); !strings.Contains(got, want) {
					t.Errorf("refused with %q, want %q", got, want)
				}
			}
		})
	}
}
