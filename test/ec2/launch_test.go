package ec2

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// templateWith creates a launch template like account.template's, with changed data.
func (a *account) templateWith(name string, change func(*types.RequestLaunchTemplateData)) string {
	a.t.Helper()
	image := must(a.ec2.DescribeImages(a.ctx, &awsec2.DescribeImagesInput{Filters: filters("name", "amazon-eks-node-al2023-x86_64-standard-1.36-v20260915")}))
	data := &types.RequestLaunchTemplateData{ImageId: image.Images[0].ImageId}
	change(data)
	if _, err := a.ec2.CreateLaunchTemplate(a.ctx, &awsec2.CreateLaunchTemplateInput{LaunchTemplateName: &name, LaunchTemplateData: data}); err != nil {
		a.t.Fatal(err)
	}
	return name
}

// described returns an instance as DescribeInstances shows it.
func (a *account) described(id string) types.Instance {
	a.t.Helper()
	out, err := a.ec2.DescribeInstances(a.ctx, &awsec2.DescribeInstancesInput{InstanceIds: []string{id}})
	if err != nil {
		a.t.Fatal(err)
	}
	return out.Reservations[0].Instances[0]
}

func TestInstanceIsWhatItsTemplateSays(t *testing.T) {
	a := newAccount(t, func(c *Config) { c.IPv6 = true })
	groups := must(a.ec2.DescribeSecurityGroups(a.ctx, &awsec2.DescribeSecurityGroupsInput{Filters: filters("group-name", "default")}))
	group := *groups.SecurityGroups[0].GroupId
	name := a.templateWith("t", func(d *types.RequestLaunchTemplateData) {
		d.MetadataOptions = &types.LaunchTemplateInstanceMetadataOptionsRequest{HttpTokens: "required", HttpPutResponseHopLimit: aws.Int32(2), HttpProtocolIpv6: "enabled"}
		d.Monitoring = &types.LaunchTemplatesMonitoringRequest{Enabled: aws.Bool(true)}
		d.CpuOptions = &types.LaunchTemplateCpuOptionsRequest{NestedVirtualization: "enabled"}
		d.EnclaveOptions = &types.LaunchTemplateEnclaveOptionsRequest{Enabled: aws.Bool(true)}
		d.Placement = &types.LaunchTemplatePlacementRequest{Tenancy: "dedicated"}
		d.BlockDeviceMappings = []types.LaunchTemplateBlockDeviceMappingRequest{{DeviceName: aws.String("/dev/xvdb"), Ebs: &types.LaunchTemplateEbsBlockDeviceRequest{
			VolumeSize: aws.Int32(100), VolumeType: "io2", Iops: aws.Int32(5000), Encrypted: aws.Bool(true), KmsKeyId: aws.String("k"), DeleteOnTermination: aws.Bool(false)}}}
		d.NetworkInterfaces = []types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest{{
			DeviceIndex: aws.Int32(0), Groups: []string{group}, AssociatePublicIpAddress: aws.Bool(true), Ipv6AddressCount: aws.Int32(1), PrimaryIpv6: aws.Bool(true),
			Ipv6PrefixCount: aws.Int32(1), ConnectionTrackingSpecification: &types.ConnectionTrackingSpecificationRequest{TcpEstablishedTimeout: aws.Int32(600)}}}
		d.TagSpecifications = []types.LaunchTemplateTagSpecificationRequest{
			{ResourceType: "volume", Tags: tags("of", "volume")}, {ResourceType: "network-interface", Tags: tags("of", "interface")},
			{ResourceType: "spot-instances-request", Tags: tags("of", "request")}}
	})
	id := a.launched(a.fleetOf(1, name, "spot", []string{"us-west-2a"}, "m5.large"))[0]
	yes := true
	got := a.Instances()[0]
	want := Instance{
		Metadata: Metadata{Endpoint: "enabled", IPv6: "enabled", Tokens: "required", Tags: "disabled", HopLimit: 2}, Monitoring: true, NestedVirtualization: true, Enclave: true,
		Placement: Placement{Tenancy: "dedicated"}, SpotRequestTags: map[string]string{"of": "request"},
		Volumes: []Volume{
			{Device: "/dev/xvdb", Type: "io2", KMSKey: "k", GiB: 100, IOPS: 5000, Encrypted: true, KeptOnTermination: true, Tags: map[string]string{"of": "volume"}},
			{Device: "/dev/xvda", Type: "gp3", GiB: 20, Tags: map[string]string{"of": "volume"}},
		},
		Interfaces: []Interface{{Type: "interface", Public: &yes, Groups: []string{group}, IPv6Prefixes: 1, IPv6Addresses: 1, PrimaryIPv6: true,
			TCPEstablishedTimeout: 600, Tags: map[string]string{"of": "interface"}}},
	}
	launched := cmp.FilterPath(func(p cmp.Path) bool {
		return len(p) == 2 && !slices.Contains([]string{".Metadata", ".Monitoring", ".NestedVirtualization", ".Enclave", ".Placement", ".SpotRequestTags", ".Volumes", ".Interfaces"}, p[1].String())
	}, cmp.Ignore())
	if diff := cmp.Diff(want, got, launched, cmpopts.IgnoreUnexported(Volume{}, Interface{})); diff != "" {
		t.Errorf("instance (-want +got):\n%s", diff)
	}
	d := a.described(id)
	if d.Monitoring.State != "enabled" || d.MetadataOptions.HttpTokens != "required" || *d.MetadataOptions.HttpPutResponseHopLimit != 2 || d.Placement.Tenancy != "dedicated" ||
		d.CpuOptions.NestedVirtualization != "enabled" || !*d.EnclaveOptions.Enabled || len(d.BlockDeviceMappings) != 2 || *d.Ipv6Address != *d.NetworkInterfaces[0].Ipv6Addresses[0].Ipv6Address {
		t.Errorf("described %+v", d)
	}
}

