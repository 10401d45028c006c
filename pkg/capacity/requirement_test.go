package capacity

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/karpenter/pkg/scheduling"
)

// universe holds values that distinguish requirements: listed ones, unlisted ones, integers on both sides of every bound.
var universe = []string{"a", "b", "c", "other", "", "-3", "-2", "-1", "0", "1", "2", "3", "4", "5", "6", "007"}

// oneOf returns one of the values.
func oneOf[T any](d *rand.Rand, from ...T) T { return from[d.IntN(len(from))] }

// randomTerm returns an operator and values that it accepts.
func randomTerm(d *rand.Rand) (Operator, []string) {
	op := oneOf(d, In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte, Lte)
	var values []string
	switch op {
	case In, NotIn:
		for range 1 + d.IntN(4) {
			values = append(values, oneOf(d, universe...))
		}
	case Gt, Lt, Gte, Lte:
		values = []string{strconv.Itoa(d.IntN(9) - 3)}
	}
	return op, values
}

// randomRequirement returns the same requirement as our type and as Karpenter's.
func randomRequirement(d *rand.Rand) (Requirement, *scheduling.Requirement) {
	op, values := randomTerm(d)
	r, err := NewRequirement("k", op, values...)
	if err != nil {
		panic(err)
	}
	return r, scheduling.NewRequirement("k", corev1.NodeSelectorOperator(op), values...)
}

func TestRequirementsAgreeWithKarpenters(t *testing.T) {
	for seed := range uint64(5000) {
		d := rand.New(rand.NewPCG(seed, 3))
		ours, theirs := randomRequirement(d)
		what := ours.String()
		for range 1 + d.IntN(3) {
			o, k := randomRequirement(d)
			if got, want := ours.Intersect(o), theirs.Intersection(k); got.Empty() != (want.Len() == 0) {
				t.Fatalf("(%s) and (%s): empty %v, Karpenter has length %d", what, o, got.Empty(), want.Len())
			}
			ours, theirs = ours.Intersect(o), theirs.Intersection(k)
			what += " and " + o.String()
		}
		for _, v := range universe {
			if ours.Has(v) != theirs.Has(v) {
				t.Fatalf("%s: has %q: %v, Karpenter says %v", what, v, ours.Has(v), theirs.Has(v))
			}
		}
	}
}

// A node satisfies an intersection if and only if it satisfies each part, with and without the label. Karpenter differs here: a
// contradiction means "absent" there.
func TestIntersectionsAreConjunctions(t *testing.T) {
	nodes := []map[string]string{{}}
	for _, v := range universe {
		nodes = append(nodes, map[string]string{"k": v})
	}
	for seed := range uint64(5000) {
		d := rand.New(rand.NewPCG(seed, 4))
		both, what := Requirements{}, ""
		var parts []Requirements
		for range 1 + d.IntN(4) {
			r, _ := randomRequirement(d)
			parts, both = append(parts, Requirements{"k": r}), both.And(r)
			what += r.String() + "; "
		}
		some := false
		for _, labels := range nodes {
			want := true
			for _, p := range parts {
				want = want && p.Match(labels)
			}
			some = some || want
			if got := both.Match(labels); got != want {
				t.Fatalf("%s on %v: %v, one by one %v", what, labels, got, want)
			}
		}
		if _, impossible := both.Impossible(); impossible && some {
			t.Fatalf("%s: said to be impossible", what)
		}
	}
}

func TestRequirementText(t *testing.T) {
	var got []string
	for _, c := range []struct {
		op     Operator
		values []string
	}{{In, []string{"b", "a"}}, {NotIn, []string{"a"}}, {Exists, nil}, {DoesNotExist, nil}, {Gt, []string{"3"}}, {Lte, []string{"7"}}} {
		r, err := NewRequirement("k", c.op, c.values...)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, r.String())
	}
	got = append(got, ValueIn("k", "a").Intersect(ValueIn("k", "b")).String())
	want := []string{"k in (a,b)", "k not in (a)", "k exists", "k does not exist", "k >= 4", "k <= 7", "k can have no value"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("texts (-want +got):\n%s", diff)
	}
}

func TestRequirementsThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		op     Operator
		values []string
		want   string
	}{
		{In, nil, "operator In needs at least one value"},
		{Gt, []string{"1", "2"}, "operator Gt needs exactly one value, has 2"},
		{Lt, []string{"1.5"}, `operator Lt needs an integer, has "1.5"`},
		{Exists, []string{"a"}, "operator Exists takes no values"},
		{"Near", nil, `unknown operator "Near"`},
	} {
		_, err := NewRequirement("k", c.op, c.values...)
		if diff := cmp.Diff(c.want, fmt.Sprint(err)); diff != "" {
			t.Errorf("%s %v (-want +got):\n%s", c.op, c.values, diff)
		}
	}
}

func TestNothingIsBeyondTheLargestInteger(t *testing.T) {
	for op, end := range map[Operator]int64{Gt: math.MaxInt64, Lt: math.MinInt64} {
		r, err := NewRequirement("k", op, strconv.FormatInt(end, 10))
		if err != nil || !r.Impossible() {
			t.Errorf("%s %d: %v, %v, want impossible", op, end, r, err)
		}
	}
}

func FuzzRequirement(f *testing.F) {
	f.Add("In", "a,b", "Gt", "1", "3")
	f.Add("NotIn", "", "Lte", "-9223372036854775808", "x")
	f.Fuzz(func(t *testing.T, op1, values1, op2, values2, probe string) {
		a, err := NewRequirement("k", Operator(op1), strings.Split(values1, ",")...)
		if err != nil {
			return
		}
		b, err := NewRequirement("k", Operator(op2), strings.Split(values2, ",")...)
		if err != nil {
			return
		}
		both, turned := a.Intersect(b), b.Intersect(a)
		if both.Has(probe) != (a.Has(probe) && b.Has(probe)) || both.Has(probe) != turned.Has(probe) {
			t.Errorf("%s and %s: %q is in %v, %v, both %v, turned round %v", a, b, probe, a.Has(probe), b.Has(probe), both.Has(probe), turned.Has(probe))
		}
		if both.AllowsAbsent() != (a.AllowsAbsent() && b.AllowsAbsent()) || both.Impossible() && both.Has(probe) {
			t.Errorf("%s and %s: %s", a, b, both)
		}
		_, _ = both.Values()
		_, _ = both.Single()
	})
}
