package aws

import (
	"fmt"
	"strings"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"

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

// validNodeName returns what is wrong with the class's objects.AnnotationNodeName.
func validNodeName(nc *ec2nc.EC2NodeClass) error {
	said, ok := nc.Annotations[objects.AnnotationNodeName]
	if !ok || nameForm(said).known() {
		return nil
	}
	return fmt.Errorf("metadata.annotations[%s]: %q is none of %s, %s, %s", objects.AnnotationNodeName, said, namePrivateDNS, nameShortDNS, nameID)
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
	return f.nodeName(ownUserData(spec))
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
