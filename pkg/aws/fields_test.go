package aws

import (
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	sim "github.com/dovetail-scheduler/dovetail/test/ec2"
)

// fieldCase tests some fields of EC2NodeClassSpec: their effect on the requests and on the instance.
type fieldCase struct {
	name string
	// fields are the paths of the tested fields.
	fields []string
	class  func(*world, *ec2nc.EC2NodeClassSpec)
	batch  func(*capacity.LaunchBatch)
	// template are the parameters of CreateLaunchTemplate that differ from those of a class that sets nothing; an empty value: absent.
	// fleet are parameters of CreateFleet.
	template, fleet map[string]string
	// instance returns properties of the resulting instance, as pairs of want and got.
	instance func(*world, sim.Instance) [][2]any
}

// plainTemplate is the launch template of a class that sets nothing, without tags, user data and ids.
var plainTemplate = map[string]string{
	"BlockDeviceMapping.1.DeviceName": "/dev/xvda", "BlockDeviceMapping.1.Ebs.Encrypted": "true", "BlockDeviceMapping.1.Ebs.VolumeSize": "20",
	"BlockDeviceMapping.1.Ebs.VolumeType": "gp3", "BlockDeviceMapping.1.Ebs.DeleteOnTermination": "true",
	"MetadataOptions.HttpEndpoint": "enabled", "MetadataOptions.HttpProtocolIpv6": "disabled", "MetadataOptions.HttpPutResponseHopLimit": "1",
	"MetadataOptions.HttpTokens": "required", "MetadataOptions.InstanceMetadataTags": "disabled",
	"CapacityReservationSpecification.CapacityReservationPreference": "none",
	"Monitoring.Enabled": "false", "NetworkInterface.1.DeviceIndex": "0", "TagSpecification.1.ResourceType": "network-interface",
}

type pairs = [][2]any

