package aws

import (
	"fmt"
	"strings"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
)

// family is an image family: how its images are found, how its nodes start, and how its kubelet interprets settings.
type family struct {
	name string
	// rootDevice holds the kubelet's files; empty: not known.
	rootDevice string
	// volumes are the family's default block devices.
	volumes []volume
	// os, empty: linux; build is the Windows build number.
	os, build string
	// defaultPods is the number of pods unless the class sets it; 0: as many as the network interfaces allow.
	defaultPods int64
	// tellsReserved: user data must contain the reservations for kubelet and runtime, because the image has no default for them.
	tellsReserved bool
	// eniMemory: memory is reserved for as many pods as the network interfaces allow, whatever maxPods is.
	eniMemory bool
	// podsPerCore: the family's kubelet honours the setting.
	podsPerCore bool
	// join: user data needs the cluster's endpoint, certificate and service range.
	join bool
	// aliases returns the SSM parameters that hold the image ids of a release.
	aliases func(kubernetes, version string) []imageAlias
}

type volume struct {
	device  string
	sizeGiB int64
}

// imageAlias is an SSM parameter and the kinds of instance that its image is for.
type imageAlias struct {
	path  string
	arch  string
	kinds []accelerator
}

// accelerator is the kind of device an image has drivers for.
type accelerator string

const (
	anyKind    accelerator = ""         // not known: nothing is ruled out
	noneKind   accelerator = "standard" // for instances without accelerators
	nvidiaKind accelerator = "nvidia"   // for instances with GPUs
	neuronKind accelerator = "neuron"   // for instances with Inferentia or Trainium
)

const latest = "latest"

var families = map[string]*family{
	ec2nc.AMIFamilyAL2023: {
		name: ec2nc.AMIFamilyAL2023, rootDevice: "/dev/xvda", volumes: []volume{{"/dev/xvda", 20}},
		eniMemory: true, podsPerCore: true, join: true, aliases: al2023Images,
	},
	ec2nc.AMIFamilyBottlerocket: {
		name: ec2nc.AMIFamilyBottlerocket, rootDevice: "/dev/xvdb", volumes: []volume{{"/dev/xvda", 4}, {"/dev/xvdb", 20}},
		join: true, aliases: bottlerocketImages,
	},
	ec2nc.AMIFamilyCustom:      {name: ec2nc.AMIFamilyCustom, eniMemory: true, podsPerCore: true},
	ec2nc.AMIFamilyWindows2019: windowsFamily(ec2nc.AMIFamilyWindows2019, ec2nc.Windows2019, ec2nc.Windows2019Build),
	ec2nc.AMIFamilyWindows2022: windowsFamily(ec2nc.AMIFamilyWindows2022, ec2nc.Windows2022, ec2nc.Windows2022Build),
	ec2nc.AMIFamilyWindows2025: windowsFamily(ec2nc.AMIFamilyWindows2025, ec2nc.Windows2025, ec2nc.Windows2025Build),
}

func (f *family) windows() bool { return f.os == "windows" }

const noAL2 = "AL2 has no images for Kubernetes 1.33 and newer; use AL2023 or Bottlerocket"

