package capacity

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Operator is a node requirement's operator: the Kubernetes ones plus Karpenter's Gte and Lte.
type Operator string

// Operators of requirements (Karpenter NodePool v1).
const (
	In           Operator = "In"
	NotIn        Operator = "NotIn"
	Exists       Operator = "Exists"
	DoesNotExist Operator = "DoesNotExist"
	Gt           Operator = "Gt"
	Lt           Operator = "Lt"
	Gte          Operator = "Gte"
	Lte          Operator = "Lte"
)

// Requirement is a set of allowed values of one label key: either the listed values or, as a complement, all others; in both cases within
// integer bounds if there are any. Whether the label may be absent is stored separately, so that the intersection of In (a) and In (b) is
// impossible, and not "the label is absent", which the zero Requirement means. Requirements are values: nothing changes one after it was
// made.
type Requirement struct {
	Key        string
	complement bool                // all values but the listed ones are allowed
	values     map[string]struct{} // the listed values
	gte, lte   *int64              // integer bounds, inclusive; nil: none
	// present: a node without the label does not satisfy the requirement.
	present bool
	// MinValues is how many distinct values must stay open until launch; 0: any.
	MinValues int
}

// NewRequirement returns a requirement with one operator. The error names the operator and the value, but not the object: the caller
// knows the field.
func NewRequirement(key string, op Operator, values ...string) (Requirement, error) {
	r := Requirement{Key: key}
	switch op {
	case In:
		if len(values) == 0 {
			return r, fmt.Errorf("operator In needs at least one value")
		}
		r.values, r.present = setOf(values), true
	case NotIn:
		r.complement, r.values = true, setOf(values)
	case Exists:
		r.complement, r.present = true, true
	case DoesNotExist:
	case Gt, Lt, Gte, Lte:
		if len(values) != 1 {
			return r, fmt.Errorf("operator %s needs exactly one value, has %d", op, len(values))
		}
		n, err := strconv.ParseInt(values[0], 10, 64)
		if err != nil {
			return r, fmt.Errorf("operator %s needs an integer, has %q", op, values[0])
		}
		r.complement, r.present = true, true
		r.bound(op, n)
	default:
		return r, fmt.Errorf("unknown operator %q", op)
	}
	if (op == Exists || op == DoesNotExist) && len(values) > 0 {
		return r, fmt.Errorf("operator %s takes no values", op)
	}
	return r, nil
}

func (r *Requirement) bound(op Operator, n int64) {
	const maxInt, minInt = int64(^uint64(0) >> 1), -int64(^uint64(0)>>1) - 1
	switch {
	case op == Gt && n == maxInt || op == Lt && n == minInt:
		*r = Requirement{Key: r.Key, present: true} // no integer is beyond the end of the range
		return
	case op == Gt:
		n++
		op = Gte
	case op == Lt:
		n--
		op = Lte
	}
	if op == Gte {
		r.gte = &n
	} else {
		r.lte = &n
	}
}

// ValueIn returns the requirement that the key has one of the values; it never fails.
func ValueIn(key string, values ...string) Requirement {
	return Requirement{Key: key, values: setOf(values), present: true}
}

// Has reports whether a label with that value satisfies the requirement.
func (r Requirement) Has(value string) bool {
	_, listed := r.values[value]
	return listed != r.complement && r.within(value)
}

func (r Requirement) within(value string) bool {
	if r.gte == nil && r.lte == nil {
		return true
	}
	n, err := strconv.ParseInt(value, 10, 64)
	return err == nil && (r.gte == nil || n >= *r.gte) && (r.lte == nil || n <= *r.lte)
}

// AllowsAbsent reports whether a node without the label satisfies the requirement: NotIn and DoesNotExist do.
func (r Requirement) AllowsAbsent() bool { return !r.present }

// Impossible reports whether no node satisfies the requirement, with or without the label.
func (r Requirement) Impossible() bool { return r.present && r.Empty() }

// Empty reports whether no value can satisfy the requirement. DoesNotExist is empty, too.
func (r Requirement) Empty() bool {
	if r.complement {
		return r.gte != nil && r.lte != nil && *r.gte > *r.lte
	}
	return len(r.values) == 0
}

// Values returns the listed values in order, and whether they are the excluded ones.
func (r Requirement) Values() (values []string, excluded bool) {
	return slices.Sorted(maps.Keys(r.values)), r.complement
}

// Single returns the one value that the requirement allows, if there is exactly one.
func (r Requirement) Single() (string, bool) {
	if r.complement || len(r.values) != 1 {
		return "", false
	}
	for v := range r.values {
		return v, true
	}
	return "", false
}