func fieldCases() []fieldCase {
	yes, no := true, false
	return []fieldCase{
		{
			name: "nothing said", class: func(*world, *ec2nc.EC2NodeClassSpec) {},
			instance: func(_ *world, i sim.Instance) pairs {
				return pairs{
					{sim.Metadata{Endpoint: "enabled", IPv6: "disabled", Tokens: "required", Tags: "disabled", HopLimit: 1}, i.Metadata},
					{[]sim.Volume{{Device: "/dev/xvda", Type: "gp3", GiB: 20, Encrypted: true, Tags: i.Tags}}, i.Volumes},
					{sim.Placement{Tenancy: "default"}, i.Placement}, {false, i.Monitoring}, {"none", i.Preference}, {1, len(i.Interfaces)},
				}
			},
		},
		{
			name: "spot tags the spot request, too", class: func(*world, *ec2nc.EC2NodeClassSpec) {},
			batch:    func(v *capacity.LaunchBatch) { spotBatch(v) },
			template: map[string]string{"TagSpecification.2.ResourceType": "spot-instances-request"},
			fleet:    map[string]string{"SpotOptions.AllocationStrategy": "price-capacity-optimized"},
			instance: func(_ *world, i sim.Instance) pairs {
				return pairs{{"spot", i.CapacityType}, {"pool", i.SpotRequestTags["karpenter.sh/nodepool"]}}
			},
		},
		{
			name: "subnets by tags", fields: []string{"subnetSelectorTerms.tags"},
			class: func(_ *world, s *ec2nc.EC2NodeClassSpec) {
				s.SubnetSelectorTerms = []ec2nc.SubnetSelectorTerm{{Tags: map[string]string{"Name": "films/private-us-west-2b", "karpenter.sh/discovery": "*"}}}
			},
			batch: func(v *capacity.LaunchBatch) {
				v.Offers = []capacity.OfferKey{offer("m5.large", "a", "on-demand"), offer("m5.large", "b", "on-demand")}
			},
			instance: func(_ *world, i sim.Instance) pairs { return pairs{{"us-west-2b", i.Zone}} },
		},
		{
			name: "subnets by id", fields: []string{"subnetSelectorTerms.id"},
			class: func(w *world, s *ec2nc.EC2NodeClassSpec) {
				s.SubnetSelectorTerms = []ec2nc.SubnetSelectorTerm{{ID: w.subnetIn("us-west-2a")}}
			},
			instance: func(w *world, i sim.Instance) pairs { return pairs{{w.subnetIn("us-west-2a"), i.SubnetID}} },
		},
		{
			name: "security groups by tags, id and name", fields: []string{"securityGroupSelectorTerms.tags", "securityGroupSelectorTerms.id", "securityGroupSelectorTerms.name"},
			class: func(w *world, s *ec2nc.EC2NodeClassSpec) {
				s.SecurityGroupSelectorTerms = []ec2nc.SecurityGroupSelectorTerm{
					{Tags: map[string]string{"karpenter.sh/discovery": "films"}}, {ID: w.groupCalled("default")}, {Name: "default"}}
			},
			instance: func(w *world, i sim.Instance) pairs {
				want := []string{w.groupCalled("default"), w.groupCalled("eks-cluster-sg-films")}
				slices.Sort(want)
				return pairs{{want, slices.Sorted(slices.Values(i.Interfaces[0].Groups))}}
			},
		},
		{
			name: "images by tags", fields: []string{"amiSelectorTerms.tags", "amiFamily"},
			class: func(w *world, s *ec2nc.EC2NodeClassSpec) {
				w.sim.AddImage(sim.Image{Name: "tagged", Arch: "x86_64", Created: time.Unix(1, 0), Tags: map[string]string{"image": "tagged"}})
				s.AMIFamily, s.AMISelectorTerms = ptr.To("Custom"), []ec2nc.AMISelectorTerm{{Tags: map[string]string{"image": "tagged"}}}
			},
			// For an unknown image, neither devices nor user data are added.
			template: map[string]string{"BlockDeviceMapping.1.DeviceName": "", "BlockDeviceMapping.1.Ebs.Encrypted": "", "BlockDeviceMapping.1.Ebs.VolumeSize": "",
				"BlockDeviceMapping.1.Ebs.VolumeType": "", "BlockDeviceMapping.1.Ebs.DeleteOnTermination": ""},
			instance: func(w *world, i sim.Instance) pairs { return pairs{{"tagged", w.imageName(i.ImageID)}} },
		},
		{
			name: "images by name and owner", fields: []string{"amiSelectorTerms.name", "amiSelectorTerms.owner"},
			class: func(w *world, s *ec2nc.EC2NodeClassSpec) {
				s.AMIFamily, s.AMISelectorTerms = ptr.To("AL2023"), []ec2nc.AMISelectorTerm{{Name: "golden-*", Owner: "self"}}
			},
			instance: func(w *world, i sim.Instance) pairs { return pairs{{"golden-x86_64-2026-09", w.imageName(i.ImageID)}} },
		},
		{
			name: "images by id", fields: []string{"amiSelectorTerms.id"},
			class: func(w *world, s *ec2nc.EC2NodeClassSpec) {
				id := w.sim.AddImage(sim.Image{Name: "by-id", Arch: "x86_64", Created: time.Unix(1, 0)})
				s.AMIFamily, s.AMISelectorTerms = ptr.To("AL2023"), []ec2nc.AMISelectorTerm{{ID: id}}
			},
			instance: func(w *world, i sim.Instance) pairs { return pairs{{"by-id", w.imageName(i.ImageID)}} },
		},
		{
			name: "images by an SSM parameter", fields: []string{"amiSelectorTerms.ssmParameter"},
			class: func(w *world, s *ec2nc.EC2NodeClassSpec) {
				w.sim.SetParameter("/ours/node", w.sim.AddImage(sim.Image{Name: "by-parameter", Arch: "x86_64", Created: time.Unix(1, 0)}))
				s.AMIFamily, s.AMISelectorTerms = ptr.To("AL2023"), []ec2nc.AMISelectorTerm{{SSMParameter: "/ours/node"}}
			},
			instance: func(w *world, i sim.Instance) pairs { return pairs{{"by-parameter", w.imageName(i.ImageID)}} },
		},
		{
			name: "a pinned release, and Bottlerocket's volumes", fields: []string{"amiSelectorTerms.alias"},
			class: func(_ *world, s *ec2nc.EC2NodeClassSpec) {
				s.AMISelectorTerms = []ec2nc.AMISelectorTerm{{Alias: "bottlerocket@v1.48.0"}}
			},
			template: map[string]string{
				"BlockDeviceMapping.1.Ebs.VolumeSize": "4", "BlockDeviceMapping.2.DeviceName": "/dev/xvdb", "BlockDeviceMapping.2.Ebs.Encrypted": "true",
				"BlockDeviceMapping.2.Ebs.VolumeSize": "20", "BlockDeviceMapping.2.Ebs.VolumeType": "gp3", "BlockDeviceMapping.2.Ebs.DeleteOnTermination": "true",
			},
			instance: func(w *world, i sim.Instance) pairs {
				return pairs{{true, strings.Contains(w.imageName(i.ImageID), "-v1.48.0-")}, {2, len(i.Volumes)}}
			},
		},
		{
			name: "Windows' image and volume",
			class: func(_ *world, s *ec2nc.EC2NodeClassSpec) {
				s.AMISelectorTerms = []ec2nc.AMISelectorTerm{{Alias: "windows2022@latest"}}
			},
			template: map[string]string{"BlockDeviceMapping.1.DeviceName": "/dev/sda1", "BlockDeviceMapping.1.Ebs.VolumeSize": "50"},
			instance: func(w *world, i sim.Instance) pairs {
				return pairs{{"Windows_Server-2022-English-Core-EKS_Optimized-1.36-2026.09.15", w.imageName(i.ImageID)}}
			},
		},
		{
			name: "a role becomes a profile", fields: []string{"role"},
			class:    func(_ *world, s *ec2nc.EC2NodeClassSpec) { s.Role = "DovetailNode" },
			instance: func(_ *world, i sim.Instance) pairs { return pairs{{true, strings.HasPrefix(i.Profile, "films_")}} },
		},
		{
			name: "a profile is taken as it is", fields: []string{"instanceProfile"},
			class:    func(_ *world, s *ec2nc.EC2NodeClassSpec) { s.Role, s.InstanceProfile = "", ptr.To("DovetailNode") },
			instance: func(_ *world, i sim.Instance) pairs { return pairs{{"DovetailNode", i.Profile}} },
		},
		{
			name: "tags on everything", fields: []string{"tags"},
			class: func(_ *world, s *ec2nc.EC2NodeClassSpec) { s.Tags = map[string]string{"cost": "42"} },
			instance: func(_ *world, i sim.Instance) pairs {
				return pairs{{"42", i.Tags["cost"]}, {"42", i.Volumes[0].Tags["cost"]}, {"42", i.Interfaces[0].Tags["cost"]}}
			},
		},
		{
			name: "block devices", fields: []string{"blockDeviceMappings.deviceName", "blockDeviceMappings.rootVolume", "blockDeviceMappings.ebs.deleteOnTermination",
				"blockDeviceMappings.ebs.encrypted", "blockDeviceMappings.ebs.iops", "blockDeviceMappings.ebs.kmsKeyID", "blockDeviceMappings.ebs.snapshotID",
				"blockDeviceMappings.ebs.throughput", "blockDeviceMappings.ebs.volumeInitializationRate", "blockDeviceMappings.ebs.volumeSize", "blockDeviceMappings.ebs.volumeType"},
			class: func(_ *world, s *ec2nc.EC2NodeClassSpec) {
				s.BlockDeviceMappings = []*ec2nc.BlockDeviceMapping{{DeviceName: ptr.To("/dev/xvda"), RootVolume: true, EBS: &ec2nc.BlockDevice{
					VolumeSize: ptr.To(resource.MustParse("100G")), VolumeType: ptr.To("gp3"), IOPS: ptr.To[int64](5000), Throughput: ptr.To[int64](250), Encrypted: &yes,
					KMSKeyID: ptr.To("key-1"), SnapshotID: ptr.To("snap-1"), VolumeInitializationRate: ptr.To[int32](200), DeleteOnTermination: &no,
				}}}
			},
			template: map[string]string{
				"BlockDeviceMapping.1.Ebs.VolumeSize": "94", "BlockDeviceMapping.1.Ebs.VolumeType": "gp3",
				"BlockDeviceMapping.1.Ebs.Iops": "5000", "BlockDeviceMapping.1.Ebs.Throughput": "250", "BlockDeviceMapping.1.Ebs.KmsKeyId": "key-1",
				"BlockDeviceMapping.1.Ebs.SnapshotId": "snap-1", "BlockDeviceMapping.1.Ebs.VolumeInitializationRate": "200",
				"BlockDeviceMapping.1.Ebs.DeleteOnTermination": "false",
			},
			instance: func(_ *world, i sim.Instance) pairs {
				return pairs{{[]sim.Volume{{Device: "/dev/xvda", Type: "gp3", KMSKey: "key-1", Snapshot: "snap-1", GiB: 94, IOPS: 5000, Throughput: 250,
					InitializationRate: 200, Encrypted: true, KeptOnTermination: true, Tags: i.Tags}}, i.Volumes}}
			},
		},
		{
			name: "metadata", fields: []string{"metadataOptions.httpEndpoint", "metadataOptions.httpProtocolIPv6", "metadataOptions.httpPutResponseHopLimit", "metadataOptions.httpTokens"},
			class: func(_ *world, s *ec2nc.EC2NodeClassSpec) {
				s.MetadataOptions = &ec2nc.MetadataOptions{HTTPEndpoint: ptr.To("disabled"), HTTPProtocolIPv6: ptr.To("enabled"),
					HTTPPutResponseHopLimit: ptr.To[int64](3), HTTPTokens: ptr.To("optional")}
			},
			template: map[string]string{"MetadataOptions.HttpEndpoint": "disabled", "MetadataOptions.HttpProtocolIpv6": "enabled",
				"MetadataOptions.HttpPutResponseHopLimit": "3", "MetadataOptions.HttpTokens": "optional"},
			instance: func(_ *world, i sim.Instance) pairs {
				return pairs{{sim.Metadata{Endpoint: "disabled", IPv6: "enabled", Tokens: "optional", Tags: "disabled", HopLimit: 3}, i.Metadata}}
			},
		},
		{
			name: "monitoring, nested virtualization", fields: []string{"detailedMonitoring", "cpuOptions.nestedVirtualization"},
			class: func(_ *world, s *ec2nc.EC2NodeClassSpec) {
				s.DetailedMonitoring, s.CPUOptions = &yes, &ec2nc.CPUOptions{NestedVirtualization: ptr.To("disabled")}
			},
			template: map[string]string{"Monitoring.Enabled": "true", "CpuOptions.NestedVirtualization": "disabled"},
			instance: func(_ *world, i sim.Instance) pairs {
				return pairs{{true, i.Monitoring}, {false, i.NestedVirtualization}}
			},
		},
		{
			name: "the primary interface", fields: []string{"associatePublicIPAddress", "ipPrefixCount", "connectionTracking.tcpEstablishedTimeout",
				"connectionTracking.udpStreamTimeout", "connectionTracking.udpTimeout"},
			class: func(_ *world, s *ec2nc.EC2NodeClassSpec) {
				s.AssociatePublicIPAddress, s.IPPrefixCount = &yes, ptr.To[int32](2)
				s.ConnectionTracking = &ec2nc.ConnectionTracking{TCPEstablishedTimeout: ptr.To[int32](600), UDPStreamTimeout: ptr.To[int32](90), UDPTimeout: ptr.To[int32](40)}
			},
			template: map[string]string{"NetworkInterface.1.AssociatePublicIpAddress": "true", "NetworkInterface.1.Ipv4PrefixCount": "2",
				"NetworkInterface.1.ConnectionTrackingSpecification.TcpEstablishedTimeout": "600",
				"NetworkInterface.1.ConnectionTrackingSpecification.UdpStreamTimeout":      "90",
				"NetworkInterface.1.ConnectionTrackingSpecification.UdpTimeout":            "40"},
			instance: func(_ *world, i sim.Instance) pairs {
				return pairs{{[]sim.Interface{{Type: "interface", Public: &yes, Groups: i.Groups, IPv4Prefixes: 2, TCPEstablishedTimeout: 600, UDPStreamTimeout: 90,
					UDPTimeout: 40, Tags: i.Interfaces[0].Tags}}, i.Interfaces}}
			},
		},
		{
			name: "the class's own interfaces", fields: []string{"networkInterfaces.networkCardIndex", "networkInterfaces.deviceIndex", "networkInterfaces.interfaceType"},
			class: func(_ *world, s *ec2nc.EC2NodeClassSpec) {
				s.AssociatePublicIPAddress = &yes
				s.NetworkInterfaces = []*ec2nc.NetworkInterface{
					{NetworkCardIndex: 0, DeviceIndex: 0, InterfaceType: "interface"}, {NetworkCardIndex: 0, DeviceIndex: 1, InterfaceType: "efa-only"}}
			},
			batch: func(v *capacity.LaunchBatch) { v.Offers = []capacity.OfferKey{offer("c5n.18xlarge", "a", "on-demand")} },
			template: map[string]string{
				"NetworkInterface.1.NetworkCardIndex": "0", "NetworkInterface.1.InterfaceType": "interface", "NetworkInterface.1.AssociatePublicIpAddress": "true",
				"NetworkInterface.2.NetworkCardIndex": "0", "NetworkInterface.2.InterfaceType": "efa-only", "NetworkInterface.2.DeviceIndex": "1",
			},
			instance: func(_ *world, i sim.Instance) pairs {
				return pairs{{"interface", i.Interfaces[0].Type}, {"efa-only", i.Interfaces[1].Type}, {1, i.Interfaces[1].Device}}
			},
		},
		{
			// Here EC2 would refuse the setting for the public address.
			name: "two interfaces with addresses",
			class: func(_ *world, s *ec2nc.EC2NodeClassSpec) {
				s.AssociatePublicIPAddress = &yes
				s.NetworkInterfaces = []*ec2nc.NetworkInterface{{DeviceIndex: 0, InterfaceType: "interface"}, {DeviceIndex: 1, InterfaceType: "interface"}}
			},
			template: map[string]string{
				"NetworkInterface.1.NetworkCardIndex": "0", "NetworkInterface.1.InterfaceType": "interface",
				"NetworkInterface.2.NetworkCardIndex": "0", "NetworkInterface.2.InterfaceType": "interface", "NetworkInterface.2.DeviceIndex": "1",
			},
			instance: func(_ *world, i sim.Instance) pairs { return pairs{{2, len(i.Interfaces)}} },
		},
		{
			name: "an interface per card where EFA is asked for", class: func(*world, *ec2nc.EC2NodeClassSpec) {},
			batch: func(v *capacity.LaunchBatch) {
				v.Requests, v.Offers = capacity.Resources{ec2nc.ResourceEFA: 1}, []capacity.OfferKey{offer("c5n.18xlarge", "a", "on-demand")}
			},
			template: map[string]string{"NetworkInterface.1.NetworkCardIndex": "0", "NetworkInterface.1.InterfaceType": "efa"},
			instance: func(_ *world, i sim.Instance) pairs { return pairs{{"efa", i.Interfaces[0].Type}} },
		},
		{
			name: "an enclave where one is asked for", class: func(*world, *ec2nc.EC2NodeClassSpec) {},
			batch:    func(v *capacity.LaunchBatch) { v.Requests = capacity.Resources{ec2nc.ResourceNIPSlots: 1} },
			template: map[string]string{"EnclaveOptions.Enabled": "true"},
			instance: func(_ *world, i sim.Instance) pairs { return pairs{{true, i.Enclave}} },
		},
		{
			name: "a context for the fleet", fields: []string{"context"},
			class:    func(_ *world, s *ec2nc.EC2NodeClassSpec) { s.Context = ptr.To("ctx-1") },
			fleet:    map[string]string{"Context": "ctx-1"},
			instance: func(*world, sim.Instance) pairs { return nil },
		},
		{
			name: "a placement group by name", fields: []string{"placementGroupSelector.name"},
			class: func(w *world, s *ec2nc.EC2NodeClassSpec) {
				w.placementGroup = w.sim.AddPlacementGroup("near", "cluster", 0)
				s.PlacementGroupSelector = &ec2nc.PlacementGroupSelector{Name: ptr.To("near")}
			},
			template: map[string]string{"Placement.GroupId": "*"},
			instance: func(w *world, i sim.Instance) pairs {
				return pairs{{sim.Placement{Group: "near", GroupID: w.placementGroup, Tenancy: "default"}, i.Placement}}
			},
		},
		{
			name: "a placement group by id, in the partition that the pool asks for", fields: []string{"placementGroupSelector.id"},
			class: func(w *world, s *ec2nc.EC2NodeClassSpec) {
				w.placementGroup = w.sim.AddPlacementGroup("parts", "partition", 3)
				s.PlacementGroupSelector = &ec2nc.PlacementGroupSelector{ID: &w.placementGroup}
			},
			batch:    func(v *capacity.LaunchBatch) { v.Labels[ec2nc.LabelPlacementGroupPartition] = "2" },
			template: map[string]string{"Placement.GroupId": "*", "Placement.PartitionNumber": "2"},
			instance: func(w *world, i sim.Instance) pairs {
				return pairs{{sim.Placement{Group: "parts", GroupID: w.placementGroup, Partition: 2, Tenancy: "default"}, i.Placement}}
			},
		},
		{
			name: "capacity reservations by tags", fields: []string{"capacityReservationSelectorTerms.tags"},
			class: func(w *world, s *ec2nc.EC2NodeClassSpec) {
				w.reservation = w.sim.Reserve(sim.Reservation{Type: "m5.large", Zone: "us-west-2a", Count: 1, Tags: map[string]string{"for": "tags"}})
				s.CapacityReservationSelectorTerms = []ec2nc.CapacityReservationSelectorTerm{{Tags: map[string]string{"for": "tags"}}}
			},
			batch: reservedBatch, template: inReservation, instance: reservedInstance,
		},
		{
			name: "capacity reservations by id", fields: []string{"capacityReservationSelectorTerms.id"},
			class: func(w *world, s *ec2nc.EC2NodeClassSpec) {
				w.reservation = w.sim.Reserve(sim.Reservation{Type: "m5.large", Zone: "us-west-2a", Count: 1})
				s.CapacityReservationSelectorTerms = []ec2nc.CapacityReservationSelectorTerm{{ID: w.reservation}}
			},
			batch: reservedBatch, template: inReservation, instance: reservedInstance,
		},
		{
			name: "open capacity reservations of another account", fields: []string{"capacityReservationSelectorTerms.ownerID", "capacityReservationSelectorTerms.instanceMatchCriteria"},
			class: func(w *world, s *ec2nc.EC2NodeClassSpec) {
				w.sim.Reserve(sim.Reservation{Type: "m5.large", Zone: "us-west-2a", Count: 1, Owner: "210987654321"})
				w.reservation = w.sim.Reserve(sim.Reservation{Type: "m5.large", Zone: "us-west-2a", Count: 1, Owner: "210987654321", Match: "open"})
				s.CapacityReservationSelectorTerms = []ec2nc.CapacityReservationSelectorTerm{{OwnerID: "210987654321", InstanceMatchCriteria: "open"}}
			},
			batch: reservedBatch, template: inReservation, instance: reservedInstance,
		},
	}
}

