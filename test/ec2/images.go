package ec2

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

type image struct {
	id, name, description, arch, owner, alias string
	created, deprecated                       time.Time
	tags                                      map[string]string
	devices                                   []deviceMapping
	windows                                   bool
}

type deviceMapping struct {
	name string
	gib  int64
}

// Image is an image that a test can add to the account's own images.
type Image struct {
	// Name, architecture (x86_64 or arm64) and creation time are returned by DescribeImages.
	Name    string
	Arch    string
	Created time.Time
	// Deprecated is the image's deprecation time; zero: never.
	Deprecated time.Time
	Tags       map[string]string
}

// AddImage adds an image owned by the account and returns its ID.
func (s *Sim) AddImage(i Image) string {
	var id string
	s.with(func(w *world) {
		im := w.addImage(i.Name, i.Arch, w.cfg.Account, "", i.Created)
		im.deprecated, im.tags = i.Deprecated, i.Tags
		id = im.id
	})
	return id
}

// RemoveImage deregisters an image.
func (s *Sim) RemoveImage(id string) {
	s.with(func(w *world) {
		w.images = slices.DeleteFunc(w.images, func(im *image) bool { return im.id == id })
	})
}

// SetParameter sets an SSM parameter.
func (s *Sim) SetParameter(name, value string) {
	s.with(func(w *world) { w.parameters[name] = value })
}

const (
	eksOwner          = "602401143452"
	bottlerocketOwner = "092701018921"
	windowsOwner      = "801119661308"
)

// Releases of the public images, oldest first.
var (
	al2023Releases       = []string{"20260814", "20260915"}
	bottlerocketReleases = []string{"1.48.0", "1.50.0"}
	released             = []time.Time{time.Date(2026, 8, 14, 8, 0, 0, 0, time.UTC), time.Date(2026, 9, 15, 8, 0, 0, 0, time.UTC)}
)

// addImages adds the public images of Kubernetes 1.30 to 1.39 with their SSM parameters, and images of the account.
func (w *world) addImages() {
	for minor := 30; minor < 40; minor++ {
		k8s := fmt.Sprintf("1.%d", minor)
		for _, v := range []struct{ arch, variant string }{
			{"x86_64", "standard"}, {"arm64", "standard"}, {"x86_64", "nvidia"}, {"arm64", "nvidia"}, {"x86_64", "neuron"},
		} {
			w.addAL2023(k8s, v.arch, v.variant)
		}
		for _, arch := range []string{"x86_64", "arm64"} {
			w.addBottlerocket(k8s, arch, "")
			w.addBottlerocket(k8s, arch, "-nvidia")
		}
		for _, year := range []string{"2019", "2022", "2025"} {
			if year != "2025" || minor >= 35 {
				w.addWindows(k8s, year)
			}
		}
	}
	// One deprecated image that must not be chosen, and two of the account's own.
	old := w.addImage("amazon-eks-node-al2023-x86_64-standard-1.30-v20240601", "x86_64", eksOwner, "amazon", time.Date(2024, 6, 1, 8, 0, 0, 0, time.UTC))
	old.deprecated = time.Date(2026, 6, 1, 8, 0, 0, 0, time.UTC)
	for _, arch := range []string{"x86_64", "arm64"} {
		own := w.addImage("golden-"+arch+"-2026-09", arch, w.cfg.Account, "", released[1])
		own.tags = map[string]string{"team": "platform", "karpenter.sh/discovery": w.cfg.Cluster}
	}
}

func (w *world) addAL2023(k8s, arch, variant string) {
	for i, release := range al2023Releases {
		name := fmt.Sprintf("amazon-eks-node-al2023-%s-%s-%s-v%s", arch, variant, k8s, release)
		im := w.addImage(name, arch, eksOwner, "amazon", released[i])
		im.description = fmt.Sprintf("EKS-optimized Kubernetes node based on Amazon Linux 2023, (k8s: %s)", k8s)
		path := fmt.Sprintf("/aws/service/eks/optimized-ami/%s/amazon-linux-2023/%s/%s/", k8s, arch, variant)
		w.parameters[path+name+"/image_id"] = im.id
		w.parameters[path+"recommended/image_id"] = im.id
	}
}

func (w *world) addBottlerocket(k8s, arch, variant string) {
	spelling := strings.Replace(arch, "arm64", "aarch64", 1)
	for i, release := range bottlerocketReleases {
		im := w.addImage(fmt.Sprintf("bottlerocket-aws-k8s-%s%s-%s-v%s-%08x", k8s, variant, spelling, release, hash64([]byte(k8s+variant+release))&0xffffffff), arch, bottlerocketOwner, "amazon", released[i])
		im.devices = []deviceMapping{{"/dev/xvda", 4}, {"/dev/xvdb", 20}}
		path := fmt.Sprintf("/aws/service/bottlerocket/aws-k8s-%s%s/%s/", k8s, variant, arch)
		w.parameters[path+release+"/image_id"] = im.id
		w.parameters[path+"latest/image_id"] = im.id
	}
}

