package ec2

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// launchData is the content of a launch template, or RunInstances' parameters.
type launchData struct {
	image, typ, profile, subnet string
	groups                      []string
	userData                    []byte
	// tags by resource type: instance, volume, network-interface, spot-instances-request.
	tags       map[string]map[string]string
	market     string // spot, capacity-block, interruptible-capacity-reservation; empty: on demand
	volumes    []Volume
	interfaces []Interface
	metadata   Metadata
	placement  Placement
	monitoring bool
	nested     string
	enclave    bool
	// preference and reservation are the capacity reservation specification.
	preference, reservation string
	// instanceLevel: it names a subnet or security groups outside its interfaces.
	instanceLevel bool
}

// Metadata holds the instance metadata options of an instance.
type Metadata struct {
	Endpoint, IPv6, Tokens, Tags string
	HopLimit                     int
}

// Volume is an EBS volume attached at launch. Numbers are 0 if they were not given.
type Volume struct {
	Device, Type, KMSKey, Snapshot       string
	GiB                                  int64
	IOPS, Throughput, InitializationRate int
	Encrypted, KeptOnTermination         bool
	Tags                                 map[string]string
	id                                   string
}

// Interface is a network interface created at launch. Public is nil if the subnet decides.
type Interface struct {
	Card, Device                 int
	Type                         string
	Public                       *bool
	Groups                       []string
	IPv4Prefixes, IPv6Prefixes   int
	IPv6Addresses                int
	PrimaryIPv6                  bool
	TCPEstablishedTimeout        int // seconds; 0: EC2's default, also for the next two
	UDPStreamTimeout, UDPTimeout int
	Tags                         map[string]string

	id, ipv6 string
}

// Placement is the requested, and then the actual, placement of an instance.
type Placement struct {
	Group, GroupID, Tenancy string
	Partition               int
}

func (w *world) parseLaunchData(p *params) (*launchData, error) {
	if err := p.checkTagSpecifications(taggedAtLaunch...); err != nil {
		return nil, err
	}
	d := &launchData{
		image: p.str("ImageId"), typ: p.str("InstanceType"), profile: p.str("IamInstanceProfile.Name"), subnet: p.str("SubnetId"),
		groups: p.strs("SecurityGroupId"), market: p.str("InstanceMarketOptions.MarketType"), monitoring: p.bool("Monitoring.Enabled"),
		nested: p.str("CpuOptions.NestedVirtualization"), enclave: p.bool("EnclaveOptions.Enabled"), tags: map[string]map[string]string{},
		preference:  p.str("CapacityReservationSpecification.CapacityReservationPreference"),
		reservation: p.str("CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId"),
		metadata: Metadata{Endpoint: p.str("MetadataOptions.HttpEndpoint"), IPv6: p.str("MetadataOptions.HttpProtocolIpv6"),
			Tokens: p.str("MetadataOptions.HttpTokens"), Tags: p.str("MetadataOptions.InstanceMetadataTags")},
		placement: Placement{Group: p.str("Placement.GroupName"), GroupID: p.str("Placement.GroupId"), Tenancy: p.str("Placement.Tenancy")},
	}
	if arn := p.str("IamInstanceProfile.Arn"); arn != "" {
		d.profile = arn[strings.LastIndex(arn, "/")+1:]
	}
	if p != nil {
		for _, kind := range taggedAtLaunch {
			if tags := p.tagsFor(kind); len(tags) > 0 {
				d.tags[kind] = tags
			}
		}
	}
	if d.reservation != "" && d.preference != "" && d.preference != "capacity-reservations-only" {
		return nil, failf("InvalidParameterCombination", "A capacity reservation can't be targeted with the preference %s", d.preference)
	}
	read := &numbers{}
	d.metadata.HopLimit = read.of(p, "MetadataOptions.HttpPutResponseHopLimit")
	d.placement.Partition = read.of(p, "Placement.PartitionNumber")
	d.instanceLevel = d.subnet != "" || len(d.groups) > 0
	for _, ni := range p.list("NetworkInterface") {
		if s := ni.str("SubnetId"); s != "" {
			d.subnet = s
		}
		d.groups = append(d.groups, ni.strs("SecurityGroupId")...)
		d.interfaces = append(d.interfaces, parseInterface(ni, read))
	}
	for _, b := range p.list("BlockDeviceMapping") {
		d.volumes = append(d.volumes, Volume{
			Device: b.str("DeviceName"), Type: b.str("Ebs.VolumeType"), KMSKey: b.str("Ebs.KmsKeyId"), Snapshot: b.str("Ebs.SnapshotId"),
			GiB: int64(read.of(b, "Ebs.VolumeSize")), IOPS: read.of(b, "Ebs.Iops"), Throughput: read.of(b, "Ebs.Throughput"),
			InitializationRate: read.of(b, "Ebs.VolumeInitializationRate"), Encrypted: b.bool("Ebs.Encrypted"),
			KeptOnTermination: b.str("Ebs.DeleteOnTermination") == "false",
		})
	}
	if read.err != nil {
		return nil, read.err
	}
	if err := checkInterfaces(d.interfaces); err != nil {
		return nil, err
	}
	var err error
	if d.userData, err = base64.StdEncoding.DecodeString(p.str("UserData")); err != nil {
		return nil, failf("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.")
	}
	if len(d.userData) > 16<<10 {
		return nil, failf("InvalidParameterValue", "User data is limited to 16384 bytes")
	}
	return d, nil
}

