package karpenter

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

const (
	inlineClass = `{amiSelectorTerms: [{alias: al2023@latest}], role: r, subnetSelectorTerms: [{tags: {a: b}}], securityGroupSelectorTerms: [{tags: {a: b}}]}`
	inlinePool  = `{template: {spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: main}, requirements: []`
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
		if p := poolOf(np, classKind); p.Unready != "" {
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

func readInlined(t testing.TB, pools, classes []Inline) ([]*karpv1.NodePool, []status.Object) {
	t.Helper()
	np, nc, errs := ReadInline(shipped, nodeclass.Kind, pools, classes)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	return np, nc
}

func selecting(t testing.TB, selector string) func(map[string]string) bool {
	t.Helper()
	s, err := labels.Parse(selector)
	if err != nil {
		t.Fatal(err)
	}
	return func(of map[string]string) bool { return s.Matches(labels.Set(of)) }
}

// If only the definition of NodeClaims is installed, the pools and classes of the arguments are the only ones.
func TestPoolsOfArguments(t *testing.T) {
	api := newFakeAPI()
	for _, k := range kinds {
		api.missing[k.Kind+"List"] = k.Kind != nodeClaims.Kind
	}
	w := newWorld(t, api)
	pools, classes := readInlined(t, []Inline{inlined(t, "main", inlinePool+`}}}`)}, []Inline{inlined(t, "main", inlineClass)})
	if err := w.SetProfiles([]Profile{{Scheduler: "ours", Pools: pools, Classes: classes}}); err != nil {
		t.Fatal(err)
	}
	w.run()
	w.eventually("synced", w.Synced)
	if p := w.Problem(); p != "" {
		t.Errorf("problem %q", p)
	}
	p := w.pool("args_main")
	if p == nil || p.Unready != "" || p.NodeClass != "args_main" || len(p.Schedulers) != 0 || p.Labels[karpv1.NodePoolLabelKey] != "args_main" {
		t.Fatalf("pool %+v", p)
	}
	var list karpv1.NodePoolList
	if err := w.Client().List(w.ctx, &list); err != nil || len(list.Items) != 1 {
		t.Errorf("pools %v, %v", list.Items, err)
	}
	var claims karpv1.NodeClaimList
	if err := w.Client().List(w.ctx, &claims); err != nil {
		t.Error(err)
	}
	w.resolveAll("args_main")
	if nc := w.class("args_main"); !nc.StatusConditions().Root().IsTrue() {
		t.Errorf("status %+v", nc.GetConditions())
	}
	c, err := w.Create(w.ctx, testClaim("args-main-abc", func(c *capacity.Claim) { c.Pool, c.NodeClass, c.Labels = "args_main", "args_main", nil }))
	if err != nil {
		t.Fatal(err)
	}
	nc := &karpv1.NodeClaim{}
	if err := w.api.Get(w.ctx, client.ObjectKey{Name: c.Name}, nc); err != nil {
		t.Fatal(err)
	}
	if len(nc.OwnerReferences) > 0 {
		t.Errorf("the claim is owned by %v, and there is no such object", nc.OwnerReferences)
	}
}

func TestStatusOfPoolsOfArguments(t *testing.T) {
	w := newWorld(t, newFakeAPI())
	pools, classes := readInlined(t, []Inline{inlined(t, "main", inlinePool+`}}}`)}, []Inline{inlined(t, "main", inlineClass)})
	if err := w.SetProfiles([]Profile{{Scheduler: "ours", Pools: pools, Classes: classes}}); err != nil {
		t.Fatal(err)
	}
	w.leading()
	np := &karpv1.NodePool{}
	root := func() string {
		if err := w.Client().Get(w.ctx, client.ObjectKey{Name: "args_main"}, np); err != nil {
			t.Fatal(err)
		}
		return messagesOf(np)["NodeClassReady"]
	}
	w.eventually("it waits for its class", func() bool {
		return root() == "False NodeClassReadinessUnknown: EC2NodeClass args_main has not been resolved yet"
	})
	w.resolveAll("args_main")
	w.eventually("it is ready", func() bool { return root() == "" && np.StatusConditions().Root().IsTrue() })
	if len(w.api.patches) > 0 {
		t.Errorf("written to the API: %v", w.api.patches)
	}
}

// When a pool is removed from the arguments, its nodes stay until they are empty.
func TestPoolTakenOutOfTheArguments(t *testing.T) {
	left := karpenters("one")
	left.Labels[karpv1.NodePoolLabelKey], left.OwnerReferences = "args_main", nil
	w := newWorld(t, newFakeAPI(left)).leading()
	p := w.pool("args_main")
	if want := "nodePools main: the profiles' arguments no longer contain this pool"; p == nil || p.Unready != want {
		t.Fatalf("pool %+v, want it unready: %s", p, want)
	}
	np := &karpv1.NodePool{}
	if err := w.Client().Get(w.ctx, client.ObjectKey{Name: "args_main"}, np); err != nil {
		t.Fatal(err)
	}
	if d := np.Spec.Disruption; d.ConsolidationPolicy != "WhenEmpty" || d.ConsolidateAfter.Duration == nil || *d.ConsolidateAfter.Duration != 0 {
		t.Errorf("disruption %+v", d)
	}
	w.edit(left, func() { left.Finalizers = nil })
	if err := w.api.Delete(w.ctx, left); err != nil {
		t.Fatal(err)
	}
	w.eventually("it is forgotten with its last claim", func() bool { return w.pool("args_main") == nil })
}

func TestPoolsOfProfiles(t *testing.T) {
	teamA := testPool("a", func(np *karpv1.NodePool) { np.Labels = map[string]string{"team": "a"} })
	teamB := testPool("b", func(np *karpv1.NodePool) { np.Labels = map[string]string{"team": "b"} })
	old := provisioner(t, inline+`}`)
	old.Labels = map[string]string{"team": "a"}
	pools, classes := readInlined(t, []Inline{inlined(t, "main", inlinePool+`}}}`)}, []Inline{inlined(t, "main", inlineClass)})
	for _, tc := range []struct {
		name     string
		profiles []Profile
		want     string
	}{
		{"no profiles", nil, "a: all; b: all; provisioner_old: all"},
		{"profiles that say nothing", []Profile{{Scheduler: "x"}, {Scheduler: "y"}}, "a: all; b: all; provisioner_old: all"},
		{"one selects", []Profile{{Scheduler: "x", Selects: selecting(t, "team=a")}, {Scheduler: "y"}}, "a: all; b: [y]; provisioner_old: all"},
		{"one takes on another scheduler's pods", []Profile{{Scheduler: "x", Others: []string{"z"}, Selects: selecting(t, "team=a")}, {Scheduler: "y", Selects: selecting(t, "team=b")}},
			"a: [x z]; b: [y]; provisioner_old: [x z]"},
		{"each selects", []Profile{{Scheduler: "x", Selects: selecting(t, "team=a")}, {Scheduler: "y", Selects: selecting(t, "team=b")}}, "a: [x]; b: [y]; provisioner_old: [x]"},
		{"none selects one", []Profile{{Scheduler: "x", Selects: selecting(t, "team=a")}}, "a: all; b: NodePool b: no profile selects it (nodePoolSelector); provisioner_old: all"},
		{"one has its own", []Profile{{Scheduler: "x", Pools: pools, Classes: classes, Selects: selecting(t, "team=nobody")}, {Scheduler: "y"}},
			"a: [y]; args_main: [x]; b: [y]; provisioner_old: [y]"},
		{"both have the same", []Profile{{Scheduler: "x", Pools: pools, Classes: classes}, {Scheduler: "y", Pools: pools, Classes: classes}},
			"a: all; args_main: all; b: all; provisioner_old: all"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, newFakeAPI(teamA.DeepCopy(), teamB.DeepCopy(), testClass("default"), old.DeepCopy()))
			if err := w.SetProfiles(tc.profiles); err != nil {
				t.Fatal(err)
			}
			w.ready()
			say := func() string {
				var out []string
				for _, p := range w.Pools(noTypes) {
					whom := "all"
					if p.Unready != "" {
						whom = p.Unready
					} else if len(p.Schedulers) > 0 {
						whom = fmt.Sprint(p.Schedulers)
					}
					out = append(out, p.Name+": "+whom)
				}
				slices.Sort(out)
				return strings.Join(out, "; ")
			}
			if diff := cmp.Diff(tc.want, say()); diff != "" {
				t.Errorf("pools (-want +got):\n%s", diff)
			}
		})
	}
}

