package aws

import (
	"errors"
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
	// gpuLabel is the label that kubelets have on instances with NVIDIA GPUs; empty: none.
	gpuLabel string
	// never are the instance families that the images don't run on.
	never []string
	// aliases returns the SSM parameters that hold the image ids of a release; nil: the family has no aliases.
	aliases func(kubernetes, version string) []imageAlias
	// userData returns what an instance starts with, not encoded. own is the class's user data, which is merged in; where they differ, what
	// the node needs to join wins.
	userData func(spec *ec2nc.EC2NodeClassSpec, j *joined, b boot, own string) (string, error)
	// nodeName returns how nodes are named, which the class's user data may determine.
	nodeName func(own string) nameForm
	// unused names the fields of a class that have no effect on nodes of the family, with the reason; nil: all have one.
	unused func(spec *ec2nc.EC2NodeClassSpec) []string
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

// families are all families. A new one is a file with its variable, and a line here.
var families = map[string]*family{
	al2023.name: al2023, bottlerocket.name: bottlerocket, custom.name: custom,
	windows2019.name: windows2019, windows2022.name: windows2022, windows2025.name: windows2025,
}

func (f *family) windows() bool { return f.os == "windows" }

const noAL2 = "AL2 has no images for Kubernetes 1.33 and newer; use AL2023 or Bottlerocket"

// familyOf returns the image family of a class and, if it has an alias, the release; the error names what is wrong with the fields.
func familyOf(spec *ec2nc.EC2NodeClassSpec) (f *family, release string, err error) {
	name := ""
	aliasFamily := ""
	for i, t := range spec.AMISelectorTerms {
		if t.Alias == "" {
			continue
		}
		fam, version, ok := strings.Cut(t.Alias, "@")
		if !ok || version == "" {
			return nil, "", fmt.Errorf("spec.amiSelectorTerms[%d].alias: %q is not family@version", i, t.Alias)
		}
		if aliasFamily = familyByAlias(fam); aliasFamily == "" {
			return nil, "", fmt.Errorf("spec.amiSelectorTerms[%d].alias: %q is not a known family", i, fam)
		}
		if len(spec.AMISelectorTerms) > 1 {
			return nil, "", fmt.Errorf("spec.amiSelectorTerms[%d].alias: must be the only term", i)
		}
		name, release = aliasFamily, version
	}
	if spec.AMIFamily != nil {
		name = *spec.AMIFamily
		if aliasFamily != "" && name != aliasFamily && name != ec2nc.AMIFamilyCustom {
			return nil, "", fmt.Errorf("spec.amiFamily: %s contradicts the alias, which is of family %s", name, aliasFamily)
		}
	}
	switch {
	case name == "":
		return nil, "", errors.New("spec.amiFamily: required when no term is an alias")
	case aliasFamily == ec2nc.AMIFamilyAL2:
		return nil, "", errors.New("spec.amiSelectorTerms[0].alias: " + noAL2)
	case name == ec2nc.AMIFamilyAL2:
		return nil, "", errors.New("spec.amiFamily: " + noAL2)
	}
	f, ok := families[name]
	if !ok {
		return nil, "", fmt.Errorf("spec.amiFamily: %s is not supported", name)
	}
	if f.windows() && release != "" && release != latest {
		return nil, "", fmt.Errorf("spec.amiSelectorTerms[0].alias: of %s only the newest image can be found: use @latest", name)
	}
	return f, release, nil
}

// aliasImages returns the parameters of the class's alias. They are those of the alias' own family even if amiFamily is Custom.
func aliasImages(spec *ec2nc.EC2NodeClassSpec, kubernetes string) []imageAlias {
	for _, t := range spec.AMISelectorTerms {
		if fam, version, ok := strings.Cut(t.Alias, "@"); ok {
			if f := families[familyByAlias(fam)]; f != nil {
				return f.aliases(kubernetes, version)
			}
		}
	}
	return nil
}

func familyByAlias(alias string) string {
	if strings.EqualFold(alias, ec2nc.AMIFamilyAL2) {
		return ec2nc.AMIFamilyAL2
	}
	for name, f := range families {
		if f.aliases != nil && strings.EqualFold(name, alias) {
			return name
		}
	}
	return ""
}