// familyOf returns the image family of a class and, if it has an alias, the release; problem explains what is wrong with the fields.
func familyOf(spec *ec2nc.EC2NodeClassSpec) (f *family, release, problem string) {
	name := ""
	aliasFamily := ""
	for i, t := range spec.AMISelectorTerms {
		if t.Alias == "" {
			continue
		}
		fam, version, ok := strings.Cut(t.Alias, "@")
		if !ok || version == "" {
			return nil, "", fmt.Sprintf("spec.amiSelectorTerms[%d].alias: %q is not family@version", i, t.Alias)
		}
		if aliasFamily = familyByAlias(fam); aliasFamily == "" {
			return nil, "", fmt.Sprintf("spec.amiSelectorTerms[%d].alias: %q is not a known family", i, fam)
		}
		if len(spec.AMISelectorTerms) > 1 {
			return nil, "", fmt.Sprintf("spec.amiSelectorTerms[%d].alias: must be the only term", i)
		}
		name, release = aliasFamily, version
	}
	if spec.AMIFamily != nil {
		name = *spec.AMIFamily
		if aliasFamily != "" && name != aliasFamily && name != ec2nc.AMIFamilyCustom {
			return nil, "", fmt.Sprintf("spec.amiFamily: %s contradicts the alias, which is of family %s", name, aliasFamily)
		}
	}
	switch {
	case name == "":
		return nil, "", "spec.amiFamily: required when no term is an alias"
	case aliasFamily == ec2nc.AMIFamilyAL2:
		return nil, "", "spec.amiSelectorTerms[0].alias: " + noAL2
	case name == ec2nc.AMIFamilyAL2:
		return nil, "", "spec.amiFamily: " + noAL2
	}
	f, ok := families[name]
	if !ok {
		return nil, "", fmt.Sprintf("spec.amiFamily: %s is not supported", name)
	}
	if f.windows() && release != "" && release != latest {
		return nil, "", fmt.Sprintf("spec.amiSelectorTerms[0].alias: of %s only the newest image can be found: use @latest", name)
	}
	return f, release, ""
}

// aliasImages returns the parameters of the class's alias. They are those of the alias' own family even if amiFamily is Custom.
func aliasImages(spec *ec2nc.EC2NodeClassSpec, kubernetes string) []imageAlias {
	for _, t := range spec.AMISelectorTerms {
		if fam, version, ok := strings.Cut(t.Alias, "@"); ok {
			if f := families[familyByAlias(fam)]; f != nil && f.aliases != nil {
				return f.aliases(kubernetes, version)
			}
		}
	}
	return nil
}

func familyByAlias(alias string) string {
	for _, f := range []string{ec2nc.AMIFamilyAL2, ec2nc.AMIFamilyAL2023, ec2nc.AMIFamilyBottlerocket,
		ec2nc.AMIFamilyWindows2019, ec2nc.AMIFamilyWindows2022, ec2nc.AMIFamilyWindows2025} {
		if strings.EqualFold(f, alias) {
			return f
		}
	}
	return ""
}

// al2023Images follows docs.aws.amazon.com/eks/latest/userguide/retrieve-ami-id.html.
func al2023Images(kubernetes, version string) []imageAlias {
	var out []imageAlias
	for _, v := range []struct {
		arch, kube string
		kind       accelerator
	}{
		{"x86_64", "amd64", noneKind}, {"x86_64", "amd64", nvidiaKind}, {"x86_64", "amd64", neuronKind},
		{"arm64", "arm64", noneKind}, {"arm64", "arm64", nvidiaKind},
	} {
		release := "recommended"
		if version != latest {
			release = fmt.Sprintf("amazon-eks-node-al2023-%s-%s-%s-%s", v.arch, v.kind, kubernetes, version)
		}
		out = append(out, imageAlias{arch: v.kube, kinds: []accelerator{v.kind},
			path: fmt.Sprintf("/aws/service/eks/optimized-ami/%s/amazon-linux-2023/%s/%s/%s/image_id", kubernetes, v.arch, v.kind, release)})
	}
	return out
}

// bottlerocketImages returns Bottlerocket's parameters. Releases have a v in their names, but not in the parameters' names.
func bottlerocketImages(kubernetes, version string) []imageAlias {
	version = strings.TrimPrefix(version, "v")
	var out []imageAlias
	for _, v := range []struct {
		variant, arch, kube string
		kinds               []accelerator
	}{
		{"", "x86_64", "amd64", []accelerator{noneKind, neuronKind}}, {"", "arm64", "arm64", []accelerator{noneKind}},
		{"-nvidia", "x86_64", "amd64", []accelerator{nvidiaKind}}, {"-nvidia", "arm64", "arm64", []accelerator{nvidiaKind}},
	} {
		out = append(out, imageAlias{arch: v.kube, kinds: v.kinds,
			path: fmt.Sprintf("/aws/service/bottlerocket/aws-k8s-%s%s/%s/%s/image_id", kubernetes, v.variant, v.arch, version)})
	}
	return out
}
