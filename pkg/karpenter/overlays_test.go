package karpenter

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	karpv1alpha1 "sigs.k8s.io/karpenter/pkg/apis/v1alpha1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
)

func weighing(w int32) func(*karpv1alpha1.NodeOverlaySpec) {
	return func(s *karpv1alpha1.NodeOverlaySpec) { s.Weight = &w }
}

func extra(name, amount string) func(*karpv1alpha1.NodeOverlaySpec) {
	return func(s *karpv1alpha1.NodeOverlaySpec) {
		if s.Capacity == nil {
			s.Capacity = corev1.ResourceList{}
		}
		s.Capacity[corev1.ResourceName(name)] = resource.MustParse(amount)
	}
}

func TestOverlaysOnTypes(t *testing.T) {
	const plainM, plainC = "m5.large ao 0.1, aspot 0.025, bo 0.1, bspot 0.025", "c5.large ao 0.08, aspot 0.02, bo +Inf, bspot +Inf"
	m := "node.kubernetes.io/instance-type In m5.large"
	for name, tc := range map[string]struct {
		overlays []*karpv1alpha1.NodeOverlay
		want     string
		problems map[string]string
	}{
		"none": {want: plainM + "\n" + plainC},
		"a price": {
			overlays: []*karpv1alpha1.NodeOverlay{testOverlay("o", []string{m}, price("0.05"))},
			want:     "m5.large ao 0.05*, aspot 0.05*, bo 0.05*, bspot 0.05*\n" + plainC,
		},
		"a price for some offers": {
			overlays: []*karpv1alpha1.NodeOverlay{testOverlay("o", []string{m, "topology.kubernetes.io/zone In b", "karpenter.sh/capacity-type In spot"}, price("0.05"))},
			want:     "m5.large ao 0.1, aspot 0.025, bo 0.1, bspot 0.05*\n" + plainC,
		},
		"a part off, under an older name of the key": {
			overlays: []*karpv1alpha1.NodeOverlay{testOverlay("o", []string{"beta.kubernetes.io/instance-type In m5.large"}, adjusted("-20%"))},
			want:     "m5.large ao 0.08*, aspot 0.02*, bo 0.08*, bspot 0.02*\n" + plainC,
		},
		"a part more": {
			overlays: []*karpv1alpha1.NodeOverlay{testOverlay("o", []string{m}, adjusted("+150%"))},
			want:     "m5.large ao 0.25*, aspot 0.0625*, bo 0.25*, bspot 0.0625*\n" + plainC,
		},
		"an amount more": {
			overlays: []*karpv1alpha1.NodeOverlay{testOverlay("o", []string{m}, adjusted("+.1"))},
			want:     "m5.large ao 0.2*, aspot 0.125*, bo 0.2*, bspot 0.125*\n" + plainC,
		},
		"an amount off, and not below nothing": {
			overlays: []*karpv1alpha1.NodeOverlay{testOverlay("o", []string{m}, adjusted("-0.05"))},
			want:     "m5.large ao 0.05*, aspot 0*, bo 0.05*, bspot 0*\n" + plainC,
		},
		"all of it off": {
			overlays: []*karpv1alpha1.NodeOverlay{testOverlay("o", nil, adjusted("-100%"))},
			want:     "m5.large ao 0*, aspot 0*, bo 0*, bspot 0*\nc5.large ao 0*, aspot 0*, bo +Inf, bspot +Inf",
		},
		"a price where the cloud names none, by the type's name": {
			overlays: []*karpv1alpha1.NodeOverlay{testOverlay("o", []string{"node.kubernetes.io/instance-type In c5.large", "topology.kubernetes.io/zone In b"}, price("0.07"))},
			want:     plainM + "\nc5.large ao 0.08, aspot 0.02, bo 0.07*, bspot 0.07*",
		},
		"a price where the cloud names none, by something wider": {
			overlays: []*karpv1alpha1.NodeOverlay{testOverlay("o", []string{"karpenter.k8s.aws/instance-family In c5"}, price("0.07"))},
			want:     plainM + "\nc5.large ao 0.07*, aspot 0.07*, bo +Inf, bspot +Inf",
		},
		"operators on what types have, and on what they don't": {
			overlays: []*karpv1alpha1.NodeOverlay{
				testOverlay("a", []string{"karpenter.k8s.aws/instance-cpu Gt 1", "karpenter.k8s.aws/instance-cpu Lte 2", "karpenter.k8s.aws/instance-family NotIn c5", "karpenter.k8s.aws/instance-gpu-name DoesNotExist"}, price("1")),
				testOverlay("b", []string{"karpenter.k8s.aws/instance-gpu-count Gte 0"}, price("2")),
			},
			want: "m5.large ao 1*, aspot 1*, bo 1*, bspot 1*\n" + plainC,
		},
		"extra capacity, for the whole type if any offer is meant": {
			overlays: []*karpv1alpha1.NodeOverlay{testOverlay("o", []string{m, "karpenter.sh/capacity-type In spot"}, extra("example.com/w", "2"))},
			want:     plainM + "; example.com/w=2/2\n" + plainC,
		},
		"of different weight the heavier has its say, thing by thing": {
			overlays: []*karpv1alpha1.NodeOverlay{
				testOverlay("light", []string{m}, price("3"), extra("example.com/w", "1"), extra("example.com/x", "1"), weighing(1)),
				testOverlay("heavy", []string{m, "topology.kubernetes.io/zone In a"}, price("2"), extra("example.com/w", "7"), weighing(10)),
			},
			want: "m5.large ao 2*, aspot 2*, bo 3*, bspot 3*; example.com/w=7/7; example.com/x=1/1\n" + plainC,
		},
		"adjustments don't add up": {
			overlays: []*karpv1alpha1.NodeOverlay{testOverlay("light", []string{m}, adjusted("+10%"), weighing(1)), testOverlay("heavy", []string{m}, adjusted("+50%"), weighing(2))},
			want:     "m5.large ao 0.15*, aspot 0.0375*, bo 0.15*, bspot 0.0375*\n" + plainC,
		},
		"of equal weight one is left out, everywhere": {
			overlays: []*karpv1alpha1.NodeOverlay{
				testOverlay("a", nil, price("5"), extra("example.com/w", "1")),
				testOverlay("b", []string{m, "topology.kubernetes.io/zone In a"}, price("2")),
			},
			want:     "m5.large ao 2*, aspot 2*, bo 0.1, bspot 0.025\n" + plainC,
			problems: map[string]string{"a": "Conflict: conflicts with NodeOverlay b, which has the same weight, over the price of m5.large in pool default"},
		},
		"no weight weighs nothing": {
			overlays: []*karpv1alpha1.NodeOverlay{testOverlay("a", []string{m}, price("5")), testOverlay("b", []string{m}, price("6"))},
			want:     "m5.large ao 6*, aspot 6*, bo 6*, bspot 6*\n" + plainC,
			problems: map[string]string{"a": "Conflict: conflicts with NodeOverlay b, which has the same weight, over the price of m5.large in pool default"},
		},
		"of equal weight about different things": {
			overlays: []*karpv1alpha1.NodeOverlay{
				testOverlay("a", []string{m, "karpenter.sh/capacity-type In spot"}, price("5"), extra("example.com/w", "1")),
				testOverlay("b", []string{m, "karpenter.sh/capacity-type In on-demand"}, price("6"), extra("example.com/x", "1")),
			},
			want: "m5.large ao 6*, aspot 5*, bo 6*, bspot 5*; example.com/w=1/1; example.com/x=1/1\n" + plainC,
		},
		"the same resource, a third overlay between them": {
			overlays: []*karpv1alpha1.NodeOverlay{
				testOverlay("a", []string{m}, extra("example.com/w", "1")), testOverlay("b", []string{m}, extra("example.com/x", "1")), testOverlay("c", []string{m}, extra("example.com/w", "1")),
			},
			want:     plainM + "; example.com/w=1/1; example.com/x=1/1\n" + plainC,
			problems: map[string]string{"a": "Conflict: conflicts with NodeOverlay c, which has the same weight, over example.com/w of m5.large in pool default"},
		},
		"what is left out stands in nobody's way": {
			overlays: []*karpv1alpha1.NodeOverlay{
				testOverlay("a", []string{"node.kubernetes.io/instance-type In c5.large"}, price("1")),
				testOverlay("b", nil, price("2")),
				testOverlay("c", []string{m}, price("3")),
			},
			want:     "m5.large ao 3*, aspot 3*, bo 3*, bspot 3*\nc5.large ao 1*, aspot 1*, bo 1*, bspot 1*",
			problems: map[string]string{"b": "Conflict: conflicts with NodeOverlay c, which has the same weight, over the price of m5.large in pool default"},
		},
		"one that can't be read": {
			overlays: []*karpv1alpha1.NodeOverlay{testOverlay("a", []string{m}, price("1"), adjusted("+1")), testOverlay("b", []string{m}, price("2"))},
			want:     "m5.large ao 2*, aspot 2*, bo 2*, bspot 2*\n" + plainC,
			problems: map[string]string{"a": "RuntimeValidation: spec.priceAdjustment: Forbidden: it and price exclude each other"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := NewOverlays()
			for _, o := range tc.overlays {
				v.Put(o.Name, o)
			}
			from := twoTypes()
			pool := &capacity.Pool{Name: "default", Labels: map[string]string{"karpenter.sh/nodepool": "default"}, Types: from}
			v.Apply([]*capacity.Pool{pool})
			if diff := cmp.Diff(tc.want, offered(pool)); diff != "" {
				t.Errorf("types (-want +got):\n%s", diff)
			}
			for _, o := range tc.overlays {
				reason, message := v.Problem(o.Name)
				if got := strings.TrimPrefix(reason+": "+message, ": "); got != tc.problems[o.Name] {
					t.Errorf("%s: %q, want %q", o.Name, got, tc.problems[o.Name])
				}
			}
			if diff := cmp.Diff(twoTypes(), from); diff != "" {
				t.Errorf("the cloud's own types were changed:\n%s", diff)
			}
			for i, typ := range from {
				if got := v.TypeFor("default", typ); !cmp.Equal(got, pool.Types[i]) {
					t.Errorf("asked for alone %s is %v", typ.Name, got)
				}
			}
			if got := v.TypeFor("", from[0]); got != from[0] {
				t.Error("a claim of no pool has overlays")
			}
		})
	}
}

