package karpenter

import (
	"context"
	"strings"
	"testing"

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

func TestPoolOf(t *testing.T) {
	got := PoolOf(testPool("default"), classKind)
	want := &capacity.Pool{
		Name: "default", Weight: 7, NodeClass: "default",
		Labels:        map[string]string{"team": "a", "karpenter.sh/nodepool": "default", "karpenter.k8s.aws/ec2nodeclass": "default"},
		Taints:        []corev1.Taint{{Key: "team", Value: "a", Effect: corev1.TaintEffectNoSchedule}},
		StartupTaints: []corev1.Taint{{Key: "cni", Effect: corev1.TaintEffectNoExecute}},
		Limits:        capacity.Resources{corev1.ResourceCPU: 100_000, capacity.ResourceNodes: 9},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(capacity.Pool{}, "Requirements")); diff != "" {
		t.Errorf("pool (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{
		"team":                           "team in (a)",
		"karpenter.sh/nodepool":          "karpenter.sh/nodepool in (default)",
		"karpenter.k8s.aws/ec2nodeclass": "karpenter.k8s.aws/ec2nodeclass in (default)",
		corev1.LabelInstanceTypeStable:   "node.kubernetes.io/instance-type in (c5.large,m5.large,m5.xlarge)",
		corev1.LabelArchStable:           "kubernetes.io/arch in (amd64)",
		"example.com/tier":               "example.com/tier in (gold,silver)",
	}, valuesOf(got.Requirements)); diff != "" {
		t.Errorf("requirements (-want +got):\n%s", diff)
	}
	if n := got.Requirements[corev1.LabelInstanceTypeStable].MinValues; n != 2 {
		t.Errorf("minValues %d, want 2", n)
	}
}

func valuesOf(rs capacity.Requirements) map[string]string {
	out := map[string]string{}
	for key, r := range rs {
		out[key] = r.String()
	}
	return out
}

func TestPoolRequirements(t *testing.T) {
	type req = karpv1.NodeSelectorRequirementWithMinValues
	for name, tc := range map[string]struct {
		requirements []req
		labels       map[string]string
		want         map[string]string
		wantMin      int
	}{
		"In":           {requirements: []req{{Key: "k", Operator: "In", Values: []string{"b", "a"}}}, want: map[string]string{"k": "k in (a,b)"}},
		"NotIn":        {requirements: []req{{Key: "k", Operator: "NotIn", Values: []string{"a"}}}, want: map[string]string{"k": "k not in (a)"}},
		"Exists":       {requirements: []req{{Key: "k", Operator: "Exists"}}, want: map[string]string{"k": "k exists"}},
		"DoesNotExist": {requirements: []req{{Key: "k", Operator: "DoesNotExist"}}, want: map[string]string{"k": "k does not exist"}},
		"Gt":           {requirements: []req{{Key: "k", Operator: "Gt", Values: []string{"4"}}}, want: map[string]string{"k": "k >= 5"}},
		"Lt":           {requirements: []req{{Key: "k", Operator: "Lt", Values: []string{"4"}}}, want: map[string]string{"k": "k <= 3"}},
		"Gte":          {requirements: []req{{Key: "k", Operator: "Gte", Values: []string{"4"}}}, want: map[string]string{"k": "k >= 4"}},
		"Lte":          {requirements: []req{{Key: "k", Operator: "Lte", Values: []string{"4"}}}, want: map[string]string{"k": "k <= 4"}},
		"several entries of a key are intersected and the highest minValues wins": {
			requirements: []req{
				{Key: "k", Operator: "In", Values: []string{"a", "b", "c"}, MinValues: ptr.To(1)},
				{Key: "k", Operator: "NotIn", Values: []string{"b"}, MinValues: ptr.To(2)},
			},
			want: map[string]string{"k": "k in (a,c)"}, wantMin: 2,
		},
		"older names of a key mean the current one, in labels as well": {
			requirements: []req{{Key: "failure-domain.beta.kubernetes.io/zone", Operator: "In", Values: []string{"a", "b"}}},
			labels:       map[string]string{"topology.ebs.csi.aws.com/zone": "b"},
			want:         map[string]string{corev1.LabelTopologyZone: corev1.LabelTopologyZone + " in (b)"},
		},
		"no requirement at all: nothing is added by default": {want: map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := poolRequirements(tc.requirements, tc.labels)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, valuesOf(got)); diff != "" {
				t.Errorf("requirements (-want +got):\n%s", diff)
			}
			if n := got["k"].MinValues; n != tc.wantMin {
				t.Errorf("minValues %d, want %d", n, tc.wantMin)
			}
		})
	}
}

