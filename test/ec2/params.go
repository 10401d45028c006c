package ec2

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// params are the parameters of a Query request as a tree: "Filter.1.Value.2" is the second member of the field Value of the first
// member of the list Filter. A nil tree is empty.
type params struct {
	value string
	kids  map[string]*params
}

func parseParams(form url.Values) *params {
	root := &params{}
	for key, values := range form {
		at := root
		for part := range strings.SplitSeq(key, ".") {
			if at.kids == nil {
				at.kids = map[string]*params{}
			}
			kid := at.kids[part]
			if kid == nil {
				kid = &params{}
				at.kids[part] = kid
			}
			at = kid
		}
		if len(values) > 0 {
			at.value = values[0]
		}
	}
	return root
}

// sub returns the tree at a dotted path, or nil.
func (p *params) sub(path string) *params {
	for part := range strings.SplitSeq(path, ".") {
		if p == nil {
			return nil
		}
		p = p.kids[part]
	}
	return p
}

func (p *params) has(path string) bool { return p.sub(path) != nil }

func (p *params) str(path string) string {
	if s := p.sub(path); s != nil {
		return s.value
	}
	return ""
}

func (p *params) bool(path string) bool { return p.str(path) == "true" }

// number returns def if the parameter is absent.
func (p *params) number(path string, def int) (int, error) {
	s := p.str(path)
	if s == "" {
		return def, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0, invalidValue(path, s, "not an integer")
	}
	return n, nil
}

// time returns the zero time if the parameter is absent.
func (p *params) time(path string) (time.Time, error) {
	s := p.str(path)
	if s == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}, invalidValue(path, s, "not a timestamp")
	}
	return t, nil
}

// list returns the members of a list of structures, in order.
func (p *params) list(path string) []*params {
	s := p.sub(path)
	if s == nil {
		return nil
	}
	var numbers []int
	for key := range s.kids {
		if n, err := strconv.Atoi(key); err == nil {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	out := make([]*params, len(numbers))
	for i, n := range numbers {
		out[i] = s.kids[strconv.Itoa(n)]
	}
	return out
}

// strs returns the members of a list of strings.
func (p *params) strs(path string) []string {
	var out []string
	for _, m := range p.list(path) {
		out = append(out, m.value)
	}
	return out
}

// tags reads a list of Key and Value.
func (p *params) tags(path string) map[string]string {
	out := map[string]string{}
	for _, t := range p.list(path) {
		out[t.str("Key")] = t.str("Value")
	}
	return out
}

// tagsFor reads the tags that a TagSpecification list has for a resource type.
func (p *params) tagsFor(resource string) map[string]string {
	out := map[string]string{}
	for _, s := range p.list("TagSpecification") {
		if s.str("ResourceType") == resource {
			for k, v := range s.tags("Tag") {
				out[k] = v
			}
		}
	}
	return out
}