func TestOverlaysOfPools(t *testing.T) {
	v := NewOverlays()
	for _, o := range []*karpv1alpha1.NodeOverlay{
		testOverlay("by-name", []string{"karpenter.sh/nodepool In one"}, price("1")),
		testOverlay("by-label", []string{"team In b", "node.kubernetes.io/instance-type In m5.large"}, price("2")),
		testOverlay("all", []string{"node.kubernetes.io/instance-type In m5.large", "nobody DoesNotExist"}, extra("example.com/w", "1")),
	} {
		v.Put(o.Name, o)
	}
	pools := func() (*capacity.Pool, *capacity.Pool, *capacity.Pool) {
		shared := twoTypes()
		pool := func(name, team string) *capacity.Pool {
			return &capacity.Pool{Name: name, Labels: map[string]string{"karpenter.sh/nodepool": name, "team": team}, Types: shared}
		}
		return pool("one", "a"), pool("two", "b"), pool("three", "b")
	}
	one, two, three := pools()
	v.Apply([]*capacity.Pool{one, two, three, {Name: "unready", Unready: "no class"}})
	for p, want := range map[*capacity.Pool]string{
		one:   "m5.large ao 1*, aspot 1*, bo 1*, bspot 1*; example.com/w=1/1\nc5.large ao 1*, aspot 1*, bo +Inf, bspot +Inf",
		two:   "m5.large ao 2*, aspot 2*, bo 2*, bspot 2*; example.com/w=1/1\nc5.large ao 0.08, aspot 0.02, bo +Inf, bspot +Inf",
		three: "m5.large ao 2*, aspot 2*, bo 2*, bspot 2*; example.com/w=1/1\nc5.large ao 0.08, aspot 0.02, bo +Inf, bspot +Inf",
	} {
		if diff := cmp.Diff(want, offered(p)); diff != "" {
			t.Errorf("pool %s (-want +got):\n%s", p.Name, diff)
		}
	}
	used := consolidation.PricesOf([]*capacity.Pool{one, two, three}, &capacity.Options{}) // by which used nodes are compared with new ones
	for pool, want := range map[string]float64{"one": 1, "two": 2} {
		if got, known := used.Of(pool, "m5.large", "b", "spot"); !known || got != want {
			t.Errorf("a node of pool %s counts for $%v/h, %v, want $%v", pool, got, known, want)
		}
	}
	if &two.Types[0] != &three.Types[0] {
		t.Error("two pools that run the same types under the same overlays have them twice")
	}
}

