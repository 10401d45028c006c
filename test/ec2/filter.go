package ec2

import (
	"encoding/base64"
	"slices"
	"strings"
)

// matcher returns the values that a resource has for a filter name; known is false if the resource has no such filter.
type matcher func(name string) (values []string, known bool)

// tagMatcher returns a matcher for a resource's fields and its tags, which are matched by tag:KEY and tag-key.
func tagMatcher(tags map[string]string, fields map[string]string) matcher {
	return func(name string) ([]string, bool) {
		if key, ok := strings.CutPrefix(name, "tag:"); ok {
			if v, has := tags[key]; has {
				return []string{v}, true
			}
			return nil, true
		}
		if name == "tag-key" {
			keys := make([]string, 0, len(tags))
			for k := range tags {
				keys = append(keys, k)
			}
			return keys, true
		}
		v, known := fields[name]
		return []string{v}, known
	}
}

// matches reports whether the resource passes every filter of the request. Filters are ANDed, their values ORed, with * and ? as
// wildcards.
func (r *Request) matches(of matcher) (bool, error) {
	for _, f := range r.params.list("Filter") {
		name := f.str("Name")
		if r.ignoreTags && strings.HasPrefix(name, "tag") {
			continue
		}
		have, known := of(name)
		if !known {
			return false, failf("InvalidParameterValue", "The filter '%s' is invalid", name)
		}
		want := f.strs("Value")
		if !slices.ContainsFunc(have, func(v string) bool {
			return slices.ContainsFunc(want, func(p string) bool { return wildcard(p, v) })
		}) {
			return false, nil
		}
	}
	return true, nil
}

// maxFilterValues is how many values all filters of a call may have together.
const maxFilterValues = 200

func (p *params) checkFilters() *apiError {
	n := 0
	for _, f := range p.list("Filter") {
		n += len(f.strs("Value"))
	}
	if n > maxFilterValues {
		return failf("FilterLimitExceeded", "The maximum number of filter values specified on a single call is %d", maxFilterValues)
	}
	return nil
}

// wildcard matches * and ?; a backslash makes the next character literal.
func wildcard(pattern, s string) bool {
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '*':
			for j := 0; j <= len(s); j++ {
				if wildcard(pattern[i+1:], s[j:]) {
					return true
				}
			}
			return false
		case '?':
			if s == "" {
				return false
			}
		default:
			if pattern[i] == '\\' && i+1 < len(pattern) {
				i++
			}
			if s == "" || s[0] != pattern[i] {
				return false
			}
		}
		s = s[1:]
	}
	return s == ""
}

// page returns the requested page of a sorted list. key must be unique and have the list's order: the page token is the last key
// returned, so that pages stay correct while resources are added and removed. low and high bound MaxResults; usual is the page size
// without it, where 0 means everything.
func page[T any](r *Request, items []T, low, high, usual int, key func(T) string) (out []T, next string, err error) {
	if token := r.params.str("NextToken"); token != "" {
		last, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil {
			return nil, "", failf("InvalidNextToken", "The token '%s' is invalid", token)
		}
		at, found := slices.BinarySearchFunc(items, string(last), func(t T, k string) int { return strings.Compare(key(t), k) })
		if found {
			at++
		}
		items = items[at:]
	}
	n, err := r.params.number("MaxResults", usual)
	switch {
	case err != nil:
		return nil, "", err
	case !r.params.has("MaxResults") && usual == 0:
		return items, "", nil
	case n < low || n > high:
		return nil, "", failf("InvalidParameterValue", "Value ( %d ) for parameter maxResults is invalid. Expecting a value between %d and %d.", n, low, high)
	}
	if len(items) <= n {
		return items, "", nil
	}
	return items[:n], base64.RawURLEncoding.EncodeToString([]byte(key(items[n-1]))), nil
}

type tagItem struct {
	Key   string `xml:"key"`
	Value string `xml:"value"`
}

// tagItems returns tags in the form of answers, sorted.
func tagItems(tags map[string]string) []tagItem {
	out := make([]tagItem, 0, len(tags))
	for k, v := range tags {
		out = append(out, tagItem{k, v})
	}
	slices.SortFunc(out, func(a, b tagItem) int { return strings.Compare(a.Key, b.Key) })
	return out
}