func TestASingleValueOfAUsersOwnKeyIsALabelOfEveryNode(t *testing.T) {
	np := testPool("p", func(np *karpv1.NodePool) {
		np.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{
			{Key: "example.com/only", Operator: "In", Values: []string{"x"}},
			{Key: "example.com/two", Operator: "In", Values: []string{"x", "y"}},
			{Key: "example.com/any", Operator: "Exists"},
			{Key: corev1.LabelArchStable, Operator: "In", Values: []string{"arm64"}},
		}
	})
	want := map[string]string{"team": "a", "example.com/only": "x", "karpenter.sh/nodepool": "p", "karpenter.k8s.aws/ec2nodeclass": "default"}
	if diff := cmp.Diff(want, PoolOf(np, classKind).Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
}

// TestInvalidPools validates one invalid value after the other. None of these pools is used; everything that Karpenter's own runtime
// validation refuses is refused here, too.
func TestInvalidPools(t *testing.T) {
	requirement := func(r karpv1.NodeSelectorRequirementWithMinValues) func(*karpv1.NodePool) {
		return func(np *karpv1.NodePool) {
			np.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{{Key: "ok", Operator: "Exists"}, r}
		}
	}
	label := func(key, value string) func(*karpv1.NodePool) {
		return func(np *karpv1.NodePool) { np.Spec.Template.Labels = map[string]string{key: value} }
	}
	taint := func(taints ...corev1.Taint) func(*karpv1.NodePool) {
		return func(np *karpv1.NodePool) { np.Spec.Template.Spec.Taints = taints }
	}
	budget := func(b karpv1.Budget) func(*karpv1.NodePool) {
		return func(np *karpv1.NodePool) { np.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "10%"}, b} }
	}
	long := strings.Repeat("x", 64)
	const reqs = "spec.template.spec.requirements[1]."
	for name, tc := range map[string]struct {
		change func(*karpv1.NodePool)
		want   string
	}{
		"label of the pool itself":     {label("karpenter.sh/nodepool", "x"), "spec.template.metadata.labels[karpenter.sh/nodepool]"},
		"label in Karpenter's domain":  {label("karpenter.sh/registered", "true"), "spec.template.metadata.labels[karpenter.sh/registered]"},
		"label in a domain below it":   {label("x.karpenter.sh/y", "true"), "spec.template.metadata.labels[x.karpenter.sh/y]"},
		"label in the AWS domain":      {label("karpenter.k8s.aws/mine", "true"), "spec.template.metadata.labels[karpenter.k8s.aws/mine]"},
		"hostname label":               {label("kubernetes.io/hostname", "x"), "spec.template.metadata.labels[kubernetes.io/hostname]"},
		"label key that is no key":     {label("a b", "x"), "spec.template.metadata.labels[a b]"},
		"label value too long":         {label("a", long), "spec.template.metadata.labels[a]"},
		"taint without key":            {taint(corev1.Taint{Effect: "NoSchedule"}), "spec.template.spec.taints[0].key"},
		"taint key that is no key":     {taint(corev1.Taint{Key: "a b", Effect: "NoSchedule"}), "spec.template.spec.taints[0].key"},
		"taint value that is no value": {taint(corev1.Taint{Key: "a", Value: "a b", Effect: "NoSchedule"}), "spec.template.spec.taints[0].value"},
		"taint with unknown effect":    {taint(corev1.Taint{Key: "a", Effect: "NoFun"}), "spec.template.spec.taints[0].effect"},
		"taint without effect":         {taint(corev1.Taint{Key: "a"}), "spec.template.spec.taints[0].effect"},
		"the same taint twice": {
			taint(corev1.Taint{Key: "a", Effect: "NoSchedule"}, corev1.Taint{Key: "a", Value: "v", Effect: "NoSchedule"}),
			"spec.template.spec.taints[1]",
		},
		"a taint that is a startup taint as well": {
			func(np *karpv1.NodePool) { np.Spec.Template.Spec.StartupTaints = np.Spec.Template.Spec.Taints },
			"spec.template.spec.startupTaints[0]",
		},
		"requirement on the pool's name":       {requirement(karpv1.NodeSelectorRequirementWithMinValues{Key: "karpenter.sh/nodepool", Operator: "In", Values: []string{"x"}}), reqs + "key"},
		"requirement on a reserved key":        {requirement(karpv1.NodeSelectorRequirementWithMinValues{Key: "karpenter.sh/initialized", Operator: "Exists"}), reqs + "key"},
		"requirement without key":              {requirement(karpv1.NodeSelectorRequirementWithMinValues{Operator: "Exists"}), reqs + "key"},
		"unknown operator":                     {requirement(karpv1.NodeSelectorRequirementWithMinValues{Key: "k", Operator: "Like", Values: []string{"x"}}), reqs + "operator"},
		"no operator":                          {requirement(karpv1.NodeSelectorRequirementWithMinValues{Key: "k"}), reqs + "operator"},
		"In without values":                    {requirement(karpv1.NodeSelectorRequirementWithMinValues{Key: "k", Operator: "In"}), reqs + "values"},
		"Exists with values":                   {requirement(karpv1.NodeSelectorRequirementWithMinValues{Key: "k", Operator: "Exists", Values: []string{"x"}}), reqs + "values"},
		"Gt without a value":                   {requirement(karpv1.NodeSelectorRequirementWithMinValues{Key: "k", Operator: "Gt"}), reqs + "values"},
		"Gt with two values":                   {requirement(karpv1.NodeSelectorRequirementWithMinValues{Key: "k", Operator: "Gt", Values: []string{"1", "2"}}), reqs + "values"},
		"Lt with a word":                       {requirement(karpv1.NodeSelectorRequirementWithMinValues{Key: "k", Operator: "Lt", Values: []string{"x"}}), reqs + "values"},
		"Gte with a negative number":           {requirement(karpv1.NodeSelectorRequirementWithMinValues{Key: "k", Operator: "Gte", Values: []string{"-1"}}), reqs + "values"},
		"Lte with a number beyond all":         {requirement(karpv1.NodeSelectorRequirementWithMinValues{Key: "k", Operator: "Lte", Values: []string{"99999999999999999999"}}), reqs + "values"},
		"a value that can't be a label's":      {requirement(karpv1.NodeSelectorRequirementWithMinValues{Key: "k", Operator: "In", Values: []string{"ok", "a b"}}), reqs + "values[1]"},
		"a capacity type that does not exist":  {requirement(karpv1.NodeSelectorRequirementWithMinValues{Key: "karpenter.sh/capacity-type", Operator: "In", Values: []string{"cheap"}}), reqs + "values"},
		"a tenancy that does not exist":        {requirement(karpv1.NodeSelectorRequirementWithMinValues{Key: "karpenter.k8s.aws/instance-tenancy", Operator: "In", Values: []string{"host"}}), reqs + "values"},
		"minValues above the number of values": {requirement(karpv1.NodeSelectorRequirementWithMinValues{Key: "k", Operator: "In", Values: []string{"a"}, MinValues: ptr.To(2)}), reqs + "minValues"},
		"minValues of values that don't exist": {requirement(karpv1.NodeSelectorRequirementWithMinValues{Key: "karpenter.sh/capacity-type", Operator: "In", Values: []string{"spot", "cheap"}, MinValues: ptr.To(2)}), reqs + "minValues"},
		"minValues of nothing":                 {requirement(karpv1.NodeSelectorRequirementWithMinValues{Key: "k", Operator: "Exists", MinValues: ptr.To(0)}), reqs + "minValues"},
		"minValues beyond the API's bound":     {requirement(karpv1.NodeSelectorRequirementWithMinValues{Key: "k", Operator: "Exists", MinValues: ptr.To(51)}), reqs + "minValues"},
		"more requirements than a claim may have": {func(np *karpv1.NodePool) {
			np.Spec.Template.Spec.Requirements = make([]karpv1.NodeSelectorRequirementWithMinValues, 101)
		}, "spec.template.spec.requirements: "},
		"an annotation that is none": {func(np *karpv1.NodePool) {
			np.Spec.Template.Annotations = map[string]string{"a b": ""}
		}, "spec.template.metadata.annotations"},
		"node class whose name no label can hold": {func(np *karpv1.NodePool) { np.Spec.Template.Spec.NodeClassRef.Name = strings.Repeat("a", 64) }, "spec.template.spec.nodeClassRef.name"},

		"no node class":               {func(np *karpv1.NodePool) { np.Spec.Template.Spec.NodeClassRef = nil }, "spec.template.spec.nodeClassRef"},
		"node class without name":     {func(np *karpv1.NodePool) { np.Spec.Template.Spec.NodeClassRef.Name = "" }, "spec.template.spec.nodeClassRef.name"},
		"node class of another cloud": {func(np *karpv1.NodePool) { np.Spec.Template.Spec.NodeClassRef.Group = "karpenter.azure.com" }, "spec.template.spec.nodeClassRef.group"},
		"node class of another kind":  {func(np *karpv1.NodePool) { np.Spec.Template.Spec.NodeClassRef.Kind = "AWSNodeTemplate" }, "spec.template.spec.nodeClassRef.kind"},
		"negative lifetime":           {func(np *karpv1.NodePool) { np.Spec.Template.Spec.ExpireAfter = karpv1.MustParseNillableDuration("-1h") }, "spec.template.spec.expireAfter"},
		"negative grace period": {func(np *karpv1.NodePool) {
			np.Spec.Template.Spec.TerminationGracePeriod = &metav1.Duration{Duration: -1}
		}, "spec.template.spec.terminationGracePeriod"},
		"negative limit":                  {func(np *karpv1.NodePool) { np.Spec.Limits["memory"] = resource.MustParse("-1Gi") }, "spec.limits[memory]"},
		"weight of nothing":               {func(np *karpv1.NodePool) { np.Spec.Weight = ptr.To[int32](0) }, "spec.weight"},
		"weight above 100":                {func(np *karpv1.NodePool) { np.Spec.Weight = ptr.To[int32](101) }, "spec.weight"},
		"static pool with weight":         {func(np *karpv1.NodePool) { np.Spec.Replicas = ptr.To[int64](2) }, "spec.weight"},
		"static pool with a limit on cpu": {func(np *karpv1.NodePool) { np.Spec.Replicas, np.Spec.Weight = ptr.To[int64](2), nil }, "spec.limits[cpu]"},
		"static pool of fewer than none": {func(np *karpv1.NodePool) {
			np.Spec.Replicas, np.Spec.Weight, np.Spec.Limits = ptr.To[int64](-2), nil, nil
		}, "spec.replicas"},
		"consolidation policy that does not exist": {func(np *karpv1.NodePool) { np.Spec.Disruption.ConsolidationPolicy = "Sometimes" }, "spec.disruption.consolidationPolicy"},
		"negative consolidateAfter": {func(np *karpv1.NodePool) {
			np.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("-1s")
		}, "spec.disruption.consolidateAfter"},
		"budget without a number":                {budget(karpv1.Budget{Nodes: "some"}), "spec.disruption.budgets[1].nodes"},
		"budget above all":                       {budget(karpv1.Budget{Nodes: "101%"}), "spec.disruption.budgets[1].nodes"},
		"budget for no reason known":             {budget(karpv1.Budget{Nodes: "1", Reasons: []karpv1.DisruptionReason{"Empty", "Bored"}}), "spec.disruption.budgets[1].reasons[1]"},
		"budget with a schedule that never ends": {budget(karpv1.Budget{Nodes: "1", Schedule: ptr.To("@daily")}), "spec.disruption.budgets[1]"},
		"budget with a schedule that is none": {
			budget(karpv1.Budget{Nodes: "1", Schedule: ptr.To("now and then"), Duration: &metav1.Duration{Duration: 1}}), "spec.disruption.budgets[1].schedule",
		},
		"more budgets than the API allows": {func(np *karpv1.NodePool) { np.Spec.Disruption.Budgets = make([]karpv1.Budget, 51) }, "spec.disruption.budgets: "},
	} {
		t.Run(name, func(t *testing.T) {
			np := testPool("default", tc.change)
			p := PoolOf(np, classKind)
			if !strings.Contains(p.Unready, "NodePool default: ") || !strings.Contains(p.Unready, tc.want) {
				t.Errorf("unready %q, want object and field %q in it", p.Unready, tc.want)
			}
			if p.Requirements != nil {
				t.Error("an invalid pool has requirements: somebody may launch by them")
			}
		})
	}
	t.Run("a name that no label can hold", func(t *testing.T) {
		if p := PoolOf(testPool(strings.Repeat("a", 64)), classKind); !strings.Contains(p.Unready, "metadata.name: Invalid value") {
			t.Errorf("unready %q", p.Unready)
		}
	})
	t.Run("nothing Karpenter refuses is let through", func(t *testing.T) {
		for _, value := range []string{"", "a b", long, "7", "-7", "ok"} {
			for _, op := range []corev1.NodeSelectorOperator{"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte", "", "Like"} {
				for _, key := range []string{"", "a b", "k", "karpenter.sh/nodepool", "karpenter.sh/x", "kubernetes.io/hostname", "karpenter.sh/capacity-type", "beta.kubernetes.io/arch"} {
					np := testPool("p", func(np *karpv1.NodePool) {
						np.Spec.Template.Labels = map[string]string{key: value}
						np.Spec.Template.Spec.Taints = []corev1.Taint{{Key: key, Value: value, Effect: "NoSchedule"}}
						np.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{{Key: key, Operator: op, Values: []string{value}}}
					})
					if theirs := np.RuntimeValidate(context.Background()); theirs != nil && PoolProblem(np, classKind) == nil {
						t.Errorf("%q %q %q is refused by Karpenter (%v) and not by us", key, op, value, theirs)
					}
				}
			}
		}
	})
}

