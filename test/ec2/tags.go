package ec2

import "strings"

// tagsOf finds the tags of a resource.
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

// eachTagged finds the tags of every resource the request names, before anything is changed.
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
	add := r.params.tags("Tag")
	for _, tags := range all {
		if len(merged(tags, add)) > 50 {
			return nil, failf("TagLimitExceeded", "You have reached the maximum number of tags for this resource.")
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