var taggedAtLaunch = []string{"instance", "volume", "network-interface", "spot-instances-request"}

// numbers reads numbers and keeps the first error.
type numbers struct{ err error }

func (n *numbers) of(p *params, path string) int {
	v, err := p.number(path, 0)
	if err != nil && n.err == nil {
		n.err = err
	}
	return v
}

func parseInterface(ni *params, read *numbers) Interface {
	out := Interface{
		Card: read.of(ni, "NetworkCardIndex"), Device: read.of(ni, "DeviceIndex"), Type: ni.str("InterfaceType"), Groups: ni.strs("SecurityGroupId"),
		IPv4Prefixes: read.of(ni, "Ipv4PrefixCount"), IPv6Prefixes: read.of(ni, "Ipv6PrefixCount"), IPv6Addresses: read.of(ni, "Ipv6AddressCount"),
		PrimaryIPv6:           ni.bool("PrimaryIpv6"),
		TCPEstablishedTimeout: read.of(ni, "ConnectionTrackingSpecification.TcpEstablishedTimeout"),
		UDPStreamTimeout:      read.of(ni, "ConnectionTrackingSpecification.UdpStreamTimeout"),
		UDPTimeout:            read.of(ni, "ConnectionTrackingSpecification.UdpTimeout"),
	}
	if out.Type == "" {
		out.Type = "interface"
	}
	if v := ni.str("AssociatePublicIpAddress"); v != "" {
		yes := v == "true"
		out.Public = &yes
	}
	return out
}

// checkInterfaces refuses interfaces that EC2 refuses for every instance type.
func checkInterfaces(all []Interface) error {
	public, ena := false, 0
	for _, n := range all {
		if n.Type != "efa-only" {
			ena++
		} else if n.Public != nil || n.IPv4Prefixes+n.IPv6Prefixes+n.IPv6Addresses > 0 {
			return failf("InvalidParameterValue", "An efa-only interface has no IP addresses")
		}
		public = public || n.Public != nil && *n.Public
	}
	if public && ena > 1 {
		return failf("InvalidParameterCombination", "Network interfaces with a public IP address can't be specified with more than one network interface")
	}
	return nil
}

