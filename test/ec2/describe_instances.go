package ec2

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

type instanceItem struct {
	ID         string    `xml:"instanceId"`
	Image      string    `xml:"imageId"`
	State      stateItem `xml:"instanceState"`
	PrivateDNS string    `xml:"privateDnsName"`
	DNS        string    `xml:"dnsName"`
	Reason     string    `xml:"reason,omitempty"`
	Index      int       `xml:"amiLaunchIndex"`
	Type       string    `xml:"instanceType"`
	Launched   string    `xml:"launchTime"`
	Placement  struct {
		Zone      string `xml:"availabilityZone"`
		ZoneID    string `xml:"availabilityZoneId"`
		Tenancy   string `xml:"tenancy"`
		Group     string `xml:"groupName,omitempty"`
		GroupID   string `xml:"groupId,omitempty"`
		Partition int    `xml:"partitionNumber,omitempty"`
	} `xml:"placement"`
	Subnet       string        `xml:"subnetId,omitempty"`
	VPC          string        `xml:"vpcId,omitempty"`
	IP           string        `xml:"privateIpAddress,omitempty"`
	Arch         string        `xml:"architecture"`
	RootType     string        `xml:"rootDeviceType"`
	Root         string        `xml:"rootDeviceName"`
	Virtual      string        `xml:"virtualizationType"`
	Token        string        `xml:"clientToken"`
	Hypervisor   string        `xml:"hypervisor"`
	Lifecycle    string        `xml:"instanceLifecycle,omitempty"`
	Reservation  string        `xml:"capacityReservationId,omitempty"`
	SpotRequest  string        `xml:"spotInstanceRequestId,omitempty"`
	EBSOptimized bool          `xml:"ebsOptimized"`
	Platform     string        `xml:"platformDetails"`
	Profile      *profileRef   `xml:"iamInstanceProfile"`
	Groups       []groupRef    `xml:"groupSet>item"`
	Interfaces   []nicItem     `xml:"networkInterfaceSet>item"`
	IPv6         string        `xml:"ipv6Address,omitempty"`
	Monitoring   string        `xml:"monitoring>state"`
	Enclave      bool          `xml:"enclaveOptions>enabled"`
	Metadata     *metadataItem `xml:"metadataOptions"`
	Devices      []volumeItem  `xml:"blockDeviceMapping>item"`
	Capacity     *capacityItem `xml:"capacityReservationSpecification"`
	StateReason  *stateReason  `xml:"stateReason"`
	Tags         []tagItem     `xml:"tagSet>item"`
	NameOptions  *nameOptions  `xml:"privateDnsNameOptions"`
	CPU          *instanceCPUs `xml:"cpuOptions"`
}

type stateItem struct {
	Code int    `xml:"code"`
	Name string `xml:"name"`
}

type profileRef struct {
	ARN string `xml:"arn"`
	ID  string `xml:"id"`
}

type groupRef struct {
	ID   string `xml:"groupId"`
	Name string `xml:"groupName"`
}

type nicItem struct {
	ID     string   `xml:"networkInterfaceId"`
	Subnet string   `xml:"subnetId"`
	VPC    string   `xml:"vpcId"`
	Status string   `xml:"status"`
	IP     string   `xml:"privateIpAddress,omitempty"`
	DNS    string   `xml:"privateDnsName,omitempty"`
	Type   string   `xml:"interfaceType"`
	Card   int      `xml:"attachment>networkCardIndex"`
	Device int      `xml:"attachment>deviceIndex"`
	IPv6   []string `xml:"ipv6AddressesSet>item>ipv6Address,omitempty"`
}

type metadataItem struct {
	State    string `xml:"state"`
	Tokens   string `xml:"httpTokens"`
	HopLimit int    `xml:"httpPutResponseHopLimit"`
	Endpoint string `xml:"httpEndpoint"`
	IPv6     string `xml:"httpProtocolIpv6"`
	Tags     string `xml:"instanceMetadataTags"`
}

type volumeItem struct {
	Device string `xml:"deviceName"`
	ID     string `xml:"ebs>volumeId"`
	Status string `xml:"ebs>status"`
	Delete bool   `xml:"ebs>deleteOnTermination"`
}

// capacityItem describes how an instance was requested to use capacity reservations.
type capacityItem struct {
	Preference string `xml:"capacityReservationPreference,omitempty"`
	Target     string `xml:"capacityReservationTarget>capacityReservationId,omitempty"`
}

type stateReason struct {
	Code    string `xml:"code"`
	Message string `xml:"message"`
}

