package iam

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Query asks whether an action on a resource is allowed.
type Query struct {
	Action   string // ec2:RunInstances
	Resource string // its ARN, or *
	Context  Context
}

// Context holds condition keys with their values. A key that is missing doesn't apply to the request.
type Context map[string][]string

// Set sets a key to one value. An empty value counts as missing: IAM's documentation calls an empty string a null data set, and a
// policy must not depend on what its operators make of that.
func (c Context) Set(key, value string) {
	if value != "" {
		c[strings.ToLower(key)] = []string{value}
	}
}

// Tags sets a key PREFIX/KEY for each tag.
func (c Context) Tags(prefix string, tags map[string]string) {
	for k, v := range tags {
		c.Set(prefix+"/"+k, v)
	}
}

// Grant is an action in a statement of a policy.
type Grant struct{ Sid, Action string }

// Policy is an identity-based policy. It is safe for concurrent use.
type Policy struct {
	statements []statement

	mu sync.Mutex
	// needed counts the queries that one statement alone allowed.
	needed map[Grant]int
	denied []string // actions and resources that were not allowed
}

type statement struct {
	sid        string
	deny       bool
	actions    []pattern // in lower case
	names      []string  // of the actions, as written
	resources  []pattern
	conditions []condition
}

// words are a JSON string or a list of strings.
type words []string

func (w *words) UnmarshalJSON(raw []byte) error {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		*w = words{one}
		return nil
	}
	return json.Unmarshal(raw, (*[]string)(w))
}

// Parse reads a policy. It returns an error for elements, condition operators or policy variables that it can't evaluate.
func Parse(document []byte) (*Policy, error) {
	var doc struct {
		Version   string
		Statement []struct {
			Sid, Effect      string
			Action, Resource words
			Condition        map[string]map[string]words
		}
	}
	decoder := json.NewDecoder(strings.NewReader(string(document)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&doc); err != nil {
		return nil, fmt.Errorf("reading the IAM policy: %w", err)
	}
	if i := strings.Index(string(document), "${"); i >= 0 {
		return nil, fmt.Errorf("reading the IAM policy: nothing fills in %.30s", document[i:])
	}
	p := &Policy{needed: map[Grant]int{}}
	for _, st := range doc.Statement {
		s := statement{sid: st.Sid, deny: st.Effect == "Deny", names: st.Action}
		if s.sid == "" || len(st.Action) == 0 || len(st.Resource) == 0 || st.Effect != "Allow" && st.Effect != "Deny" {
			return nil, fmt.Errorf("reading the IAM policy: statement %q needs Sid, Effect, Action and Resource", st.Sid)
		}
		for _, a := range st.Action {
			s.actions = append(s.actions, newPattern(strings.ToLower(a)))
		}
		for _, r := range st.Resource {
			s.resources = append(s.resources, newPattern(r))
		}
		for operator, keys := range st.Condition {
			for key, values := range keys {
				c, err := newCondition(operator, key, values)
				if err != nil {
					return nil, fmt.Errorf("reading the IAM policy: statement %s: %w", st.Sid, err)
				}
				s.conditions = append(s.conditions, c)
			}
		}
		p.statements = append(p.statements, s)
	}
	return p, nil
}

// Allows reports whether the policy allows what is asked: a statement allows it, and none denies it.
func (p *Policy) Allows(q Query) bool {
	ok := p.allows(q)
	if !ok {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.denied = append(p.denied, q.Action+" on "+q.Resource)
	}
	return ok
}

// Denied returns what was asked for so far and not allowed: "ACTION on RESOURCE".
func (p *Policy) Denied() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.denied)
}

func (p *Policy) allows(q Query) bool {
	action := strings.ToLower(q.Action)
	var by []Grant
	for i := range p.statements {
		s := &p.statements[i]
		n := slices.IndexFunc(s.actions, func(a pattern) bool { return a.matches(action) })
		if n < 0 || !s.applies(q) {
			continue
		}
		if s.deny {
			return false
		}
		by = append(by, Grant{s.sid, s.names[n]})
	}
	if len(by) == 1 {
		p.mu.Lock()
		p.needed[by[0]]++
		p.mu.Unlock()
	}
	return len(by) > 0
}

func (s *statement) applies(q Query) bool {
	return slices.ContainsFunc(s.resources, func(r pattern) bool { return r.matches(q.Resource) }) &&
		!slices.ContainsFunc(s.conditions, func(c condition) bool { return !c.holds(q.Context) })
}

// Grants returns each action of each statement that allows something, in the policy's order.
func (p *Policy) Grants() []Grant {
	var out []Grant
	for _, s := range p.statements {
		for _, a := range s.names {
			if !s.deny {
				out = append(out, Grant{s.sid, a})
			}
		}
	}
	return out
}

// Needed returns the grants without which a query so far would have been refused.
func (p *Policy) Needed() []Grant {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []Grant
	for g := range p.needed {
		out = append(out, g)
	}
	return out
}

// pattern is a text with wildcards: * stands for any text, also none, and ? for one character.
type pattern []string // the parts between the asterisks

func newPattern(text string) pattern { return strings.Split(text, "*") }

func (p pattern) matches(s string) bool {
	if !begins(s, p[0]) {
		return false
	}
	s = s[len(p[0]):]
	if len(p) == 1 {
		return s == ""
	}
	for _, part := range p[1 : len(p)-1] {
		i := 0
		for i+len(part) <= len(s) && !begins(s[i:], part) {
			i++
		}
		if i+len(part) > len(s) {
			return false
		}
		s = s[i+len(part):]
	}
	last := p[len(p)-1]
	return len(s) >= len(last) && begins(s[len(s)-len(last):], last)
}

func begins(s, part string) bool {
	if len(s) < len(part) {
		return false
	}
	for i := range len(part) {
		if part[i] != '?' && part[i] != s[i] {
			return false
		}
	}
	return true
}