// Least returns the first integer that a requirement which excludes values allows. It looks from the lower bound upwards, or from zero, or, if there
// is only an upper bound and that is negative, at the upper bound alone. ok is false if none of these is allowed.
func (r Requirement) Least() (value string, ok bool) {
	n := int64(0)
	switch {
	case r.gte != nil:
		n = *r.gte
	case r.lte != nil && *r.lte < 0:
		n = *r.lte
	}
	for ; ; n++ {
		if value = strconv.FormatInt(n, 10); r.Has(value) {
			return value, true
		} else if r.lte != nil && n >= *r.lte {
			return "", false
		}
	}
}

// Intersect returns a requirement that allows what both allow.
func (r Requirement) Intersect(o Requirement) Requirement {
	out := Requirement{Key: r.Key, complement: r.complement && o.complement, gte: r.gte, lte: r.lte,
		present: r.present || o.present, MinValues: max(r.MinValues, o.MinValues)}
	if o.gte != nil && (out.gte == nil || *o.gte > *out.gte) {
		out.gte = o.gte
	}
	if o.lte != nil && (out.lte == nil || *o.lte < *out.lte) {
		out.lte = o.lte
	}
	if out.complement {
		if out.gte != nil && out.lte != nil && *out.gte > *out.lte {
			return Requirement{Key: r.Key, present: out.present, MinValues: out.MinValues}
		}
		// Values that the bounds exclude need not be listed.
		for _, values := range []map[string]struct{}{r.values, o.values} {
			for v := range values {
				if out.within(v) {
					if out.values == nil {
						out.values = map[string]struct{}{}
					}
					out.values[v] = struct{}{}
				}
			}
		}
		return out
	}
	out.values = map[string]struct{}{}
	from, other := r, o
	if r.complement {
		from, other = o, r
	}
	for v := range from.values {
		if other.Has(v) && from.within(v) {
			out.values[v] = struct{}{}
		}
	}
	out.gte, out.lte = nil, nil
	return out
}

// String reads like a selector term: "zone in (a,b)".
func (r Requirement) String() string {
	values, excluded := r.Values()
	var s string
	switch {
	case excluded && len(values) > 0:
		s = fmt.Sprintf("%s not in (%s)", r.Key, strings.Join(values, ","))
	case excluded && (r.gte != nil || r.lte != nil):
		s = r.Key
	case excluded:
		s = r.Key + " exists"
	case r.Impossible():
		return r.Key + " can have no value"
	case len(values) == 0:
		return r.Key + " does not exist"
	default:
		s = fmt.Sprintf("%s in (%s)", r.Key, strings.Join(values, ","))
	}
	if r.gte != nil {
		s += fmt.Sprintf(" >= %d", *r.gte)
	}
	if r.lte != nil {
		s += fmt.Sprintf(" <= %d", *r.lte)
	}
	return s
}

// Requirements are requirements by key; a key that is not listed may have any value.
type Requirements map[string]Requirement

// Impossible returns the first requirement, by key, that no node satisfies.
func (rs Requirements) Impossible() (Requirement, bool) {
	for _, r := range rs.Sorted() {
		if r.Impossible() {
			return r, true
		}
	}
	return Requirement{}, false
}

// Sorted returns the requirements in the order of their keys.
func (rs Requirements) Sorted() []Requirement {
	out := make([]Requirement, 0, len(rs))
	for _, key := range slices.Sorted(maps.Keys(rs)) {
		out = append(out, rs[key])
	}
	return out
}

// And returns rs narrowed by r. rs is not changed.
func (rs Requirements) And(r ...Requirement) Requirements {
	out := maps.Clone(rs)
	if out == nil {
		out = Requirements{}
	}
	for _, one := range r {
		if have, ok := out[one.Key]; ok {
			one = have.Intersect(one)
		}
		out[one.Key] = one
	}
	return out
}

// Intersect returns rs narrowed by all of o.
func (rs Requirements) Intersect(o Requirements) Requirements {
	return rs.And(slices.Collect(maps.Values(o))...)
}

// Match reports whether a node with exactly these labels satisfies all requirements.
func (rs Requirements) Match(labels map[string]string) bool {
	return rs.MatchFunc(func(key string) (string, bool) {
		v, ok := labels[key]
		return v, ok
	})
}

// MatchFunc reports whether a node for which label returns the labels satisfies all requirements.
func (rs Requirements) MatchFunc(label func(key string) (string, bool)) bool {
	for key, r := range rs {
		v, ok := label(key)
		if ok && !r.Has(v) || !ok && !r.AllowsAbsent() {
			return false
		}
	}
	return true
}

// MatchAny reports whether a node for which label returns the labels satisfies one of the terms, or whether there are none.
func MatchAny(terms []Requirements, label func(key string) (string, bool)) bool {
	return len(terms) == 0 || slices.ContainsFunc(terms, func(term Requirements) bool { return term.MatchFunc(label) })
}

func setOf(values []string) map[string]struct{} {
	out := make(map[string]struct{}, len(values))
	for _, v := range values {
		out[v] = struct{}{}
	}
	return out
}
