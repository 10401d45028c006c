package ec2

import (
	"cmp"
	"net/url"
	"slices"
	"strings"
	"time"
)

type template struct {
	id, name string
	created  time.Time
	data     *launchData
	tags     map[string]string
	request  url.Values // that created it
}

type templateItem struct {
	ID      string    `xml:"launchTemplateId"`
	Name    string    `xml:"launchTemplateName"`
	Created string    `xml:"createTime"`
	By      string    `xml:"createdBy"`
	Default int       `xml:"defaultVersionNumber"`
	Latest  int       `xml:"latestVersionNumber"`
	Tags    []tagItem `xml:"tagSet>item"`
}

func (w *world) templateItem(t *template) templateItem {
	return templateItem{t.id, t.name, timestamp(t.created), "arn:aws:iam::" + w.cfg.Account + ":user/simulated", 1, 1, tagItems(t.tags)}
}

type templateAnswer struct {
	Template templateItem `xml:"launchTemplate"`
}

func (w *world) createLaunchTemplate(r *Request) (any, error) {
	name := r.params.str("LaunchTemplateName")
	switch {
	case name == "":
		return nil, missing("LaunchTemplateName")
	case !r.params.has("LaunchTemplateData"):
		return nil, missing("LaunchTemplateData")
	}
	data, err := w.parseLaunchData(r.params.sub("LaunchTemplateData"))
	if err != nil {
		return nil, err
	}
	tags := r.params.tagsFor("launch-template")
	if err := cmp.Or(r.params.checkTagSpecifications("launch-template"), tooManyTags(tags)); err != nil {
		return nil, err
	}
	return w.once(r, func() (any, error) {
		if slices.ContainsFunc(w.templates, func(t *template) bool { return t.name == name }) {
			return nil, failf("InvalidLaunchTemplateName.AlreadyExistsException", "Launch template name already in use.")
		}
		if r.params.bool("DryRun") {
			return nil, dryRun()
		}
		t := &template{id: w.id("lt"), name: name, created: w.now, data: data, tags: tags, request: r.Form}
		w.templates = append(w.templates, t)
		r.results = []string{t.id}
		return templateAnswer{w.templateItem(t)}, nil
	})
}

// template returns a launch template by ID or name. A template has only one version here.
func (w *world) template(id, name, version string) (*template, error) {
	i := slices.IndexFunc(w.templates, func(t *template) bool { return id != "" && t.id == id || id == "" && t.name == name })
	switch {
	case i < 0 && id != "":
		return nil, failf("InvalidLaunchTemplateId.NotFound", "The specified launch template, with template ID %s, does not exist.", id)
	case i < 0:
		return nil, failf("InvalidLaunchTemplateName.NotFoundException", "The specified launch template, with template name %s, does not exist.", name)
	case !slices.Contains([]string{"", "$Default", "$Latest", "1"}, version):
		return nil, failf("InvalidLaunchTemplateId.VersionNotFound", "Could not find the specified version %s for the launch template with ID %s.", version, w.templates[i].id)
	}
	return w.templates[i], nil
}

func (w *world) describeLaunchTemplates(r *Request) (any, error) {
	ids, names := r.params.strs("LaunchTemplateId"), r.params.strs("LaunchTemplateName")
	for _, id := range ids {
		if _, err := w.template(id, "", ""); err != nil {
			return nil, err
		}
	}
	for _, name := range names {
		if _, err := w.template("", name, ""); err != nil {
			return nil, err
		}
	}
	var items []templateItem
	for _, t := range w.templates {
		ok, err := r.matches(tagMatcher(t.tags, map[string]string{"launch-template-name": t.name, "create-time": timestamp(t.created)}))
		if err != nil {
			return nil, err
		}
		if ok && (len(ids) == 0 || slices.Contains(ids, t.id)) && (len(names) == 0 || slices.Contains(names, t.name)) {
			items = append(items, w.templateItem(t))
		}
	}
	slices.SortFunc(items, func(a, b templateItem) int { return strings.Compare(a.ID, b.ID) })
	items, next, err := page(r, items, 1, 200, 200, func(t templateItem) string { return t.ID })
	return struct {
		Templates []templateItem `xml:"launchTemplates>item"`
		Next      string         `xml:"nextToken,omitempty"`
	}{items, next}, err
}

type versionItem struct {
	ID      string      `xml:"launchTemplateId"`
	Name    string      `xml:"launchTemplateName"`
	Number  int         `xml:"versionNumber"`
	Default bool        `xml:"defaultVersion"`
	Created string      `xml:"createTime"`
	Data    versionData `xml:"launchTemplateData"`
}

// versionData is the part of a template's content that is returned.
type versionData struct {
	Image   string          `xml:"imageId,omitempty"`
	Profile string          `xml:"iamInstanceProfile>name,omitempty"`
	Devices []versionDevice `xml:"blockDeviceMappingSet>item"`
}

type versionDevice struct {
	Name string `xml:"deviceName"`
	GiB  int64  `xml:"ebs>volumeSize,omitempty"`
}

func (w *world) describeLaunchTemplateVersions(r *Request) (any, error) {
	versions := r.params.strs("LaunchTemplateVersion")
	if len(versions) == 0 {
		versions = []string{"$Latest"}
	}
	var answer struct {
		Versions []versionItem `xml:"launchTemplateVersionSet>item"`
	}
	for _, version := range versions {
		t, err := w.template(r.params.str("LaunchTemplateId"), r.params.str("LaunchTemplateName"), version)
		if err != nil {
			return nil, err
		}
		item := versionItem{ID: t.id, Name: t.name, Number: 1, Default: true, Created: timestamp(t.created),
			Data: versionData{Image: t.data.image, Profile: t.data.profile}}
		for _, v := range t.data.volumes {
			item.Data.Devices = append(item.Data.Devices, versionDevice{v.Device, v.GiB})
		}
		answer.Versions = append(answer.Versions, item)
	}
	return answer, nil
}

func (w *world) deleteLaunchTemplate(r *Request) (any, error) {
	t, err := w.template(r.params.str("LaunchTemplateId"), r.params.str("LaunchTemplateName"), "")
	if err != nil {
		return nil, err
	}
	if r.params.bool("DryRun") {
		return nil, dryRun()
	}
	w.templates = slices.DeleteFunc(w.templates, func(o *template) bool { return o == t })
	r.results = []string{t.id}
	return templateAnswer{w.templateItem(t)}, nil
}
