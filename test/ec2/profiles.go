package ec2

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// profile is an IAM instance profile.
type profile struct {
	id, name, path, role string
	created              time.Time
	tags                 map[string]string
	// known is from when EC2 knows its current state.
	known time.Time
}

func (w *world) addProfile(name, path, role string, tags map[string]string) *profile {
	p := &profile{id: strings.ToUpper(strings.Replace(w.id("aipa"), "-", "", 1)), name: name, path: path, role: role, created: w.now, tags: tags, known: w.now.Add(w.cfg.scaled(w.cfg.ProfileLag))}
	w.profiles[name] = p
	return p
}

func (p *profile) arn(w *world) string {
	return "arn:aws:iam::" + w.cfg.Account + ":instance-profile" + p.path + p.name
}

type roleItem struct {
	Path       string
	RoleName   string
	RoleId     string
	Arn        string
	CreateDate string
	Policy     string `xml:"AssumeRolePolicyDocument"`
}

type iamTag struct{ Key, Value string }

type profileItem struct {
	Path                string
	InstanceProfileName string
	InstanceProfileId   string
	Arn                 string
	CreateDate          string
	Roles               []roleItem `xml:"Roles>member"`
	Tags                []iamTag   `xml:"Tags>member"`
}

func (w *world) role(name string) roleItem {
	return roleItem{"/", name, "AROA" + strings.ToUpper(name), "arn:aws:iam::" + w.cfg.Account + ":role/" + name, timestamp(released[0]), "%7B%7D"}
}

func (w *world) profileItem(p *profile) profileItem {
	item := profileItem{p.path, p.name, p.id, p.arn(w), timestamp(p.created), nil, nil}
	if p.role != "" {
		item.Roles = []roleItem{w.role(p.role)}
	}
	for _, t := range tagItems(p.tags) {
		item.Tags = append(item.Tags, iamTag(t))
	}
	return item
}

// named returns the instance profile that the request names.
func (w *world) named(r *Request) (*profile, error) {
	name := r.params.str("InstanceProfileName")
	if p := w.profiles[name]; p != nil {
		return p, nil
	}
	return nil, noSuchEntity("Instance Profile " + name)
}

func noSuchEntity(what string) *apiError {
	return &apiError{Code: "NoSuchEntity", Message: what + " cannot be found.", Status: http.StatusNotFound}
}

func conflict(code, message string) *apiError {
	return &apiError{Code: code, Message: message, Status: http.StatusConflict}
}

type profileAnswer struct {
	InstanceProfile profileItem
}

func (w *world) getInstanceProfile(r *Request) (any, error) {
	p, err := w.named(r)
	if err != nil {
		return nil, err
	}
	return profileAnswer{w.profileItem(p)}, nil
}

func (w *world) createInstanceProfile(r *Request) (any, error) {
	name, path := r.params.str("InstanceProfileName"), r.params.str("Path")
	if w.profiles[name] != nil {
		return nil, conflict("EntityAlreadyExists", "Instance Profile "+name+" already exists.")
	}
	if path == "" {
		path = "/"
	}
	r.results = []string{name}
	return profileAnswer{w.profileItem(w.addProfile(name, path, "", r.params.tags("Tags.member")))}, nil
}

func (w *world) deleteInstanceProfile(r *Request) (any, error) {
	p, err := w.named(r)
	if err != nil {
		return nil, err
	}
	if p.role != "" {
		return nil, conflict("DeleteConflict", "Cannot delete entity, must remove roles from instance profile first.")
	}
	delete(w.profiles, p.name)
	return nil, nil
}

func (w *world) addRoleToInstanceProfile(r *Request) (any, error) {
	p, err := w.named(r)
	if err != nil {
		return nil, err
	}
	role := r.params.str("RoleName")
	if role != w.cfg.Role {
		return nil, noSuchEntity("The role with name " + role)
	}
	if p.role != "" {
		return nil, conflict("LimitExceeded", "Cannot exceed quota for InstanceSessionsPerInstanceProfile: 1")
	}
	p.role, p.known = role, w.now.Add(w.cfg.scaled(w.cfg.ProfileLag))
	return nil, nil
}

func (w *world) removeRoleFromInstanceProfile(r *Request) (any, error) {
	p, err := w.named(r)
	if err != nil {
		return nil, err
	}
	if p.role != r.params.str("RoleName") {
		return nil, noSuchEntity("The role with name " + r.params.str("RoleName"))
	}
	p.role = ""
	return nil, nil
}

func (w *world) tagInstanceProfile(r *Request) (any, error) {
	p, err := w.named(r)
	if err != nil {
		return nil, err
	}
	if p.tags == nil {
		p.tags = map[string]string{}
	}
	for k, v := range r.params.tags("Tags.member") {
		p.tags[k] = v
	}
	return nil, nil
}

func (w *world) listInstanceProfiles(r *Request) (any, error) {
	prefix := r.params.str("PathPrefix")
	if w.cfg.IgnorePathPrefix {
		prefix = ""
	}
	var items []profileItem
	for _, p := range w.profiles {
		if strings.HasPrefix(p.path, prefix) {
			items = append(items, w.profileItem(p))
		}
	}
	slices.SortFunc(items, func(a, b profileItem) int { return strings.Compare(a.InstanceProfileName, b.InstanceProfileName) })
	return struct {
		InstanceProfiles []profileItem `xml:"InstanceProfiles>member"`
		IsTruncated      bool
	}{items, false}, nil
}

func (w *world) getRole(r *Request) (any, error) {
	name := r.params.str("RoleName")
	if name != w.cfg.Role {
		return nil, noSuchEntity("The role with name " + name)
	}
	return struct{ Role roleItem }{w.role(name)}, nil
}