type nameOptions struct {
	Type string `xml:"hostnameType"`
}

type instanceCPUs struct {
	Cores   int    `xml:"coreCount"`
	Threads int    `xml:"threadsPerCore"`
	Nested  string `xml:"nestedVirtualization,omitempty"`
}

type reservationItem struct {
	ID        string         `xml:"reservationId"`
	Owner     string         `xml:"ownerId"`
	Instances []instanceItem `xml:"instancesSet>item"`
}

// networkShown reports whether Describe shows the instance's addresses yet.
func (w *world) networkShown(in *instance) bool {
	return in.State == running || in.State == pending && !w.cfg.HideNetworkWhilePending
}

func (w *world) instanceItem(in *instance) instanceItem {
	item := instanceItem{
		ID: in.ID, Image: in.ImageID, State: stateItem{stateCodes[in.State], in.State}, Type: in.Type, Launched: timestamp(in.Launched), Arch: in.typ.Arch[len(in.typ.Arch)-1],
		RootType: "ebs", Root: "/dev/xvda", Virtual: "hvm", Token: in.ClientToken, Hypervisor: "xen", Reservation: in.Reservation, EBSOptimized: true,
		Platform: "Linux/UNIX", Tags: tagItems(in.Tags), NameOptions: &nameOptions{w.hostnameType()}, CPU: &instanceCPUs{max(1, in.typ.VCPUs/2), 2, ""},
		Monitoring: "disabled", Enclave: in.Enclave,
		Metadata: &metadataItem{"applied", in.Metadata.Tokens, in.Metadata.HopLimit, in.Metadata.Endpoint, in.Metadata.IPv6, in.Metadata.Tags},
		Capacity: &capacityItem{Preference: in.Preference},
	}
	p := &item.Placement
	p.Zone, p.ZoneID, p.Tenancy = in.Zone, in.subnet.zoneID, in.Placement.Tenancy
	p.Group, p.GroupID, p.Partition = in.Placement.Group, in.Placement.GroupID, in.Placement.Partition
	if in.Monitoring {
		item.Monitoring = "enabled"
	}
	if in.NestedVirtualization {
		item.CPU.Nested = "enabled"
	}
	if in.Preference == "capacity-reservations-only" {
		item.Capacity.Target = in.Reservation
	}
	for _, v := range in.Volumes {
		item.Devices = append(item.Devices, volumeItem{v.Device, v.id, "attached", !v.KeptOnTermination})
	}
	switch {
	case in.CapacityType == spot:
		item.Lifecycle, item.SpotRequest = spot, spotRequestID(in)
	case in.Market != "":
		item.Lifecycle = in.Market
	}
	if in.Reason != "" {
		code, message, _ := strings.Cut(in.Reason, ": ")
		item.Reason, item.StateReason = message, &stateReason{code, in.Reason}
	}
	if p := w.profiles[in.Profile]; p != nil {
		item.Profile = &profileRef{p.arn(w), p.id}
	}
	if w.networkShown(in) {
		item.Subnet, item.VPC, item.IP, item.PrivateDNS = in.SubnetID, w.network.vpc, in.PrivateIP, in.PrivateDNSName
		for _, n := range in.Interfaces {
			nic := nicItem{ID: n.id, Subnet: in.SubnetID, VPC: w.network.vpc, Status: "in-use", Type: n.Type, Card: n.Card, Device: n.Device}
			if n.Card == 0 && n.Device == 0 {
				nic.IP, nic.DNS = in.PrivateIP, in.PrivateDNSName
				item.IPv6 = n.ipv6
			}
			if n.ipv6 != "" {
				nic.IPv6 = []string{n.ipv6}
			}
			item.Interfaces = append(item.Interfaces, nic)
		}
		for _, id := range in.Groups {
			item.Groups = append(item.Groups, groupRef{id, w.network.group(id).name})
		}
	}
	return item
}