func TestPoolThatIsNotUsedNow(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*karpv1.NodePool)
		want   string
	}{
		"being deleted": {func(np *karpv1.NodePool) { np.DeletionTimestamp = &metav1.Time{Time: start} }, "NodePool p is being deleted"},
		"malformed": {func(np *karpv1.NodePool) {
			np.Annotations = map[string]string{objects.AnnotationMalformed: "spec.x: bad"}
		}, "NodePool p: spec.x: bad"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := PoolOf(testPool("p", tc.change), classKind).Unready; !strings.Contains(got, tc.want) {
				t.Errorf("unready %q, want %q", got, tc.want)
			}
		})
	}
}

// What the user data of a class gives nodes is added where the pool doesn't say otherwise.
func TestWithNodeSettings(t *testing.T) {
	own := &capacity.NodeSettings{Labels: map[string]string{"team": "infra", "rack": "7", "example.com/tier": "gold"}, Unread: true,
		Taints: []corev1.Taint{
			{Key: "team", Value: "b", Effect: corev1.TaintEffectNoSchedule}, {Key: "dedicated", Effect: corev1.TaintEffectNoSchedule},
			{Key: "cni", Effect: corev1.TaintEffectNoExecute}, {Key: "agent", Effect: corev1.TaintEffectNoExecute},
		}}
	p := PoolOf(testPool("default"), classKind)
	p.Types = []*capacity.InstanceType{{Name: "m5.large", Node: own}}
	before := *p
	withNodeSettings(p)
	if !p.Unread || p.Labels["team"] != "a" || p.Labels["rack"] != "7" || p.Labels["example.com/tier"] != "" {
		t.Errorf("unread %v, labels %v", p.Unread, p.Labels)
	}
	values := valuesOf(p.Requirements)
	if values["rack"] != "rack in (7)" || values["team"] != "team in (a)" || values["example.com/tier"] != "example.com/tier in (gold,silver)" {
		t.Errorf("requirements %v", values)
	}
	if diff := cmp.Diff(append(before.Taints, corev1.Taint{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}), p.Taints); diff != "" {
		t.Errorf("taints (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(append(before.StartupTaints, corev1.Taint{Key: "agent", Effect: corev1.TaintEffectNoExecute}), p.StartupTaints); diff != "" {
		t.Errorf("startup taints (-want +got):\n%s", diff)
	}
	if _, changed := before.Labels["rack"]; changed || len(before.Requirements) == len(p.Requirements) {
		t.Error("the pool's own labels or requirements were changed")
	}
}
