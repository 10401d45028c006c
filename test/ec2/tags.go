package ec2

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits of EC2 for tags. Tags with the reserved prefix are EC2's own and don't count.
const (
	maxTags        = 50
	maxTagKey      = 128 // characters; so is maxTagValue
	maxTagValue    = 256
	reservedPrefix = "aws:" // in any letter case
)

// checkTags refuses a list of tags that no resource may have.
func checkTags(list []*params) *apiError {
	seen := map[string]bool{}
	for _, t := range list {
		key, value := t.str("Key"), t.str("Value")
		switch {
		case key == "":
			return invalidValue("Tag.Key", key, "Tag keys can't be empty.")
		case len(key) >= len(reservedPrefix) && strings.EqualFold(key[:len(reservedPrefix)], reservedPrefix):
			return failf("InvalidParameterValue", "Tag keys starting with 'aws:' are reserved for internal use")
		case utf8.RuneCountInString(key) > maxTagKey:
			return failf("InvalidParameterValue", "Tag key exceeds the maximum length of %d characters", maxTagKey)
		case utf8.RuneCountInString(value) > maxTagValue:
			return failf("InvalidParameterValue", "Tag value exceeds the maximum length of %d characters", maxTagValue)
		case seen[key]:
			return failf("InvalidParameterValue", "Duplicate tag key '%s' specified.", key)
		}
		seen[key] = true
	}
	return nil
}

// checkTagSpecifications refuses a TagSpecification list that names other resource types, or has tags that no resource may have.
func (p *params) checkTagSpecifications(kinds ...string) *apiError {
	for _, s := range p.list("TagSpecification") {
		if kind := s.str("ResourceType"); !slices.Contains(kinds, kind) {
			return failf("InvalidParameterValue", "'%s' is not a valid taggable resource type for this operation.", kind)
		}
		if err := checkTags(s.list("Tag")); err != nil {
			return err
		}
	}
	return nil
}

func tooManyTags(tags map[string]string) *apiError {
	if len(tags) <= maxTags {
		return nil
	}
	return failf("TagLimitExceeded", "The maximum number of Tags for a resource has been reached.")
}

// tagsOf returns the tags of a resource.
func (w *world) tagsOf(id string) (map[string]string, error) {
	kind, _, _ := strings.Cut(id, "-")
	switch kind {
	case "i":
		if in := w.byID[id]; in != nil && !in.forgotten && !in.visible.After(w.now) {
			return in.Tags, nil
		}
		return nil, failf("InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", id)
	case "lt":
		t, err := w.template(id, "", "")
		if err != nil {
			return nil, err
		}
		return t.tags, nil
	case "subnet":
		if s := w.network.subnet(id); s != nil {
			return s.tags, nil
		}
	case "sg":
		if g := w.network.group(id); g != nil {
			return g.tags, nil
		}
	case "ami":
		if im := w.image(id); im != nil {
			return im.tags, nil
		}
	}
	return nil, failf("InvalidID", "The ID '%s' is not valid", id)
}

// eachTagged returns the tags of every resource that the request names, so that an unknown one is found before anything is changed.
func (w *world) eachTagged(r *Request) ([]map[string]string, error) {
	var out []map[string]string
	for _, id := range r.params.strs("ResourceId") {
		tags, err := w.tagsOf(id)
		if err != nil {
			return nil, err
		}
		out = append(out, tags)
		r.results = append(r.results, id)
	}
	if len(out) == 0 {
		return nil, missing("ResourceId")
	}
	return out, nil
}

func (w *world) createTags(r *Request) (any, error) {
	all, err := w.eachTagged(r)
	if err != nil {
		return nil, err
	}
	list := r.params.list("Tag")
	if len(list) == 0 {
		return nil, missing("Tag")
	}
	if err := checkTags(list); err != nil {
		return nil, err
	}
	add := r.params.tags("Tag")
	for _, tags := range all {
		if err := tooManyTags(merged(tags, add)); err != nil {
			return nil, err
		}
	}
	if r.params.bool("DryRun") {
		return nil, dryRun()
	}
	for _, tags := range all {
		for k, v := range add {
			tags[k] = v
		}
	}
	return answerTrue{true}, nil
}

func (w *world) deleteTags(r *Request) (any, error) {
	all, err := w.eachTagged(r)
	if err != nil {
		return nil, err
	}
	for _, tags := range all {
		for _, t := range r.params.list("Tag") {
			if v, given := tags[t.str("Key")]; given && (!t.has("Value") || v == t.str("Value")) {
				delete(tags, t.str("Key"))
			}
		}
	}
	return answerTrue{true}, nil
}

type answerTrue struct {
	Return bool `xml:"return"`
}
