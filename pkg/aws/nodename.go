package aws

import (
	"fmt"
	"strings"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/pelletier/go-toml/v2"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// nameForm is how a kubelet names its Node.
type nameForm string

const (
	// nameUnknown: the form is unknown until the first node of the class has registered.
	nameUnknown nameForm = ""
	// namePrivateDNS is the instance's private DNS name: ip-10-0-0-1.us-west-2.compute.internal, or i-….us-west-2.compute.internal in
	// subnets with resource names.
	namePrivateDNS nameForm = "private-dns"
	// nameShortDNS is the first label of the private DNS name, which is the host name in many images.
	nameShortDNS nameForm = "short-dns"
	nameID       nameForm = "instance-id"
	// nameOther is a name that doesn't follow from anything EC2 knows.
	nameOther nameForm = "other"
)

func (f nameForm) known() bool { return f == namePrivateDNS || f == nameShortDNS || f == nameID }

// validNodeName says what is wrong with the class's objects.AnnotationNodeName; empty: nothing.
func validNodeName(nc *ec2nc.EC2NodeClass) string {
	said, ok := nc.Annotations[objects.AnnotationNodeName]
	if !ok || nameForm(said).known() {
		return ""
	}
	return fmt.Sprintf("metadata.annotations[%s]: %q is none of %s, %s, %s", objects.AnnotationNodeName, said, namePrivateDNS, nameShortDNS, nameID)
}

// of returns the instance's node name; sure is false if it is a guess.
func (f nameForm) of(i *capacity.Instance) (name string, sure bool) {
	switch f {
	case nameShortDNS:
		short, _, _ := strings.Cut(i.Hostname, ".")
		return short, true
	case nameID:
		if i.Hostname == "" {
			return "", true // as with the other forms, there is no name before EC2 shows the hostname
		}
		return i.ID, true
	case namePrivateDNS:
		return i.Hostname, true
	}
	return i.Hostname, false
}

// nameFormOf returns how a class's nodes are named, by its annotation, its user data or its family.
func nameFormOf(spec *ec2nc.EC2NodeClassSpec, annotation string, f *family) nameForm {
	if said := nameForm(annotation); said.known() {
		return said
	}
	own := ""
	if spec.UserData != nil {
		own = *spec.UserData
	}
	switch f.name {
	case ec2nc.AMIFamilyCustom:
		return nameUnknown
	case ec2nc.AMIFamilyAL2023:
		if namesByID(own) {
			return nameID
		}
	case ec2nc.AMIFamilyBottlerocket:
		var doc struct {
			Settings struct {
				Kubernetes struct {
					Override string `toml:"hostname-override"`
					Source   string `toml:"hostname-override-source"`
				} `toml:"kubernetes"`
			} `toml:"settings"`
		}
		if err := toml.Unmarshal([]byte(own), &doc); err == nil {
			switch k := doc.Settings.Kubernetes; {
			case k.Override != "":
				return nameOther
			case k.Source == "instance-id":
				return nameID
			}
		}
	}
	return namePrivateDNS
}

// namesByID reports whether a NodeConfig in the user data enables nodeadm's feature that names nodes by instance id.
func namesByID(own string) bool {
	parts, err := ownParts(own)
	if err != nil {
		return false
	}
	for _, p := range parts {
		var c struct {
			Spec struct {
				FeatureGates map[string]bool `json:"featureGates"`
			} `json:"spec"`
		}
		if strings.HasPrefix(p.contentType, nodeConfigType) && yaml.Unmarshal([]byte(p.body), &c) == nil && c.Spec.FeatureGates["InstanceIdNodeName"] {
			return true
		}
	}
	return false
}

// nameFormSeen returns the form of a node's name, given the instance id and the address that the node reports.
func nameFormSeen(name, instanceID, internalIP string) nameForm {
	first, rest, dotted := strings.Cut(name, ".")
	byAddress := internalIP != "" && first == "ip-"+strings.ReplaceAll(internalIP, ".", "-")
	switch {
	case name == instanceID:
		return nameID
	case dotted && rest != "" && (byAddress || first == instanceID):
		return namePrivateDNS
	case !dotted && byAddress:
		return nameShortDNS
	}
	return nameOther
}