// Labels of an object may change without a change of its generation.
func TestPoolChangesHands(t *testing.T) {
	w := newWorld(t, newFakeAPI(testPool("default"), testClass("default")))
	if err := w.SetProfiles([]Profile{{Scheduler: "x", Selects: selecting(t, "team=a")}, {Scheduler: "y"}}); err != nil {
		t.Fatal(err)
	}
	w.ready()
	if got := w.pool("default").Schedulers; len(got) != 1 || got[0] != "y" {
		t.Errorf("pool of %v", got)
	}
	np := w.getPool("default")
	np.Labels = map[string]string{"team": "a"}
	if err := w.api.Update(w.ctx, np); err != nil {
		t.Fatal(err)
	}
	w.eventually("it serves both", func() bool { return len(w.pool("default").Schedulers) == 0 })
}

func TestProfilesThatContradictEachOther(t *testing.T) {
	w := newWorld(t, newFakeAPI())
	pools, classes := readInlined(t, []Inline{inlined(t, "main", inlinePool+`}}}`)}, []Inline{inlined(t, "main", inlineClass)})
	heavier, _ := readInlined(t, []Inline{inlined(t, "main", inlinePool+`}}, weight: 3}`)}, []Inline{inlined(t, "main", inlineClass)})
	err := w.SetProfiles([]Profile{{Scheduler: "x", Pools: pools, Classes: classes}, {Scheduler: "y", Pools: heavier, Classes: classes}})
	if want := `profiles "x" and "y" define nodePools "main" differently: give one of them another name`; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