// Planners recognize types by the identity of their slice: it changes when a type in it changes, and at no other time.
func TestOverlaidTypesKeepTheirIdentity(t *testing.T) {
	v := NewOverlays()
	from := twoTypes()
	apply := func() []*capacity.InstanceType {
		p := &capacity.Pool{Name: "default", Types: from, Labels: map[string]string{}}
		v.Apply([]*capacity.Pool{p})
		return p.Types
	}
	if got := apply(); &got[0] != &from[0] {
		t.Error("without overlays the types are not the cloud's own")
	}
	o := testOverlay("o", []string{"node.kubernetes.io/instance-type In m5.large"}, price("1"))
	v.Put("o", o)
	first := apply()
	if again := apply(); &again[0] != &first[0] {
		t.Error("the types changed although nothing did")
	}
	if first[1] != from[1] {
		t.Error("a type that no overlay is about was copied")
	}
	// A write to its status comes back as a change of the object.
	o = o.DeepCopy()
	o.ResourceVersion = "2"
	if v.Put("o", o) {
		t.Error("a change of the status counts as a change")
	}
	if again := apply(); &again[0] != &first[0] {
		t.Error("the types changed with the status of an overlay")
	}
	// The cloud's types change: one is unavailable somewhere.
	next := *from[1]
	from = []*capacity.InstanceType{from[0], &next}
	moved := apply()
	if &moved[0] == &first[0] || moved[1] != &next {
		t.Error("the types did not change with the cloud's")
	}
	// An overlay for another pool.
	v.Put("p", testOverlay("p", []string{"karpenter.sh/nodepool In another"}, price("1")))
	if again := apply(); offered(&capacity.Pool{Types: again}) != offered(&capacity.Pool{Types: moved}) {
		t.Error("an overlay of another pool changed something")
	}
	v.Put("o", nil)
	v.Put("p", nil)
	if again := apply(); &again[0] != &from[0] {
		t.Error("without overlays the types are not the cloud's own again")
	}
}