// inReservation is the template of a launch into a reservation; "*" is any value.
var inReservation = map[string]string{
	"CapacityReservationSpecification.CapacityReservationPreference":                   "capacity-reservations-only",
	"CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId": "*",
}

func spotBatch(v *capacity.LaunchBatch) {
	v.CapacityType, v.Offers = "spot", []capacity.OfferKey{offer("m5.large", "a", "spot")}
}

// reservedBatch asks for the reservation that the class has: the test replaces "*" by its id.
func reservedBatch(v *capacity.LaunchBatch) {
	key := offer("m5.large", "a", "reserved")
	key.ReservationID = "*"
	v.CapacityType, v.Offers = "reserved", []capacity.OfferKey{key}
}

func reservedInstance(w *world, i sim.Instance) pairs { return pairs{{w.reservation, i.Reservation}} }

// Each field of a class: in the requests, and on the instance that EC2 launches from them.
func TestFieldsOnTheWireAndOnTheInstance(t *testing.T) {
	w := newWorld(t, allowed("ssm:GetParameters", "arn:aws:ssm:*:*:parameter/ours/*"))
	templates, fleets := w.forms("CreateLaunchTemplate"), w.forms("CreateFleet")
	for _, tt := range fieldCases() {
		t.Run(tt.name, func(t *testing.T) {
			w.t = t
			nc := nodeClass()
			nc.Name = strings.ReplaceAll(strings.ReplaceAll(tt.name, " ", "-"), ",", "")
			tt.class(w, &nc.Spec)
			w.SetNodeClass(nc)
			w.types(nc.Name)
			v := newBatch(nc.Name, "on-demand", 1, offer("m5.large", "a", "on-demand"))
			if v.NodeClass = nc.Name; len(v.Token) > 64 {
				v.Token = v.Token[:64]
			}
			if tt.batch != nil {
				tt.batch(&v)
			}
			for i := range v.Offers {
				v.Offers[i].ReservationID = strings.ReplaceAll(v.Offers[i].ReservationID, "*", w.reservation)
			}
			made, sent := len(templates()), len(fleets())
			res, err := w.Launch(w.ctx, w.prepared(v))
			if err != nil {
				t.Fatalf("%v: %s", err, res.Message)
			}
			if n := len(templates()) - made; n != 1 {
				t.Fatalf("%d templates, want 1", n)
			}
			template, fleet := templates()[made], fleets()[sent]
			want := maps.Clone(plainTemplate)
			for k, v := range tt.template {
				if want[k] = v; v == "" {
					delete(want, k)
				}
			}
			got := below(template, "LaunchTemplateData.")
			for k, v := range want {
				if v == "*" && got[k] != "" {
					got[k] = "*"
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("launch template (-want +got):\n%s", diff)
			}
			if !strings.HasPrefix(template.Get("LaunchTemplateName"), "karpenter.k8s.aws/") || template.Get("ClientToken") == "" {
				t.Errorf("name %q, token %q", template.Get("LaunchTemplateName"), template.Get("ClientToken"))
			}
			for k, v := range tt.fleet {
				if fleet.Get(k) != v {
					t.Errorf("fleet has %s=%q, want %q", k, fleet.Get(k), v)
				}
			}
			for i, p := range tt.instance(w, w.instance(res.Instances[0].ID)) {
				if diff := cmp.Diff(p[0], p[1], cmpopts.IgnoreUnexported(sim.Volume{}, sim.Interface{})); diff != "" {
					t.Errorf("instance, %d (-want +got):\n%s", i, diff)
				}
			}
		})
	}
}

// A field that no case covers is an untested field.
func TestEveryFieldHasACase(t *testing.T) {
	// Fields that only affect user data or the size of nodes are tested there.
	elsewhere := map[string]string{"userData": "TestUserData", "instanceStorePolicy": "TestUserData", "kubelet": "TestUserData"}
	covered := map[string]bool{}
	for _, c := range fieldCases() {
		for _, f := range c.fields {
			covered[f] = true
		}
	}
	for _, path := range leaves(reflect.TypeFor[ec2nc.EC2NodeClassSpec](), "") {
		top, _, _ := strings.Cut(path, ".")
		if elsewhere[top] == "" && !covered[path] {
			t.Errorf("no case is about %s", path)
		}
		delete(covered, path)
	}
	for path := range covered {
		t.Errorf("there is no field %s", path)
	}
}

// leaves returns the paths of all fields that hold values, as they are written in YAML.
func leaves(t reflect.Type, path string) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || t == reflect.TypeFor[resource.Quantity]() {
		return []string{strings.TrimPrefix(path, ".")}
	}
	var out []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		out = append(out, leaves(t.Field(i).Type, path+"."+name)...)
	}
	return out
}

// instance returns a live instance.
func (w *world) instance(id string) sim.Instance {
	w.t.Helper()
	all := w.sim.Instances()
	i := slices.IndexFunc(all, func(i sim.Instance) bool { return i.ID == id })
	if i < 0 {
		w.t.Fatalf("there is no instance %s", id)
	}
	return all[i]
}

// below returns the parameters under a prefix, without the prefix, and without what differs from launch to launch: tags, user data,
// ids.
func below(form url.Values, prefix string) map[string]string {
	out := map[string]string{}
	for k, v := range form {
		name, ok := strings.CutPrefix(k, prefix)
		if ok && !strings.Contains(name, "Tag.") && !strings.HasSuffix(name, "UserData") && !strings.HasSuffix(name, "ImageId") &&
			!strings.Contains(name, "SecurityGroupId") && !strings.Contains(name, "IamInstanceProfile") {
			out[name] = v[0]
		}
	}
	return out
}
