package bootstrap

import (
	"fmt"
	"net/netip"
	"strings"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// NameForm is how a kubelet names its Node.
type NameForm string

const (
	// NameUnknown: the form is unknown until the first node of the class has registered.
	NameUnknown NameForm = ""
	// NamePrivateDNS is the instance's private DNS name: ip-10-0-0-1.us-west-2.compute.internal, or i-….us-west-2.compute.internal in
	// subnets with resource names.
	NamePrivateDNS NameForm = "private-dns"
	// NameShortDNS is the first label of the private DNS name, which is the host name in many images.
	NameShortDNS NameForm = "short-dns"
	NameID       NameForm = "instance-id"
	// NameOther is a name that doesn't follow from anything EC2 knows.
	NameOther NameForm = "other"
)

// Known reports whether the name follows from what EC2 knows.
func (f NameForm) Known() bool { return f == NamePrivateDNS || f == NameShortDNS || f == NameID }

// ValidNodeName returns what is wrong with the class's objects.AnnotationNodeName.
func ValidNodeName(nc *ec2nc.EC2NodeClass) error {
	said, ok := nc.Annotations[objects.AnnotationNodeName]
	if !ok || NameForm(said).Known() {
		return nil
	}
	return fmt.Errorf("metadata.annotations[%s]: %q is none of %s, %s, %s", objects.AnnotationNodeName, said, NamePrivateDNS, NameShortDNS, NameID)
}

// Name returns the instance's node name; sure is false if it is a guess.
func (f NameForm) Name(i *capacity.Instance) (name string, sure bool) {
	switch f {
	case NameShortDNS:
		short, _, _ := strings.Cut(i.Hostname, ".")
		return short, true
	case NameID:
		if i.Hostname == "" {
			return "", true // as with the other forms, there is no name before EC2 shows the hostname
		}
		return i.ID, true
	case NamePrivateDNS:
		return i.Hostname, true
	}
	return i.Hostname, false
}

// NameFormOf returns how a class's nodes are named, by its annotation, its user data or its family.
func NameFormOf(spec *ec2nc.EC2NodeClassSpec, annotation string, f *Family) NameForm {
	if said := NameForm(annotation); said.Known() {
		return said
	}
	return f.nodeName(ownUserData(spec))
}

// NameFormSeen returns the form of a node's name, given the instance id and the address that the node reports. In an IPv6 cluster the node reports
// its IPv6 address, but EC2 builds the name from the private IPv4 address. So any IPv4 address in the name counts there.
func NameFormSeen(name, instanceID, internalIP string) NameForm {
	first, rest, dotted := strings.Cut(name, ".")
	inName, named := strings.CutPrefix(first, "ip-")
	reported, _ := netip.ParseAddr(internalIP)
	address, _ := netip.ParseAddr(strings.ReplaceAll(inName, "-", "."))
	byAddress := named && address.Is4() && (reported == address || reported.Is6())
	switch {
	case name == instanceID:
		return NameID
	case dotted && rest != "" && (byAddress || first == instanceID):
		return NamePrivateDNS
	case !dotted && byAddress:
		return NameShortDNS
	}
	return NameOther
}