// over returns the data of a template overridden by that of a request.
func (d *launchData) over(base *launchData) *launchData {
	out := *base
	for _, f := range []struct {
		to   *string
		from string
	}{{&out.image, d.image}, {&out.typ, d.typ}, {&out.profile, d.profile}, {&out.subnet, d.subnet}, {&out.reservation, d.reservation},
		{&out.preference, d.preference}, {&out.market, d.market}, {&out.nested, d.nested}} {
		if f.from != "" {
			*f.to = f.from
		}
	}
	if len(d.groups) > 0 {
		out.groups = d.groups
	}
	if len(d.userData) > 0 {
		out.userData = d.userData
	}
	if len(d.volumes) > 0 {
		out.volumes = d.volumes
	}
	if len(d.interfaces) > 0 {
		out.interfaces = d.interfaces
	}
	if d.placement != (Placement{}) {
		out.placement = d.placement
	}
	out.monitoring = out.monitoring || d.monitoring
	out.enclave = out.enclave || d.enclave
	out.instanceLevel = out.instanceLevel || d.instanceLevel
	return (&out).tagged(d.tags)
}

// tagged returns the data with more tags, by resource type.
func (d *launchData) tagged(more map[string]map[string]string) *launchData {
	out := *d
	out.tags = map[string]map[string]string{}
	for _, kind := range taggedAtLaunch {
		if tags := merged(d.tags[kind], more[kind]); len(tags) > 0 {
			out.tags[kind] = tags
		}
	}
	return &out
}

func merged(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, b)
	return out
}

// rootGiB returns the size of the volume that holds the kubelet's files: the largest one, because Bottlerocket's system volume is
// small.
func rootGiB(volumes []Volume) int64 {
	out := int64(8)
	for _, v := range volumes {
		out = max(out, v.GiB)
	}
	return out
}

// allVolumes returns the volumes of an instance: the requested ones, and the image's own that the request doesn't mention.
func (d *launchData) allVolumes(im *image) []Volume {
	out := slices.Clone(d.volumes)
	if im == nil {
		return out
	}
	for _, own := range im.devices {
		if !slices.ContainsFunc(out, func(v Volume) bool { return v.Device == own.name }) {
			out = append(out, Volume{Device: own.name, GiB: own.gib, Type: "gp3"})
		}
	}
	return out
}

// equip sets the options of a new instance from its launch data, with EC2's defaults for the rest.
func (w *world) equip(in *instance, d *launchData) {
	in.Metadata = d.metadata
	for _, f := range []struct {
		to  *string
		def string
	}{{&in.Metadata.Endpoint, "enabled"}, {&in.Metadata.IPv6, "disabled"}, {&in.Metadata.Tokens, "optional"}, {&in.Metadata.Tags, "disabled"}} {
		if *f.to == "" {
			*f.to = f.def
		}
	}
	if in.Metadata.HopLimit == 0 {
		in.Metadata.HopLimit = 1
	}
	in.Monitoring, in.NestedVirtualization, in.Enclave, in.Preference = d.monitoring, d.nested == "enabled", d.enclave, d.preference
	if in.CapacityType == spot {
		in.SpotRequestTags = d.tags["spot-instances-request"]
	}
	in.Volumes = d.allVolumes(w.image(d.image))
	for i := range in.Volumes {
		in.Volumes[i].id = w.id("vol")
		in.Volumes[i].Tags = d.tags["volume"]
	}
	in.Interfaces = slices.Clone(d.interfaces)
	if len(in.Interfaces) == 0 {
		in.Interfaces = []Interface{{Type: "interface", Groups: d.groups}}
	}
	for i := range in.Interfaces {
		n := &in.Interfaces[i]
		n.id, n.Tags = w.id("eni"), d.tags["network-interface"]
		if n.IPv6Addresses > 0 {
			n.ipv6 = w.ipv6(in, i)
		}
	}
	in.rootGiB = rootGiB(in.Volumes)
}

// ipv6 returns an address in the made-up IPv6 network of a subnet, derived from the IPv4 address.
func (w *world) ipv6(in *instance, i int) string {
	b := in.addr.As4()
	return fmt.Sprintf("2001:db8:%x::%x:%s", b[2]/32, int(b[2])<<8|int(b[3]), strconv.Itoa(i))
}
