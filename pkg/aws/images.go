package aws

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/bootstrap"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/catalog"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/lookup"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/network"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
)

// image is a machine image with the kind of instance it runs on.
type image struct {
	id, name   string
	arch       string
	kind       bootstrap.Accelerator
	created    string // RFC 3339, so that strings sort by time
	deprecated bool
	// own is the version of the user's launch template that contains the image, if the class names a launch template.
	own templateVersion
}

// runs reports whether an instance of the type can boot and use the image.
func (i *image) runs(h *catalog.Hardware) bool {
	if i.arch != h.Arch {
		return false
	}
	gpu, acc := len(h.GPUs) == 1, len(h.Accelerators) == 1
	switch i.kind {
	case bootstrap.NoneKind:
		return !gpu && !acc
	case bootstrap.NVIDIAKind:
		return gpu
	case bootstrap.NeuronKind:
		return acc
	}
	return true
}

// imageFor returns the first, and therefore newest, image that runs on the type, or nil.
func (r *resolved) imageFor(h *catalog.Hardware) *image {
	for i := range r.images {
		if r.images[i].runs(h) {
			return &r.images[i]
		}
	}
	return nil
}

// images looks up the images of classes.
type images struct {
	ec2     sdk.EC2
	ssm     sdk.SSM
	cluster *bootstrap.ClusterReader
}

// find returns the images of the class, best first: one per architecture and kind. The newest wins; a deprecated one is used
// only if there is no other.
func (l *images) find(ctx context.Context, spec *ec2nc.EC2NodeClassSpec, now time.Time) ([]image, error) {
	var found []image
	var said, ids []string
	kinds := map[string][]bootstrap.Accelerator{}
	ask := func(owner []string, filters ...ec2types.Filter) error {
		pages := ec2.NewDescribeImagesPaginator(l.ec2, &ec2.DescribeImagesInput{
			Filters: append(filters, sdk.Filter("state", "available")), Owners: owner, IncludeDeprecated: awssdk.Bool(true), MaxResults: awssdk.Int32(1000),
		})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return fmt.Errorf("describing images: %w", err)
			}
			for i := range page.Images {
				found = append(found, imagesOf(&page.Images[i], kinds, now)...)
			}
		}
		return nil
	}
	for _, t := range spec.AMISelectorTerms {
		switch {
		case t.Alias != "":
			said = append(said, "alias "+t.Alias)
			byPath, err := l.aliasIDs(ctx, spec)
			if err != nil {
				return nil, err
			}
			for id, k := range byPath {
				ids, kinds[id] = append(ids, id), k
			}
		case t.ID != "":
			ids, said = append(ids, t.ID), append(said, "id "+t.ID)
		case t.SSMParameter != "":
			said = append(said, "ssmParameter "+t.SSMParameter)
			values, err := l.parameters(ctx, []string{t.SSMParameter})
			if err != nil {
				return nil, err
			}
			for _, id := range values {
				ids = append(ids, id)
			}
		default:
			filters, owner, words := imageFilters(&t)
			said = append(said, words)
			if err := ask(owner, filters...); err != nil {
				return nil, err
			}
		}
	}
	slices.Sort(ids)
	for chunk := range slices.Chunk(slices.Compact(ids), sdk.MaxFilterValues-1) { // the filter on state takes one value, too
		if err := ask(nil, sdk.Filter("image-id", chunk...)); err != nil {
			return nil, err
		}
	}
	if len(found) == 0 {
		return nil, lookup.Unusable("spec.amiSelectorTerms: no image of a supported architecture matches " + strings.Join(said, " or "))
	}
	return best(found), nil
}

// imageFilters returns the filters for a term. A name without an owner only matches images of this account or Amazon's, because anyone
// can publish an image under any name.
func imageFilters(t *ec2nc.AMISelectorTerm) (filters []ec2types.Filter, owner []string, words string) {
	var said []string
	if t.Owner != "" {
		owner, said = []string{t.Owner}, append(said, "owner "+t.Owner)
	}
	if t.Name != "" {
		filters, said = append(filters, sdk.Filter("name", t.Name)), append(said, "name "+t.Name)
		if owner == nil {
			owner = []string{"self", "amazon"}
		}
	}
	if len(t.Tags) > 0 {
		filters, said = append(filters, network.TagFilters(t.Tags)...), append(said, network.SayTags(t.Tags))
	}
	return filters, owner, strings.Join(said, " and ")
}

