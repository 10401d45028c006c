package aws

import (
	"encoding/base64"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/bootstrap"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/capacityreservation"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/validation"
)

// options are the properties in which launch templates of one class can differ.
type options struct {
	image        string
	userData     string // not encoded
	capacityType string
	efas         int64 // number of EFA interfaces to attach; 0: none
	ipv6         bool
	tags         map[string]string
	reservation  *capacityreservation.Reservation // launch into this reservation only
	tenancy      string                           // "dedicated"; empty: shared
	partition    int32                            // of the placement group; 0: EC2 chooses
	enclave      bool
}

// launchTemplate returns the launch template of a class with these options.
func launchTemplate(r *resolved, o options) *ec2types.RequestLaunchTemplateData {
	spec := &r.class.Spec
	data := &ec2types.RequestLaunchTemplateData{
		ImageId:             &o.image,
		IamInstanceProfile:  &ec2types.LaunchTemplateIamInstanceProfileSpecificationRequest{Name: &r.profile},
		UserData:            encodeUserData(o.userData),
		BlockDeviceMappings: blockDevices(spec, r.family),
		MetadataOptions:     metadataOptions(spec.MetadataOptions, o.ipv6),
		Monitoring:          &ec2types.LaunchTemplatesMonitoringRequest{Enabled: awssdk.Bool(awssdk.ToBool(spec.DetailedMonitoring))},
		NetworkInterfaces:   interfaces(r, o),
		TagSpecifications: []ec2types.LaunchTemplateTagSpecificationRequest{
			{ResourceType: ec2types.ResourceTypeNetworkInterface, Tags: sdk.SortedTags(o.tags)},
		},
	}
	if o.capacityType == karpv1.CapacityTypeSpot {
		// EC2 refuses such tags in an on-demand fleet.
		data.TagSpecifications = append(data.TagSpecifications,
			ec2types.LaunchTemplateTagSpecificationRequest{ResourceType: ec2types.ResourceTypeSpotInstancesRequest, Tags: sdk.SortedTags(o.tags)})
	}
	// Instances that aren't meant for a reservation must not use one by chance.
	data.CapacityReservationSpecification = &ec2types.LaunchTemplateCapacityReservationSpecificationRequest{
		CapacityReservationPreference: ec2types.CapacityReservationPreferenceNone}
	if v := o.reservation; v != nil {
		data.CapacityReservationSpecification = &ec2types.LaunchTemplateCapacityReservationSpecificationRequest{
			CapacityReservationPreference: ec2types.CapacityReservationPreferenceCapacityReservationsOnly,
			CapacityReservationTarget:     &ec2types.CapacityReservationTarget{CapacityReservationId: &v.ID},
		}
		if market := v.Market(); market != "" {
			data.InstanceMarketOptions = &ec2types.LaunchTemplateInstanceMarketOptionsRequest{MarketType: market}
		}
	}
	if r.placement.ID != "" || o.tenancy != "" {
		data.Placement = &ec2types.LaunchTemplatePlacementRequest{Tenancy: ec2types.Tenancy(o.tenancy)}
		if r.placement.ID != "" {
			data.Placement.GroupId = &r.placement.ID
		}
		if o.partition > 0 {
			data.Placement.PartitionNumber = &o.partition
		}
	}
	if o.enclave {
		data.EnclaveOptions = &ec2types.LaunchTemplateEnclaveOptionsRequest{Enabled: awssdk.Bool(true)}
	}
	if c := spec.CPUOptions; c != nil && c.NestedVirtualization != nil {
		data.CpuOptions = &ec2types.LaunchTemplateCpuOptionsRequest{NestedVirtualization: ec2types.NestedVirtualizationSpecification(*c.NestedVirtualization)}
	}
	return data
}

// blockDevices returns the class's block devices, or the family's defaults.
func blockDevices(spec *ec2nc.EC2NodeClassSpec, f *bootstrap.Family) []ec2types.LaunchTemplateBlockDeviceMappingRequest {
	var out []ec2types.LaunchTemplateBlockDeviceMappingRequest
	for _, m := range spec.BlockDeviceMappings {
		e := m.EBS
		ebs := &ec2types.LaunchTemplateEbsBlockDeviceRequest{
			DeleteOnTermination: e.DeleteOnTermination, Encrypted: e.Encrypted, KmsKeyId: e.KMSKeyID, SnapshotId: e.SnapshotID,
			VolumeType: ec2types.VolumeType(awssdk.ToString(e.VolumeType)), VolumeInitializationRate: e.VolumeInitializationRate,
			Iops: narrow(e.IOPS), Throughput: narrow(e.Throughput),
		}
		if e.VolumeSize != nil {
			// Whole GiB, rounded up: EC2 has no smaller unit.
			ebs.VolumeSize = awssdk.Int32(int32((e.VolumeSize.Value() + 1<<30 - 1) >> 30))
		}
		out = append(out, ec2types.LaunchTemplateBlockDeviceMappingRequest{DeviceName: m.DeviceName, Ebs: ebs})
	}
	if len(out) > 0 {
		return out
	}
	for _, v := range f.Volumes {
		out = append(out, ec2types.LaunchTemplateBlockDeviceMappingRequest{DeviceName: awssdk.String(v.Device), Ebs: &ec2types.LaunchTemplateEbsBlockDeviceRequest{
			Encrypted: awssdk.Bool(true), VolumeType: ec2types.VolumeTypeGp3, VolumeSize: awssdk.Int32(int32(v.SizeGiB)),
			DeleteOnTermination: awssdk.Bool(true),
		}})
	}
	return out
}