// addWindows adds Windows images. Only the newest release has an SSM parameter.
func (w *world) addWindows(k8s, year string) {
	base := "Windows_Server-" + year + "-English-Core-EKS_Optimized-" + k8s
	for _, at := range released {
		im := w.addImage(base+"-"+at.Format("2006.01.02"), "x86_64", windowsOwner, "amazon", at)
		im.windows, im.devices = true, []deviceMapping{{"/dev/sda1", 50}}
		w.parameters["/aws/service/ami-windows-latest/"+base+"/image_id"] = im.id
	}
}

// addImage adds an image whose ID depends only on its name.
func (w *world) addImage(name, arch, owner, alias string, created time.Time) *image {
	im := &image{
		id: fmt.Sprintf("ami-0%016x", w.draw("image", name).Uint64()), name: name, arch: arch, owner: owner, alias: alias, created: created, tags: map[string]string{},
		devices: []deviceMapping{{"/dev/xvda", 20}},
	}
	w.images = append(w.images, im)
	return im
}

func (w *world) image(id string) *image {
	i := slices.IndexFunc(w.images, func(im *image) bool { return im.id == id })
	if i < 0 {
		return nil
	}
	return w.images[i]
}

type imageItem struct {
	ID           string       `xml:"imageId"`
	Location     string       `xml:"imageLocation"`
	State        string       `xml:"imageState"`
	Owner        string       `xml:"imageOwnerId"`
	Alias        string       `xml:"imageOwnerAlias,omitempty"`
	Public       bool         `xml:"isPublic"`
	Arch         string       `xml:"architecture"`
	Type         string       `xml:"imageType"`
	Name         string       `xml:"name"`
	Description  string       `xml:"description,omitempty"`
	Root         string       `xml:"rootDeviceName"`
	RootType     string       `xml:"rootDeviceType"`
	Virtual      string       `xml:"virtualizationType"`
	Hypervisor   string       `xml:"hypervisor"`
	Created      string       `xml:"creationDate"`
	Deprecated   string       `xml:"deprecationTime,omitempty"`
	Platform     string       `xml:"platformDetails"`
	ENA          bool         `xml:"enaSupport"`
	BlockDevices []deviceSize `xml:"blockDeviceMapping>item"`
	Tags         []tagItem    `xml:"tagSet>item"`
}

type deviceSize struct {
	Name string `xml:"deviceName"`
	GiB  int64  `xml:"ebs>volumeSize"`
	Type string `xml:"ebs>volumeType"`
}

func (w *world) describeImages(r *Request) (any, error) {
	ids, owners := r.params.strs("ImageId"), r.params.strs("Owner")
	for _, id := range ids {
		if w.image(id) == nil {
			return nil, failf("InvalidAMIID.NotFound", "The image id '[%s]' does not exist", id)
		}
	}
	var items []imageItem
	for _, im := range w.images {
		deprecated := !im.deprecated.IsZero() && !im.deprecated.After(w.now)
		if deprecated && !r.params.bool("IncludeDeprecated") && im.owner != w.cfg.Account || len(ids) > 0 && !slices.Contains(ids, im.id) ||
			len(owners) > 0 && !slices.ContainsFunc(owners, func(o string) bool { return o == im.owner || o == im.alias || o == "self" && im.owner == w.cfg.Account }) {
			continue
		}
		public := fmt.Sprint(im.alias != "")
		ok, err := r.matches(tagMatcher(im.tags, map[string]string{
			"image-id": im.id, "name": im.name, "architecture": im.arch, "state": "available", "owner-id": im.owner, "owner-alias": im.alias, "is-public": public,
			"root-device-type": "ebs", "virtualization-type": "hvm", "creation-date": timestamp(im.created), "image-type": "machine", "description": im.description,
		}))
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		item := imageItem{
			ID: im.id, Location: im.owner + "/" + im.name, State: "available", Owner: im.owner, Alias: im.alias, Public: im.alias != "", Arch: im.arch, Type: "machine",
			Name: im.name, Description: im.description, Root: im.devices[0].name, RootType: "ebs", Virtual: "hvm", Hypervisor: "xen", Created: timestamp(im.created),
			Platform: "Linux/UNIX", ENA: true, Tags: tagItems(im.tags),
		}
		if im.windows {
			item.Platform = "Windows"
		}
		if !im.deprecated.IsZero() {
			item.Deprecated = timestamp(im.deprecated)
		}
		for _, d := range im.devices {
			item.BlockDevices = append(item.BlockDevices, deviceSize{d.name, d.gib, "gp3"})
		}
		items = append(items, item)
	}
	slices.SortFunc(items, func(a, b imageItem) int { return strings.Compare(a.ID, b.ID) })
	items, next, err := page(r, items, 1, 1000, 0, func(i imageItem) string { return i.ID })
	return struct {
		Images []imageItem `xml:"imagesSet>item"`
		Next   string      `xml:"nextToken,omitempty"`
	}{items, next}, err
}

// timestamp formats a time as EC2 does.
func timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