func imagesOf(i *ec2types.Image, kinds map[string][]bootstrap.Accelerator, now time.Time) []image {
	arch := map[ec2types.ArchitectureValues]string{ec2types.ArchitectureValuesX8664: "amd64", ec2types.ArchitectureValuesArm64: "arm64"}[i.Architecture]
	if arch == "" {
		return nil
	}
	img := image{id: awssdk.ToString(i.ImageId), name: awssdk.ToString(i.Name), arch: arch, created: awssdk.ToString(i.CreationDate)}
	if t, err := time.Parse(time.RFC3339, awssdk.ToString(i.DeprecationTime)); err == nil {
		img.deprecated = !t.After(now)
	}
	known, ok := kinds[img.id]
	if !ok {
		known = []bootstrap.Accelerator{bootstrap.AnyKind}
	}
	var out []image
	for _, k := range known {
		img.kind = k
		out = append(out, img)
	}
	return out
}

// best keeps one image per architecture and kind and sorts them newest first.
func best(found []image) []image {
	slices.SortFunc(found, func(a, b image) int {
		if a.deprecated != b.deprecated {
			if a.deprecated {
				return 1
			}
			return -1
		}
		return cmp.Or(cmp.Compare(b.created, a.created), cmp.Compare(b.name, a.name), cmp.Compare(a.id, b.id), cmp.Compare(a.kind, b.kind))
	})
	type slot struct {
		arch string
		kind bootstrap.Accelerator
	}
	taken := map[slot]bool{}
	return slices.DeleteFunc(found, func(i image) bool {
		s := slot{i.arch, i.kind}
		had := taken[s]
		taken[s] = true
		return had
	})
}

// aliasIDs returns the image ids of an alias, with the kinds of instance each is for.
func (l *images) aliasIDs(ctx context.Context, spec *ec2nc.EC2NodeClassSpec) (map[string][]bootstrap.Accelerator, error) {
	version, err := l.cluster.KubernetesVersion()
	if err != nil {
		return nil, err
	}
	aliases := bootstrap.AliasImages(spec, version)
	var paths []string
	for _, a := range aliases {
		paths = append(paths, a.Path)
	}
	values, err := l.parameters(ctx, paths)
	if err != nil {
		return nil, err
	}
	out := map[string][]bootstrap.Accelerator{}
	for _, a := range aliases {
		if id := values[a.Path]; id != "" {
			out[id] = append(out[id], a.Kinds...)
		}
	}
	if len(out) == 0 {
		return nil, lookup.Unusablef("spec.amiSelectorTerms: no image is published for alias %s and Kubernetes %s", spec.AMISelectorTerms[0].Alias, version)
	}
	return out, nil
}

// parameters returns the values of SSM parameters; those that don't exist or contain no image id are left out.
func (l *images) parameters(ctx context.Context, names []string) (map[string]string, error) {
	out := map[string]string{}
	for chunk := range slices.Chunk(names, 10) {
		got, err := l.ssm.GetParameters(ctx, &ssm.GetParametersInput{Names: chunk})
		if err != nil {
			return nil, fmt.Errorf("getting SSM parameters: %w", err)
		}
		for _, v := range got.Parameters {
			if id := awssdk.ToString(v.Value); strings.HasPrefix(id, "ami-") {
				out[awssdk.ToString(v.Name)] = id
			}
		}
	}
	return out, nil
}

// status returns the image as the class's status shows it.
func (i *image) status(f *bootstrap.Family) ec2nc.AMI {
	in := func(key, value string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}
	}
	reqs := []corev1.NodeSelectorRequirement{in(corev1.LabelArchStable, i.arch)}
	if f.Windows() {
		reqs = append(reqs, in(corev1.LabelOSStable, f.OS), in(corev1.LabelWindowsBuild, f.Build))
	}
	need := func(key string, op corev1.NodeSelectorOperator) {
		reqs = append(reqs, corev1.NodeSelectorRequirement{Key: key, Operator: op})
	}
	switch i.kind {
	case bootstrap.NoneKind:
		need(ec2nc.LabelInstanceAcceleratorCount, corev1.NodeSelectorOpDoesNotExist)
		need(ec2nc.LabelInstanceGPUCount, corev1.NodeSelectorOpDoesNotExist)
	case bootstrap.NVIDIAKind:
		need(ec2nc.LabelInstanceGPUCount, corev1.NodeSelectorOpExists)
	case bootstrap.NeuronKind:
		need(ec2nc.LabelInstanceAcceleratorCount, corev1.NodeSelectorOpExists)
	}
	return ec2nc.AMI{ID: i.id, Name: i.name, Deprecated: i.deprecated, Requirements: reqs}
}