func narrow(v *int64) *int32 {
	if v == nil || *v == 0 {
		return nil
	}
	return awssdk.Int32(int32(*v))
}

// metadataOptions keep pods away from the instance's credentials unless the class allows it. Tags in metadata stay off: EC2 refuses to
// start instances with tag keys that can't be shown there, and ours contain slashes.
func metadataOptions(m *ec2nc.MetadataOptions, ipv6 bool) *ec2types.LaunchTemplateInstanceMetadataOptionsRequest {
	out := &ec2types.LaunchTemplateInstanceMetadataOptionsRequest{
		HttpEndpoint:            ec2types.LaunchTemplateInstanceMetadataEndpointStateEnabled,
		HttpProtocolIpv6:        ec2types.LaunchTemplateInstanceMetadataProtocolIpv6Disabled,
		HttpPutResponseHopLimit: awssdk.Int32(1),
		HttpTokens:              ec2types.LaunchTemplateHttpTokensStateRequired,
		InstanceMetadataTags:    ec2types.LaunchTemplateInstanceMetadataTagsStateDisabled,
	}
	if m == nil {
		if ipv6 {
			out.HttpProtocolIpv6 = ec2types.LaunchTemplateInstanceMetadataProtocolIpv6Enabled
		}
		return out
	}
	if m.HTTPEndpoint != nil {
		out.HttpEndpoint = ec2types.LaunchTemplateInstanceMetadataEndpointState(*m.HTTPEndpoint)
	}
	if m.HTTPProtocolIPv6 != nil {
		out.HttpProtocolIpv6 = ec2types.LaunchTemplateInstanceMetadataProtocolIpv6(*m.HTTPProtocolIPv6)
	}
	if m.HTTPPutResponseHopLimit != nil {
		out.HttpPutResponseHopLimit = awssdk.Int32(int32(*m.HTTPPutResponseHopLimit))
	}
	if m.HTTPTokens != nil {
		out.HttpTokens = ec2types.LaunchTemplateHttpTokensState(*m.HTTPTokens)
	}
	return out
}

// interfaces returns the class's own interfaces, or one per card for EFA, or only the primary one. The fleet request adds the subnet.
func interfaces(r *resolved, o options) []ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest {
	spec := &r.class.Spec
	// EC2 accepts the setting for the public address only with a single interface; instances with several get none anyway.
	addressed := max(1, validation.AddressedInterfaces(spec), int(o.efas))
	one := func(card, dev int32, kind string) ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest {
		n := ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest{DeviceIndex: awssdk.Int32(dev), Groups: groupIDs(r)}
		if kind != "" {
			n.NetworkCardIndex, n.InterfaceType = awssdk.Int32(card), awssdk.String(kind)
		}
		if kind == string(ec2nc.InterfaceTypeEFAOnly) {
			return n // it has no addresses
		}
		if addressed == 1 {
			n.AssociatePublicIpAddress = spec.AssociatePublicIPAddress
		}
		if o.ipv6 {
			n.PrimaryIpv6, n.Ipv6AddressCount, n.Ipv6PrefixCount = awssdk.Bool(true), awssdk.Int32(1), spec.IPPrefixCount
		} else {
			n.Ipv4PrefixCount = spec.IPPrefixCount
		}
		if t := spec.ConnectionTracking; t != nil {
			n.ConnectionTrackingSpecification = &ec2types.ConnectionTrackingSpecificationRequest{
				TcpEstablishedTimeout: t.TCPEstablishedTimeout, UdpStreamTimeout: t.UDPStreamTimeout, UdpTimeout: t.UDPTimeout}
		}
		return n
	}
	var out []ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest
	for _, n := range spec.NetworkInterfaces {
		out = append(out, one(n.NetworkCardIndex, n.DeviceIndex, string(n.InterfaceType)))
	}
	if len(out) == 0 {
		for card := range int32(o.efas) {
			out = append(out, one(card, min(card, 1), string(ec2types.NetworkInterfaceTypeEfa)))
		}
	}
	if len(out) == 0 {
		out = append(out, one(0, 0, ""))
	}
	return out
}

func groupIDs(r *resolved) []string {
	var out []string
	for _, g := range r.groups {
		out = append(out, g.ID)
	}
	return out
}

func encodeUserData(s string) *string {
	if s == "" {
		return nil
	}
	return awssdk.String(base64.StdEncoding.EncodeToString([]byte(s)))
}
