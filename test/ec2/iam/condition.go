package iam

import (
	"fmt"
	"slices"
	"strings"
)

// condition is one key of one operator. All conditions of a statement must hold.
type condition struct {
	key    string // in lower case, as keys are in any letter case
	values []string
	// is compares a value of the request with one of the policy.
	is func(got, want string) bool
	// negated: no value may compare.
	negated bool
	// set is the prefix for keys with several values: ForAllValues, ForAnyValue or empty.
	set string
	// optional: the condition holds if the key is missing.
	optional bool
	// null asks whether the key is missing.
	null bool
}

const (
	forAll = "ForAllValues"
	forAny = "ForAnyValue"
)

var operators = map[string]struct {
	is      func(got, want string) bool
	negated bool
}{
	"StringEquals":           {equal, false},
	"StringNotEquals":        {equal, true},
	"StringEqualsIgnoreCase": {strings.EqualFold, false},
	"StringLike":             {like, false},
	"StringNotLike":          {like, true},
	"ArnEquals":              {like, false}, // as ArnLike, by IAM's definition
	"ArnLike":                {like, false},
	"ArnNotLike":             {like, true},
	"Bool":                   {strings.EqualFold, false},
}

func equal(got, want string) bool { return got == want }

func like(got, want string) bool { return newPattern(want).matches(got) }

func newCondition(operator, key string, values []string) (condition, error) {
	c := condition{key: strings.ToLower(key), values: values}
	name := operator
	if set, rest, ok := strings.Cut(name, ":"); ok {
		if set != forAll && set != forAny {
			return c, fmt.Errorf("unknown condition operator %s", operator)
		}
		c.set, name = set, rest
	}
	name, c.optional = strings.CutSuffix(name, "IfExists")
	if name == "Null" && c.set == "" && !c.optional {
		c.null = true
		return c, nil
	}
	o, ok := operators[name]
	if !ok || len(values) == 0 {
		return c, fmt.Errorf("unknown condition operator %s, or no value for %s", operator, key)
	}
	c.is, c.negated = o.is, o.negated
	return c, nil
}

// holds reports whether the request meets the condition. A key without values is missing.
func (c *condition) holds(ctx Context) bool {
	got := ctx[c.key]
	one := func(v string) bool {
		return slices.ContainsFunc(c.values, func(want string) bool { return c.is(v, want) }) != c.negated
	}
	switch {
	case c.null:
		return slices.Contains(c.values, fmt.Sprint(len(got) == 0))
	case len(got) == 0:
		return c.optional || c.set == forAll || c.negated && c.set == ""
	case c.set == forAll || c.negated && c.set == "":
		return !slices.ContainsFunc(got, func(v string) bool { return !one(v) })
	default:
		return slices.ContainsFunc(got, one)
	}
}