func (w *world) instanceMatcher(in *instance) matcher {
	fields := map[string]string{
		"instance-id": in.ID, "instance-type": in.Type, "instance-state-name": in.State, "instance-state-code": fmt.Sprint(stateCodes[in.State]),
		"availability-zone": in.Zone, "availability-zone-id": in.subnet.zoneID, "subnet-id": in.SubnetID, "vpc-id": w.network.vpc, "image-id": in.ImageID,
		"client-token": in.ClientToken, "instance-lifecycle": "", "reservation-id": in.fleetRsv, "capacity-reservation-id": in.Reservation, "architecture": in.typ.Arch[0],
		"launch-time": timestamp(in.Launched), "private-ip-address": "", "private-dns-name": "", "network-interface.subnet-id": in.SubnetID, "owner-id": w.cfg.Account,
		"iam-instance-profile.arn": "", "launch-template": in.template,
	}
	if in.CapacityType == spot {
		fields["instance-lifecycle"] = spot
	}
	if w.networkShown(in) {
		fields["private-ip-address"], fields["private-dns-name"] = in.PrivateIP, in.PrivateDNSName
	}
	if p := w.profiles[in.Profile]; p != nil {
		fields["iam-instance-profile.arn"] = p.arn(w)
	}
	tags := tagMatcher(in.Tags, fields)
	return func(name string) ([]string, bool) {
		if name == "instance.group-id" || name == "network-interface.group-id" {
			return in.Groups, true
		}
		return tags(name)
	}
}

var instanceID = regexp.MustCompile(`^i-[0-9a-f]{8}([0-9a-f]{9})?$`)

// find finds the instances that a request names. One ID that is malformed, unknown or not visible yet makes the whole request fail.
func (w *world) find(r *Request) ([]*instance, error) {
	ids := r.params.strs("InstanceId")
	var out []*instance
	var unknown []string
	for _, id := range ids {
		if !instanceID.MatchString(id) {
			return nil, failf("InvalidInstanceID.Malformed", "Invalid id: \"%s\"", id)
		}
		in := w.byID[id]
		if in == nil || in.forgotten || in.visible.After(w.now) {
			unknown = append(unknown, id)
		} else if !slices.Contains(out, in) {
			out = append(out, in)
		}
	}
	switch len(unknown) {
	case 0:
		return out, nil
	case 1:
		return nil, failf("InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", unknown[0])
	default:
		return nil, failf("InvalidInstanceID.NotFound", "The instance IDs '%s' do not exist", strings.Join(unknown, ", "))
	}
}

// selected returns one page of the instances that a Describe call selects. of returns the matcher for its filters.
func (w *world) selected(r *Request, of func(*instance) matcher) ([]*instance, string, error) {
	all, err := w.find(r)
	if err != nil {
		return nil, "", err
	}
	if len(all) > 0 && (r.params.has("MaxResults") || r.params.has("NextToken")) {
		return nil, "", failf("InvalidParameterCombination", "The parameter instancesSet cannot be used with the parameter maxResults")
	}
	if len(all) == 0 {
		all = w.instances
	}
	var out []*instance
	for _, in := range all {
		if in.forgotten || in.visible.After(w.now) {
			continue
		}
		ok, err := r.matches(of(in))
		if err != nil {
			return nil, "", err
		}
		if ok {
			out = append(out, in)
		}
	}
	slices.SortFunc(out, func(a, b *instance) int { return a.order - b.order })
	return page(r, out, 5, 1000, 0, func(in *instance) string { return fmt.Sprintf("%09d", in.order) })
}

func (w *world) describeInstances(r *Request) (any, error) {
	found, next, err := w.selected(r, w.instanceMatcher)
	if err != nil {
		return nil, err
	}
	var items []reservationItem
	for _, in := range found {
		if n := len(items); n == 0 || items[n-1].ID != in.fleetRsv {
			items = append(items, reservationItem{ID: in.fleetRsv, Owner: w.cfg.Account})
		}
		last := &items[len(items)-1]
		last.Instances = append(last.Instances, w.instanceItem(in))
	}
	return struct {
		Reservations []reservationItem `xml:"reservationSet>item"`
		Next         string            `xml:"nextToken,omitempty"`
	}{items, next}, nil
}

type stateChangeItem struct {
	ID       string    `xml:"instanceId"`
	Current  stateItem `xml:"currentState"`
	Previous stateItem `xml:"previousState"`
}

func (w *world) terminateInstances(r *Request) (any, error) {
	if len(r.params.strs("InstanceId")) == 0 {
		return nil, missing("InstanceId")
	}
	found, err := w.find(r)
	if err != nil {
		return nil, err
	}
	if r.params.bool("DryRun") {
		return nil, dryRun()
	}
	var items []stateChangeItem
	for _, in := range found {
		was := in.State
		w.end(in, "Client.UserInitiatedShutdown: User initiated shutdown")
		items = append(items, stateChangeItem{in.ID, stateItem{stateCodes[in.State], in.State}, stateItem{stateCodes[was], was}})
		r.results = append(r.results, in.ID)
	}
	return struct {
		Changes []stateChangeItem `xml:"instancesSet>item"`
	}{items}, nil
}