func TestInvalidOverlays(t *testing.T) {
	zone := []string{"topology.kubernetes.io/zone In a"}
	for name, tc := range map[string]struct {
		overlay *karpv1alpha1.NodeOverlay
		want    string // "" if it is valid
	}{
		"fine":                                  {testOverlay("o", zone, adjusted("-12.5%"), extra("example.com/w", "1"), extra("hugepages-2Mi", "1Gi"), weighing(10000)), ""},
		"a label that is not to be asked for":   {testOverlay("o", []string{"karpenter.sh/other In a"}), `spec.requirements[0].key: Forbidden: the label karpenter.sh/other is reserved`},
		"the host name":                         {testOverlay("o", []string{"kubernetes.io/hostname In a"}), `spec.requirements[0].key: Forbidden: the label kubernetes.io/hostname is reserved`},
		"a reservation":                         {testOverlay("o", []string{"karpenter.k8s.aws/capacity-reservation-id In cr-1"}), `spec.requirements[0].key: Forbidden: reservations have no prices to overlay`},
		"In without values":                     {testOverlay("o", []string{"team In"}), `spec.requirements[0].values: Required value: the operator In needs at least one value`},
		"NotIn without values":                  {testOverlay("o", []string{"team NotIn"}), `spec.requirements[0].values: Required value: the operator NotIn needs at least one value`},
		"Gt without a number":                   {testOverlay("o", []string{"karpenter.k8s.aws/instance-cpu Gt many"}), `spec.requirements[0].values: Invalid value: "many": the operator Gt needs one non-negative integer`},
		"an unknown operator":                   {testOverlay("o", []string{"team Near a"}), `spec.requirements[0].operator: Unsupported value: "Near": supported values: "DoesNotExist", "Exists", "Gt", "Gte", "In", "Lt", "Lte", "NotIn"`},
		"an unknown capacity type":              {testOverlay("o", []string{"karpenter.sh/capacity-type In cheap"}), `spec.requirements[0].values: Unsupported value: "cheap": supported values: "on-demand", "reserved", "spot"`},
		"too many requirements":                 {testOverlay("o", slices.Repeat(zone, 101)), `spec.requirements: Too many: 101: must have at most 100 items`},
		"both prices":                           {testOverlay("o", zone, price("1"), adjusted("+1")), `spec.priceAdjustment: Forbidden: it and price exclude each other`},
		"a price with a sign":                   {testOverlay("o", zone, price("-1")), `spec.price: Invalid value: "-1": must be dollars an hour, like 0.25`},
		"a price that only looks like a number": {testOverlay("o", zone, price("Inf")), `spec.price: Invalid value: "Inf": must be dollars an hour, like 0.25`},
		"a price beyond all numbers":            {testOverlay("o", zone, price(strings.Repeat("9", 400))), `spec.price: Invalid value: "` + strings.Repeat("9", 400) + `": must be dollars an hour, like 0.25`},
		"an adjustment without sign":            {testOverlay("o", zone, adjusted("1")), `spec.priceAdjustment: Invalid value: "1": must be an amount or a percentage with its sign, like -0.1 or +10%, and no less than -100%`},
		"more than all off":                     {testOverlay("o", zone, adjusted("-101%")), `spec.priceAdjustment: Invalid value: "-101%": must be an amount or a percentage with its sign, like -0.1 or +10%, and no less than -100%`},
		"memory":                                {testOverlay("o", zone, extra("memory", "1Gi")), `spec.capacity[memory]: Forbidden: its amount is known from EC2`},
		"what the cloud counts itself":          {testOverlay("o", zone, extra("vpc.amazonaws.com/pod-eni", "1")), `spec.capacity[vpc.amazonaws.com/pod-eni]: Forbidden: its amount is known from EC2`},
		"a resource without domain":             {testOverlay("o", zone, extra("widgets", "1")), `spec.capacity[widgets]: Invalid value: "widgets": must be an extended resource with a domain of your own, like example.com/widget`},
		"a resource of Kubernetes":              {testOverlay("o", zone, extra("kubernetes.io/w", "1")), `spec.capacity[kubernetes.io/w]: Invalid value: "kubernetes.io/w": must be an extended resource with a domain of your own, like example.com/widget`},
		"a part of a thing":                     {testOverlay("o", zone, extra("example.com/w", "1500m")), `spec.capacity[example.com/w]: Invalid value: "1500m": must be a whole number and not negative`},
		"less than nothing":                     {testOverlay("o", zone, extra("example.com/w", "-1")), `spec.capacity[example.com/w]: Invalid value: "-1": must be a whole number and not negative`},
		"pages without size":                    {testOverlay("o", zone, extra("hugepages-big", "1Gi")), `spec.capacity[hugepages-big]: Invalid value: "hugepages-big": names no page size`},
		"a weight of nothing":                   {testOverlay("o", zone, weighing(0)), `spec.weight: Invalid value: 0: must be between 1 and 10000`},
	} {
		t.Run(name, func(t *testing.T) {
			_, errs := overlayOf(tc.overlay)
			if got := JoinErrors(errs); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
			if tc.want == "" {
				tc.overlay.SetGroupVersionKind(NodeOverlays.GroupVersionKind)
				if err := acceptable(tc.overlay, ""); err != nil {
					t.Errorf("we take what the definition refuses: %v", err)
				}
				if err := tc.overlay.RuntimeValidate(t.Context()); err != nil {
					t.Errorf("we take what Karpenter refuses: %v", err)
				}
			}
		})
	}
}
