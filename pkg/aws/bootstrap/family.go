package bootstrap

import (
	"errors"
	"fmt"
	"strings"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
)

// Family is an image family: how its images are found, how its nodes start, and how its kubelet interprets settings.
type Family struct {
	name string
	// RootDevice holds the kubelet's files; empty: not known.
	RootDevice string
	// Volumes are the family's default block devices.
	Volumes []Volume
	// OS, empty: linux; Build is the Windows build number.
	OS, Build string
	// DefaultPods is the number of pods unless the class sets it; 0: as many as the network interfaces allow.
	DefaultPods int64
	// TellsReserved: user data must contain the reservations for kubelet and runtime, because the image has no default for them.
	TellsReserved bool
	// ENIMemory: memory is reserved for as many pods as the network interfaces allow, whatever maxPods is.
	ENIMemory bool
	// PodsPerCore: the family's kubelet honours the setting.
	PodsPerCore bool
	// NeedsCluster: user data needs the cluster's endpoint, certificate and service range.
	NeedsCluster bool
	// GPULabel is the key of the label that the kubelet sets on Nodes with NVIDIA GPUs; empty: it sets none.
	GPULabel string
	// Unsupported are the instance families that the images don't run on.
	Unsupported []string
	// aliases returns the SSM parameters that hold the image ids of a release; nil: the family has no aliases.
	aliases func(kubernetes, version string) []ImageAlias
	// userData returns what an instance starts with, not encoded. own is the class's user data, which is merged in; where they differ, what
	// the node needs to join wins.
	userData func(spec *ec2nc.EC2NodeClassSpec, j *Cluster, b Node, own string) (string, error)
	// nodeName returns how nodes are named, which the class's user data may determine.
	nodeName func(own string) NameForm
	// ownKubelet returns the kubelet settings in the class's user data; nil: those of this family are not read.
	ownKubelet func(own string) (*Kubelet, error)
	// Unused names the fields of a class that have no effect on nodes of the family, with the reason; nil: all have one.
	Unused func(spec *ec2nc.EC2NodeClassSpec) []string
}

// Volume is a block device and its default size.
type Volume struct {
	Device  string
	SizeGiB int64
}

// ImageAlias is an SSM parameter and the kinds of instance that its image is for.
type ImageAlias struct {
	Path  string
	Arch  string
	Kinds []Accelerator
}

// Accelerator is the kind of device an image has drivers for.
type Accelerator string

// The kinds of images.
const (
	AnyKind    Accelerator = ""         // not known: nothing is ruled out
	NoneKind   Accelerator = "standard" // for instances without accelerators
	NVIDIAKind Accelerator = "nvidia"   // for instances with GPUs
	NeuronKind Accelerator = "neuron"   // for instances with Inferentia or Trainium
)

const latest = "latest"

// families are all families. A new one is a file with its variable, and a line here.
var families = map[string]*Family{
	AL2023.name: AL2023, bottlerocket.name: bottlerocket, Custom.name: Custom,
	windows2019.name: windows2019, windows2022.name: windows2022, windows2025.name: windows2025,
}

// Windows reports whether the family's nodes run Windows.
func (f *Family) Windows() bool { return f.OS == "windows" }

const noAL2 = "AL2 has no images for Kubernetes 1.33 and newer; use AL2023 or Bottlerocket"

// FamilyOf returns the image family of a class; the error names what is wrong with the fields.
func FamilyOf(spec *ec2nc.EC2NodeClassSpec) (*Family, error) {
	var name, aliasFamily, release string
	for i, t := range spec.AMISelectorTerms {
		if t.Alias == "" {
			continue
		}
		fam, version, ok := strings.Cut(t.Alias, "@")
		if !ok || version == "" {
			return nil, fmt.Errorf("spec.amiSelectorTerms[%d].alias: %q is not family@version", i, t.Alias)
		}
		if aliasFamily = familyByAlias(fam); aliasFamily == "" {
			return nil, fmt.Errorf("spec.amiSelectorTerms[%d].alias: %q is not a known family", i, fam)
		}
		if len(spec.AMISelectorTerms) > 1 {
			return nil, fmt.Errorf("spec.amiSelectorTerms[%d].alias: must be the only term", i)
		}
		name, release = aliasFamily, version
	}
	if spec.AMIFamily != nil {
		name = *spec.AMIFamily
		if aliasFamily != "" && name != aliasFamily && name != ec2nc.AMIFamilyCustom {
			return nil, fmt.Errorf("spec.amiFamily: %s contradicts the alias, which is of family %s", name, aliasFamily)
		}
	}
	switch {
	case name == "":
		return nil, errors.New("spec.amiFamily: required when no term is an alias")
	case aliasFamily == ec2nc.AMIFamilyAL2:
		return nil, errors.New("spec.amiSelectorTerms[0].alias: " + noAL2)
	case name == ec2nc.AMIFamilyAL2:
		return nil, errors.New("spec.amiFamily: " + noAL2)
	}
	f, ok := families[name]
	if !ok {
		return nil, fmt.Errorf("spec.amiFamily: %s is not supported", name)
	}
	if f.Windows() && release != "" && release != latest {
		return nil, fmt.Errorf("spec.amiSelectorTerms[0].alias: of %s only the newest image can be found: use @latest", name)
	}
	return f, nil
}

// AliasImages returns the parameters of the class's alias. They are those of the alias' own family even if amiFamily is Custom.
func AliasImages(spec *ec2nc.EC2NodeClassSpec, kubernetes string) []ImageAlias {
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