// volume returns a change to a template that adds a valid root volume and then modifies it.
func volume(change func(*types.LaunchTemplateEbsBlockDeviceRequest)) func(*types.RequestLaunchTemplateData) {
	return func(d *types.RequestLaunchTemplateData) {
		ebs := &types.LaunchTemplateEbsBlockDeviceRequest{VolumeType: "gp3", VolumeSize: aws.Int32(100)}
		change(ebs)
		d.BlockDeviceMappings = []types.LaunchTemplateBlockDeviceMappingRequest{{DeviceName: aws.String("/dev/xvda"), Ebs: ebs}}
	}
}

// Launch data that EC2 refuses, whatever capacity there is.
func TestTemplatesThatDoNotWork(t *testing.T) {
	a := newAccount(t)
	group := a.AddPlacementGroup("near", "cluster", 0)
	for _, tt := range []struct {
		name, instanceType, want string
		data                     func(*types.RequestLaunchTemplateData)
	}{
		{"no such placement group", "m5.large", "InvalidPlacementGroup.Unknown", func(d *types.RequestLaunchTemplateData) {
			d.Placement = &types.LaunchTemplatePlacementRequest{GroupName: aws.String("nobody")}
		}},
		{"burstable machines are not near each other", "t3.large", "InvalidParameterCombination", func(d *types.RequestLaunchTemplateData) {
			d.Placement = &types.LaunchTemplatePlacementRequest{GroupId: &group}
		}},
		{"a partition of a group without any", "m5.large", "InvalidParameterCombination", func(d *types.RequestLaunchTemplateData) {
			d.Placement = &types.LaunchTemplatePlacementRequest{GroupId: &group, PartitionNumber: aws.Int32(1)}
		}},
		{"more network cards than there are", "m5.large", "InvalidNetworkCardIndex", func(d *types.RequestLaunchTemplateData) {
			d.NetworkInterfaces = []types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest{{DeviceIndex: aws.Int32(1), NetworkCardIndex: aws.Int32(1)}}
		}},
		{"EFA where there is none", "m5.large", "InvalidParameterCombination", func(d *types.RequestLaunchTemplateData) {
			d.NetworkInterfaces = []types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest{{DeviceIndex: aws.Int32(0), InterfaceType: aws.String("efa")}}
		}},
		{"IPv6 in an IPv4 subnet", "m5.large", "InvalidParameterValue", func(d *types.RequestLaunchTemplateData) {
			d.NetworkInterfaces = []types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest{{DeviceIndex: aws.Int32(0), Ipv6AddressCount: aws.Int32(1)}}
		}},
		{"tokens that are neither required nor optional", "m5.large", "InvalidParameterValue", func(d *types.RequestLaunchTemplateData) {
			d.MetadataOptions = &types.LaunchTemplateInstanceMetadataOptionsRequest{HttpTokens: "maybe"}
		}},
		{"more hops than there can be", "m5.large", "InvalidParameterValue", func(d *types.RequestLaunchTemplateData) {
			d.MetadataOptions = &types.LaunchTemplateInstanceMetadataOptionsRequest{HttpPutResponseHopLimit: aws.Int32(65)}
		}},
		{"tags that metadata can't show", "m5.large", "InvalidParameterValue", func(d *types.RequestLaunchTemplateData) {
			d.MetadataOptions = &types.LaunchTemplateInstanceMetadataOptionsRequest{InstanceMetadataTags: "enabled"}
			d.TagSpecifications = []types.LaunchTemplateTagSpecificationRequest{{ResourceType: "instance", Tags: tags("karpenter.sh/nodepool", "a")}}
		}},
		{"groups beside interfaces", "m5.large", "InvalidParameterCombination", func(d *types.RequestLaunchTemplateData) {
			d.SecurityGroupIds = []string{*must(a.ec2.DescribeSecurityGroups(a.ctx, &awsec2.DescribeSecurityGroupsInput{})).SecurityGroups[0].GroupId}
			d.NetworkInterfaces = []types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest{{DeviceIndex: aws.Int32(0)}}
		}},
		{"a volume type that is none", "m5.large", "InvalidParameterValue", volume(func(e *types.LaunchTemplateEbsBlockDeviceRequest) { e.VolumeType = "gp9" })},
		{"a root volume smaller than its snapshot", "m5.large", "InvalidBlockDeviceMapping", volume(func(e *types.LaunchTemplateEbsBlockDeviceRequest) { e.VolumeSize = aws.Int32(8) })},
		{"70,000 GiB", "m5.large", "InvalidParameterValue", volume(func(e *types.LaunchTemplateEbsBlockDeviceRequest) { e.VolumeSize = aws.Int32(70000) })},
		{"too few operations", "m5.large", "InvalidParameterValue", volume(func(e *types.LaunchTemplateEbsBlockDeviceRequest) { e.Iops = aws.Int32(100) })},
		{"operations of a type that has none to choose", "m5.large", "InvalidParameterCombination", volume(func(e *types.LaunchTemplateEbsBlockDeviceRequest) {
			e.VolumeType, e.Iops = "gp2", aws.Int32(3000)
		})},
		{"throughput of a type that has none to choose", "m5.large", "InvalidParameterCombination", volume(func(e *types.LaunchTemplateEbsBlockDeviceRequest) {
			e.VolumeType, e.Iops, e.Throughput = "io2", aws.Int32(3000), aws.Int32(250)
		})},
		{"provisioned operations, but how many", "m5.large", "MissingParameter", volume(func(e *types.LaunchTemplateEbsBlockDeviceRequest) { e.VolumeType = "io1" })},
		{"a volume of no size", "m5.large", "MissingParameter", func(d *types.RequestLaunchTemplateData) {
			d.BlockDeviceMappings = []types.LaunchTemplateBlockDeviceMappingRequest{{DeviceName: aws.String("/dev/xvdz"), Ebs: &types.LaunchTemplateEbsBlockDeviceRequest{VolumeType: "gp3"}}}
		}},
		{"a market that the fleet does not buy on", "m5.large", "InvalidFleetConfiguration", func(d *types.RequestLaunchTemplateData) {
			d.InstanceMarketOptions = &types.LaunchTemplateInstanceMarketOptionsRequest{MarketType: "capacity-block"}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := a.fleetOf(1, a.templateWith(tt.name, tt.data), "on-demand", []string{"us-west-2a"}, tt.instanceType)
			got, failed := pools(must(a.ec2.CreateFleet(a.ctx, in)))
			if want := []string{tt.instanceType + "/us-west-2a: " + tt.want}; len(got) > 0 || !slices.Equal(failed, want) {
				t.Errorf("got %v, failed %v, want %v", got, failed, want)
			}
		})
	}
	for name, data := range map[string]*types.RequestLaunchTemplateData{
		"two interfaces and a public address": {NetworkInterfaces: []types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest{
			{DeviceIndex: aws.Int32(0), AssociatePublicIpAddress: aws.Bool(true)}, {DeviceIndex: aws.Int32(1)}}},
		"an address for what has none": {NetworkInterfaces: []types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest{
			{DeviceIndex: aws.Int32(0), InterfaceType: aws.String("efa-only"), Ipv4PrefixCount: aws.Int32(1)}}},
		"a reservation, but none": {CapacityReservationSpecification: &types.LaunchTemplateCapacityReservationSpecificationRequest{
			CapacityReservationPreference: "none", CapacityReservationTarget: &types.CapacityReservationTarget{CapacityReservationId: aws.String("cr-1")}}},
	} {
		if _, err := a.ec2.CreateLaunchTemplate(a.ctx, &awsec2.CreateLaunchTemplateInput{LaunchTemplateName: aws.String("x"), LaunchTemplateData: data}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestPlacementGroups(t *testing.T) {
	a := newAccount(t)
	in := func(group string, partition int32) func(*types.RequestLaunchTemplateData) {
		return func(d *types.RequestLaunchTemplateData) {
			d.Placement = &types.LaunchTemplatePlacementRequest{GroupId: &group}
			if partition > 0 {
				d.Placement.PartitionNumber = &partition
			}
		}
	}
	near, apart, parts := a.AddPlacementGroup("near", "cluster", 0), a.AddPlacementGroup("apart", "spread", 0), a.AddPlacementGroup("parts", "partition", 3)
	both := []string{"us-west-2a", "us-west-2b"}

	got, failed := pools(must(a.ec2.CreateFleet(a.ctx, a.fleetOf(9, a.templateWith("apart", in(apart, 0)), "on-demand", []string{"us-west-2a"}, "m5.large"))))
	if diff := cmp.Diff([][]string{{"m5.large/us-west-2a x 7"}, {"m5.large/us-west-2a: UnfulfillableCapacity"}}, [][]string{got, failed}); diff != "" {
		t.Errorf("nine apart (-want +got):\n%s", diff)
	}
	got, failed = pools(must(a.ec2.CreateFleet(a.ctx, a.fleetOf(2, a.template("anywhere"), "on-demand", both, "m5.large"))))
	if len(got) != 1 || len(failed) != 0 {
		t.Errorf("without a group: %v, %v", got, failed)
	}
	a.launched(a.fleetOf(1, a.templateWith("near", in(near, 0)), "on-demand", []string{"us-west-2b"}, "m5.large"))
	got, failed = pools(must(a.ec2.CreateFleet(a.ctx, a.fleetOf(2, "near", "on-demand", both, "m5.large"))))
	if diff := cmp.Diff([][]string{{"m5.large/us-west-2b x 2"}, {"m5.large/us-west-2a: InvalidPlacementGroup.InUse"}}, [][]string{got, failed}); diff != "" {
		t.Errorf("two near (-want +got):\n%s", diff)
	}
	count := map[int32]int{}
	for _, id := range append(a.launched(a.fleetOf(4, a.templateWith("parts", in(parts, 0)), "on-demand", []string{"us-west-2a"}, "m5.large")),
		a.launched(a.fleetOf(1, a.templateWith("part 3", in(parts, 3)), "on-demand", []string{"us-west-2a"}, "m5.large"))...) {
		p := a.described(id).Placement
		if *p.GroupName != "parts" || *p.GroupId != parts {
			t.Errorf("placement %+v", p)
		}
		count[*p.PartitionNumber]++
	}
	if diff := cmp.Diff(map[int32]int{1: 2, 2: 1, 3: 2}, count); diff != "" {
		t.Errorf("instances per partition (-want +got):\n%s", diff)
	}
	out := must(a.ec2.DescribePlacementGroups(a.ctx, &awsec2.DescribePlacementGroupsInput{GroupIds: []string{parts}}))
	if g := out.PlacementGroups[0]; *g.GroupName != "parts" || g.Strategy != "partition" || *g.PartitionCount != 3 || g.State != "available" {
		t.Errorf("described %+v", g)
	}
	a.DeletePlacementGroup(parts)
	_, err := a.ec2.DescribePlacementGroups(a.ctx, &awsec2.DescribePlacementGroupsInput{GroupNames: []string{"parts"}})
	if code(err) != "InvalidPlacementGroup.Unknown" {
		t.Errorf("describing a group that is gone: %v", err)
	}
}

func TestSpotNeedsItsRole(t *testing.T) {
	a := newAccount(t, func(c *Config) { c.NoSpotRole = true })
	in := a.fleetOf(1, a.template("t"), "spot", []string{"us-west-2a"}, "m5.large")
	_, failed := pools(must(a.ec2.CreateFleet(a.ctx, in)))
	if want := []string{"m5.large/us-west-2a: AuthFailure.ServiceLinkedRoleCreationNotPermitted"}; !slices.Equal(failed, want) {
		t.Errorf("failed %v, want %v", failed, want)
	}
	a.SetSpotRole(true)
	in.ClientToken = aws.String("again")
	a.launched(in)
}

func TestQuotas(t *testing.T) {
	a := newAccount(t)
	a.SetQuota("on-demand", 10)
	in := a.fleetOf(9, a.template("t"), "on-demand", []string{"us-west-2a", "us-west-2b"}, "m5.large")
	got, failed := pools(must(a.ec2.CreateFleet(a.ctx, in)))
	if diff := cmp.Diff([][]string{{"m5.large/us-west-2a x 5"}, {"m5.large/us-west-2a: VcpuLimitExceeded", "m5.large/us-west-2b: VcpuLimitExceeded"}}, [][]string{got, failed}); diff != "" {
		t.Errorf("ten vCPUs (-want +got):\n%s", diff)
	}
	for _, i := range a.Live() {
		a.Kill(i.ID)
	}
	if _, failed := pools(must(a.ec2.CreateFleet(a.ctx, a.fleetOf(1, "t", "on-demand", []string{"us-west-2a"}, "m5.large")))); len(failed) != 1 {
		t.Error("instances that are shutting down count no more")
	}
	a.step(time.Minute)
	a.launched(a.fleetOf(5, "t", "on-demand", []string{"us-west-2a"}, "m5.large"))
	a.SetQuota("spot", 1)
	if _, failed := pools(must(a.ec2.CreateFleet(a.ctx, a.fleetOf(1, "t", "spot", []string{"us-west-2a"}, "m5.large")))); !slices.Equal(failed, []string{"m5.large/us-west-2a: MaxSpotInstanceCountExceeded"}) {
		t.Errorf("spot beyond its quota: %v", failed)
	}
	a.SetQuota("on-demand", Unlimited)
	a.launched(a.fleetOf(20, "t", "on-demand", []string{"us-west-2a"}, "m5.large"))
}

func TestReservations(t *testing.T) {
	a := newAccount(t)
	zone := []string{"us-west-2a"}
	open := a.Reserve(Reservation{Type: "m5.large", Zone: "us-west-2a", Count: 2, Match: "open", End: epoch.Add(time.Hour)})
	block := a.Reserve(Reservation{Type: "c5.large", Zone: "us-west-2a", Count: 1, Kind: "capacity-block", End: epoch.Add(2 * time.Hour)})
	reservations := func() map[string]string {
		out := map[string]string{}
		for _, i := range a.Live() {
			out[i.ID] = i.Reservation
		}
		return out
	}
	only := func(id string, market types.MarketType) func(*types.RequestLaunchTemplateData) {
		return func(d *types.RequestLaunchTemplateData) {
			d.CapacityReservationSpecification = &types.LaunchTemplateCapacityReservationSpecificationRequest{
				CapacityReservationPreference: "capacity-reservations-only", CapacityReservationTarget: &types.CapacityReservationTarget{CapacityReservationId: &id}}
			if market != "" {
				d.InstanceMarketOptions = &types.LaunchTemplateInstanceMarketOptionsRequest{MarketType: market}
			}
		}
	}
	// A launch that doesn't opt out runs in an open reservation, even if the pool is empty; a launch that opts out does not.
	a.SetCapacity("m5.large", "us-west-2a", "on-demand", 0)
	none := a.templateWith("none", func(d *types.RequestLaunchTemplateData) {
		d.CapacityReservationSpecification = &types.LaunchTemplateCapacityReservationSpecificationRequest{CapacityReservationPreference: "none"}
	})
	if got := a.launched(a.fleetOf(1, none, "on-demand", zone, "m5.large")); len(got) != 0 {
		t.Errorf("who wants no reservation got %v", got)
	}
	chance := a.launched(a.fleetOf(1, a.template("any"), "on-demand", zone, "m5.large"))[0]
	aimed := a.launched(a.fleetOf(3, a.templateWith("aimed", only(open, "")), "on-demand", zone, "m5.large"))
	if len(aimed) != 1 || reservations()[chance] != open || reservations()[aimed[0]] != open {
		t.Errorf("aimed %v, in reservations %v", aimed, reservations())
	}
	if s := a.described(aimed[0]).CapacityReservationSpecification; s.CapacityReservationPreference != "capacity-reservations-only" || *s.CapacityReservationTarget.CapacityReservationId != open {
		t.Errorf("described %+v", s)
	}
	// A capacity block requires its own market option.
	template := a.templateWith("block", only(block, "capacity-block"))
	if _, failed := pools(must(a.ec2.CreateFleet(a.ctx, a.fleetOf(1, template, "on-demand", zone, "c5.large")))); !slices.Equal(failed, []string{"c5.large/us-west-2a: InvalidFleetConfiguration"}) {
		t.Errorf("a block bought on demand: %v", failed)
	}
	in := a.launched(a.fleetOf(1, template, "capacity-block", zone, "c5.large"))[0]
	if l := a.described(in).InstanceLifecycle; l != "capacity-block" {
		t.Errorf("lifecycle %s", l)
	}
	// The open reservation expires: its instances keep running. Those of the block are terminated half an hour before it ends.
	a.step(time.Hour)
	if r := reservations(); r[chance] != "" || r[aimed[0]] != "" || r[in] != block {
		t.Errorf("after an hour %v", r)
	}
	out := must(a.ec2.DescribeCapacityReservations(a.ctx, &awsec2.DescribeCapacityReservationsInput{CapacityReservationIds: []string{open}}))
	if r := out.CapacityReservations[0]; r.State != "expired" || r.InstanceMatchCriteria != "open" || !r.EndDate.Equal(epoch.Add(time.Hour)) {
		t.Errorf("described %+v", r)
	}
	a.step(30 * time.Minute)
	if _, there := reservations()[in]; there {
		t.Error("an instance lives half an hour before its block ends")
	}
}

func TestProfileIsKnownLate(t *testing.T) {
	a := newAccount(t, func(c *Config) { c.ProfileLag = 10 * time.Second })
	a.launched(a.fleetOf(1, a.template("old"), "on-demand", []string{"us-west-2a"}, "m5.large"))
	a.with(func(w *world) { w.addProfile("new", "/", "DovetailNode", nil) })
	name := a.templateWith("new", func(d *types.RequestLaunchTemplateData) {
		d.IamInstanceProfile = &types.LaunchTemplateIamInstanceProfileSpecificationRequest{Name: aws.String("new")}
	})
	launch := func(token string) []string {
		in := a.fleetOf(1, name, "on-demand", []string{"us-west-2a"}, "m5.large")
		in.ClientToken = &token
		_, failed := pools(must(a.ec2.CreateFleet(a.ctx, in)))
		return failed
	}
	if failed := launch("1"); !slices.Equal(failed, []string{"m5.large/us-west-2a: InvalidParameterValue"}) {
		t.Errorf("with a new profile: %v", failed)
	}
	a.step(10 * time.Second)
	if failed := launch("1"); len(failed) != 1 {
		t.Error("a token that stands for a failure launched")
	}
	if failed := launch("2"); len(failed) != 0 {
		t.Errorf("ten seconds later: %v", failed)
	}
}

func TestNamesByID(t *testing.T) {
	a := newAccount(t, func(c *Config) { c.ResourceNames = true })
	id := a.launched(a.fleetOf(1, a.template("t"), "on-demand", []string{"us-west-2a"}, "m5.large"))[0]
	d := a.described(id)
	if *d.PrivateDnsName != id+".us-west-2.compute.internal" || d.PrivateDnsNameOptions.HostnameType != "resource-name" {
		t.Errorf("%s, %+v", *d.PrivateDnsName, d.PrivateDnsNameOptions)
	}
}

func TestSubnetsWithFewAddresses(t *testing.T) {
	a := newAccount(t)
	a.SetFreeAddresses("us-west-2a", 2)
	got, failed := pools(must(a.ec2.CreateFleet(a.ctx, a.fleetOf(3, a.template("t"), "on-demand", []string{"us-west-2a", "us-west-2b"}, "m5.large"))))
	want := [][]string{{"m5.large/us-west-2a x 2", "m5.large/us-west-2b x 1"}, {"m5.large/us-west-2a: InsufficientFreeAddressesInSubnet"}}
	if diff := cmp.Diff(want, [][]string{got, failed}); diff != "" {
		t.Errorf("two addresses (-want +got):\n%s", diff)
	}
	out := must(a.ec2.DescribeSubnets(a.ctx, &awsec2.DescribeSubnetsInput{Filters: filters("availability-zone", "us-west-2a")}))
	if n := *out.Subnets[0].AvailableIpAddressCount; n != 0 {
		t.Errorf("%d addresses are said to be free", n)
	}
	a.SetFreeAddresses("us-west-2a", 100)
	a.launched(a.fleetOf(50, "t", "on-demand", []string{"us-west-2a"}, "m5.large"))
}

// Tags that EC2 refuses, in whichever call they are given.
func TestTagsThatDoNotWork(t *testing.T) {
	a := newAccount(t)
	many := func(n int) (out []types.Tag) {
		for i := range n {
			out = append(out, tags(fmt.Sprintf("key-%d", i), "v")...)
		}
		return out
	}
	template := a.template("plain")
	good := a.launched(a.fleetOf(1, template, "on-demand", abc[:1], "m5.large"))[0]
	for _, tt := range []struct {
		name, want string
		kind       types.ResourceType
		tags       []types.Tag
		anyKind    bool // for CreateTags too, where the resource types don't matter
	}{
		{"51 tags", "TagLimitExceeded", "instance", many(51), true},
		{"51 tags of volumes", "TagLimitExceeded", "volume", many(51), false},
		{"a key of AWS's own", "InvalidParameterValue", "instance", tags("aws:mine", "v"), true},
		{"in another case", "InvalidParameterValue", "instance", tags("AWS:mine", "v"), true},
		{"a key of 129 characters", "InvalidParameterValue", "instance", tags(strings.Repeat("k", 129), "v"), true},
		{"a value of 257 characters", "InvalidParameterValue", "instance", tags("k", strings.Repeat("v", 257)), true},
		{"a key twice", "InvalidParameterValue", "instance", tags("k", "v", "k", "w"), true},
		{"a resource type that is none", "InvalidParameterValue", "machine", tags("k", "v"), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := a.fleetOf(1, template, "on-demand", abc[:1], "m5.large")
			in.TagSpecifications = []types.TagSpecification{{ResourceType: tt.kind, Tags: tt.tags}}
			out, err := a.ec2.CreateFleet(a.ctx, in)
			if err == nil && len(out.Errors) == 1 && len(out.Instances) == 0 {
				err = &smithy.GenericAPIError{Code: *out.Errors[0].ErrorCode}
			}
			if code(err) != tt.want {
				t.Errorf("CreateFleet: %v, want %s", err, tt.want)
			}
			run := &awsec2.RunInstancesInput{LaunchTemplate: &types.LaunchTemplateSpecification{LaunchTemplateName: &template}, InstanceType: "m5.large",
				MinCount: aws.Int32(1), MaxCount: aws.Int32(1), TagSpecifications: in.TagSpecifications}
			if _, err := a.ec2.RunInstances(a.ctx, run); code(err) != tt.want {
				t.Errorf("RunInstances: %v, want %s", err, tt.want)
			}
			if !tt.anyKind {
				return
			}
			if _, err := a.ec2.CreateTags(a.ctx, &awsec2.CreateTagsInput{Resources: []string{good}, Tags: tt.tags}); code(err) != tt.want {
				t.Errorf("CreateTags: %v, want %s", err, tt.want)
			}
		})
	}
	// The tags of a template and those of the request are added up.
	template = a.templateWith("half", func(d *types.RequestLaunchTemplateData) {
		d.TagSpecifications = []types.LaunchTemplateTagSpecificationRequest{{ResourceType: "instance", Tags: many(30)}}
	})
	in := a.fleetOf(1, template, "on-demand", abc[:1], "m5.large")
	for i, n := range []int{49, 50} { // in addition to the template's 30
		in.TagSpecifications[0].Tags = append(many(n), tags("one", "more")...)
		_, failed := pools(must(a.ec2.CreateFleet(a.ctx, in)))
		if want := [][]string{nil, {"m5.large/us-west-2a: TagLimitExceeded"}}[i]; !slices.Equal(failed, want) {
			t.Errorf("%d tags: failed %v, want %v", n+1, failed, want)
		}
		in.ClientToken = nil
	}
}
