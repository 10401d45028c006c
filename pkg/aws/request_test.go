package aws

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	sim "github.com/dovetail-scheduler/dovetail/test/ec2"
)

// forms are the parameters of every call of an action, as they came over the wire.
func (w *world) forms(action string) func() []url.Values {
	var mu sync.Mutex
	var out []url.Values
	w.sim.Before(action, func(r *sim.Request) *sim.Fault {
		mu.Lock()
		defer mu.Unlock()
		out = append(out, maps.Clone(r.Form))
		return nil
	})
	return func() []url.Values {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(out)
	}
}

// below are the parameters under a prefix, without it, without tags and user data.
func below(form url.Values, prefix string) map[string]string {
	out := map[string]string{}
	for k, v := range form {
		if name, ok := strings.CutPrefix(k, prefix); ok && !strings.Contains(name, "Tag.") && !strings.HasSuffix(name, "UserData") && !strings.HasSuffix(name, "ImageId") && !strings.HasSuffix(name, "Group.1") &&
			!strings.Contains(name, "SecurityGroupId") && !strings.Contains(name, "IamInstanceProfile") {
			out[name] = v[0]
		}
	}
	return out
}

// Each field of a class, on the wire.
func TestLaunchTemplateOnTheWire(t *testing.T) {
	plain := map[string]string{
		"BlockDeviceMapping.1.DeviceName": "/dev/xvda", "BlockDeviceMapping.1.Ebs.Encrypted": "true", "BlockDeviceMapping.1.Ebs.VolumeSize": "20",
		"BlockDeviceMapping.1.Ebs.VolumeType": "gp3", "BlockDeviceMapping.1.Ebs.DeleteOnTermination": "true",
		"MetadataOptions.HttpEndpoint": "enabled", "MetadataOptions.HttpProtocolIpv6": "disabled", "MetadataOptions.HttpPutResponseHopLimit": "1",
		"MetadataOptions.HttpTokens": "required", "MetadataOptions.InstanceMetadataTags": "disabled",
		"CapacityReservationSpecification.CapacityReservationPreference": "none",
		"Monitoring.Enabled": "false", "NetworkInterface.1.DeviceIndex": "0", "TagSpecification.1.ResourceType": "network-interface",
	}
	with := func(over map[string]string) map[string]string {
		out := maps.Clone(plain)
		for k, v := range over {
			if out[k] = v; v == "" {
				delete(out, k)
			}
		}
		return out
	}
	for _, tt := range []struct {
		name         string
		class        func(*ec2nc.EC2NodeClass)
		capacityType string
		requests     capacity.Resources
		instanceType string
		want         map[string]string
	}{
		{name: "nothing said", class: func(*ec2nc.EC2NodeClass) {}, want: plain},
		{
			name: "spot tags the spot request, too", class: func(*ec2nc.EC2NodeClass) {}, capacityType: "spot",
			want: with(map[string]string{"TagSpecification.2.ResourceType": "spot-instances-request"}),
		},
		{
			name: "Bottlerocket's volumes",
			class: func(nc *ec2nc.EC2NodeClass) {
				nc.Spec.AMISelectorTerms = []ec2nc.AMISelectorTerm{{Alias: "bottlerocket@1.50.0"}}
			},
			want: with(map[string]string{
				"BlockDeviceMapping.1.Ebs.VolumeSize": "4", "BlockDeviceMapping.2.DeviceName": "/dev/xvdb", "BlockDeviceMapping.2.Ebs.Encrypted": "true",
				"BlockDeviceMapping.2.Ebs.VolumeSize": "20", "BlockDeviceMapping.2.Ebs.VolumeType": "gp3", "BlockDeviceMapping.2.Ebs.DeleteOnTermination": "true",
			}),
		},
		{
			name: "block devices",
			class: func(nc *ec2nc.EC2NodeClass) {
				nc.Spec.BlockDeviceMappings = []*ec2nc.BlockDeviceMapping{{DeviceName: ptr.To("/dev/xvda"), EBS: &ec2nc.BlockDevice{
					VolumeSize: ptr.To(resource.MustParse("100G")), VolumeType: ptr.To("io2"), IOPS: ptr.To[int64](5000), Throughput: ptr.To[int64](250),
					KMSKeyID: ptr.To("key-1"), SnapshotID: ptr.To("snap-1"), VolumeInitializationRate: ptr.To[int32](200), DeleteOnTermination: ptr.To(false),
				}}}
			},
			want: with(map[string]string{
				"BlockDeviceMapping.1.Ebs.Encrypted": "", "BlockDeviceMapping.1.Ebs.VolumeSize": "94", "BlockDeviceMapping.1.Ebs.VolumeType": "io2",
				"BlockDeviceMapping.1.Ebs.Iops": "5000", "BlockDeviceMapping.1.Ebs.Throughput": "250", "BlockDeviceMapping.1.Ebs.KmsKeyId": "key-1",
				"BlockDeviceMapping.1.Ebs.SnapshotId": "snap-1", "BlockDeviceMapping.1.Ebs.VolumeInitializationRate": "200",
				"BlockDeviceMapping.1.Ebs.DeleteOnTermination": "false",
			}),
		},
		{
			name: "metadata, monitoring, addresses, connections, cores",
			class: func(nc *ec2nc.EC2NodeClass) {
				nc.Spec.MetadataOptions = &ec2nc.MetadataOptions{HTTPEndpoint: ptr.To("disabled"), HTTPProtocolIPv6: ptr.To("enabled"),
					HTTPPutResponseHopLimit: ptr.To[int64](3), HTTPTokens: ptr.To("optional")}
				nc.Spec.DetailedMonitoring, nc.Spec.AssociatePublicIPAddress, nc.Spec.IPPrefixCount = ptr.To(true), ptr.To(false), ptr.To[int32](2)
				nc.Spec.ConnectionTracking = &ec2nc.ConnectionTracking{TCPEstablishedTimeout: ptr.To[int32](600), UDPTimeout: ptr.To[int32](40)}
				nc.Spec.CPUOptions = &ec2nc.CPUOptions{NestedVirtualization: ptr.To("disabled")}
			},
			want: with(map[string]string{
				"MetadataOptions.HttpEndpoint": "disabled", "MetadataOptions.HttpProtocolIpv6": "enabled", "MetadataOptions.HttpPutResponseHopLimit": "3",
				"MetadataOptions.HttpTokens": "optional", "Monitoring.Enabled": "true", "NetworkInterface.1.AssociatePublicIpAddress": "false",
				"NetworkInterface.1.Ipv4PrefixCount": "2", "NetworkInterface.1.ConnectionTrackingSpecification.TcpEstablishedTimeout": "600",
				"NetworkInterface.1.ConnectionTrackingSpecification.UdpTimeout": "40", "CpuOptions.NestedVirtualization": "disabled",
			}),
		},
		{
			name: "an interface per card where EFA is asked for", class: func(*ec2nc.EC2NodeClass) {},
			requests: capacity.Resources{ec2nc.ResourceEFA: 1}, instanceType: "c5n.18xlarge",
			want: with(map[string]string{"NetworkInterface.1.NetworkCardIndex": "0", "NetworkInterface.1.InterfaceType": "efa"}),
		},
		{
			name: "the class's own interfaces", instanceType: "c5n.18xlarge",
			class: func(nc *ec2nc.EC2NodeClass) {
				nc.Spec.AssociatePublicIPAddress = ptr.To(false)
				nc.Spec.NetworkInterfaces = []*ec2nc.NetworkInterface{
					{NetworkCardIndex: 0, DeviceIndex: 0, InterfaceType: "interface"}, {NetworkCardIndex: 0, DeviceIndex: 1, InterfaceType: "efa-only"}}
			},
			want: with(map[string]string{
				"NetworkInterface.1.NetworkCardIndex": "0", "NetworkInterface.1.InterfaceType": "interface", "NetworkInterface.1.AssociatePublicIpAddress": "false",
				"NetworkInterface.2.NetworkCardIndex": "0", "NetworkInterface.2.InterfaceType": "efa-only", "NetworkInterface.2.DeviceIndex": "1",
			}),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			templates := w.forms("CreateLaunchTemplate")
			w.SetNodeClass(nodeClass(tt.class))
			w.types("default")
			if tt.capacityType == "" {
				tt.capacityType = "on-demand"
			}
			if tt.instanceType == "" {
				tt.instanceType = "m5.large"
			}
			v := wave("t", tt.capacityType, 1, offer(tt.instanceType, "a", tt.capacityType))
			v.Requests = tt.requests
			w.prepared(v)
			forms := templates()
			if len(forms) != 1 {
				t.Fatalf("%d templates, want 1", len(forms))
			}
			if diff := cmp.Diff(tt.want, below(forms[0], "LaunchTemplateData.")); diff != "" {
				t.Errorf("launch template (-want +got):\n%s", diff)
			}
			if !strings.HasPrefix(forms[0].Get("LaunchTemplateName"), "karpenter.k8s.aws/") || forms[0].Get("ClientToken") == "" {
				t.Errorf("name %q, token %q", forms[0].Get("LaunchTemplateName"), forms[0].Get("ClientToken"))
			}
			if p := forms[0].Get("LaunchTemplateData.IamInstanceProfile.Name"); !strings.HasPrefix(p, "films_") {
				t.Errorf("instance profile %q", p)
			}
		})
	}
}

func TestFleetOnTheWire(t *testing.T) {
	w := newWorld(t)
	fleets := w.forms("CreateFleet")
	w.SetNodeClass(nodeClass(func(nc *ec2nc.EC2NodeClass) {
		nc.Spec.Context = ptr.To("ctx-1")
		nc.Spec.Tags = map[string]string{"cost": "42", "Name": "mine"}
	}))
	w.types("default")
	for _, v := range []capacity.Wave{
		wave("on-demand-token", "on-demand", 7, offer("m5.large", "a", "on-demand"), offer("m5.large", "b", "on-demand"), offer("nobody.large", "a", "on-demand")),
		wave("spot-token", "spot", 1, offer("m5.large", "c", "spot")),
	} {
		if _, err := w.Launch(w.ctx, w.prepared(v)); err != nil {
			t.Fatal(err)
		}
	}
	subnets := map[string]string{}
	for _, s := range w.status("default", func(ec2nc.EC2NodeClassStatus) bool { return true }).Subnets {
		subnets[s.Zone] = s.ID
	}
	forms := fleets()
	common := func(form url.Values) map[string]string {
		out := map[string]string{}
		for k, v := range form {
			if !strings.HasPrefix(k, "TagSpecification") && !strings.HasSuffix(k, "LaunchTemplateName") && k != "Action" && k != "Version" {
				out[k] = v[0]
			}
		}
		return out
	}
	const c = "LaunchTemplateConfigs.1."
	if diff := cmp.Diff(map[string]string{
		"Type": "instant", "ClientToken": "on-demand-token", "Context": "ctx-1", "OnDemandOptions.AllocationStrategy": "lowest-price",
		"TargetCapacitySpecification.TotalTargetCapacity": "7", "TargetCapacitySpecification.DefaultTargetCapacityType": "on-demand",
		c + "LaunchTemplateSpecification.Version": "$Latest",
		c + "Overrides.1.InstanceType":            "m5.large", c + "Overrides.1.AvailabilityZone": "us-west-2a", c + "Overrides.1.SubnetId": subnets["us-west-2a"],
		c + "Overrides.2.InstanceType": "m5.large", c + "Overrides.2.AvailabilityZone": "us-west-2b", c + "Overrides.2.SubnetId": subnets["us-west-2b"],
	}, common(forms[0])); diff != "" {
		t.Errorf("on-demand fleet (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{
		"Type": "instant", "ClientToken": "spot-token", "Context": "ctx-1", "SpotOptions.AllocationStrategy": "price-capacity-optimized",
		"TargetCapacitySpecification.TotalTargetCapacity": "1", "TargetCapacitySpecification.DefaultTargetCapacityType": "spot",
		c + "LaunchTemplateSpecification.Version": "$Latest",
		c + "Overrides.1.InstanceType":            "m5.large", c + "Overrides.1.AvailabilityZone": "us-west-2c", c + "Overrides.1.SubnetId": subnets["us-west-2c"],
	}, common(forms[1])); diff != "" {
		t.Errorf("spot fleet (-want +got):\n%s", diff)
	}
	for i, kind := range []string{"instance", "volume", "fleet"} {
		prefix := "TagSpecification." + string(rune('1'+i)) + "."
		if got := forms[0].Get(prefix + "ResourceType"); got != kind {
			t.Errorf("tags for %s, want %s", got, kind)
		}
		tags := map[string]string{}
		for n := 1; forms[0].Has(prefix + "Tag." + number(int64(n)) + ".Key"); n++ {
			tags[forms[0].Get(prefix+"Tag."+number(int64(n))+".Key")] = forms[0].Get(prefix + "Tag." + number(int64(n)) + ".Value")
		}
		if diff := cmp.Diff(map[string]string{
			"cost": "42", "Name": "mine", "kubernetes.io/cluster/films": "owned", "eks:eks-cluster-name": "films", "karpenter.sh/nodepool": "pool",
			"karpenter.k8s.aws/ec2nodeclass": "default", "dovetail.sh/wave": "on-demand-token",
		}, tags); diff != "" {
			t.Errorf("tags of %s (-want +got):\n%s", kind, diff)
		}
	}
}

func TestFieldsWithoutEffectAreSaid(t *testing.T) {
	w := newWorld(t)
	w.SetNodeClass(nodeClass(func(nc *ec2nc.EC2NodeClass) {
		nc.Spec.AMISelectorTerms = []ec2nc.AMISelectorTerm{{Alias: "bottlerocket@latest"}}
		nc.Spec.Kubelet = &ec2nc.KubeletConfiguration{PodsPerCore: ptr.To[int32](3)}
	}))
	st := w.status("default", isReady("True"))
	if m := condition(st, ec2nc.ConditionTypeValidationSucceeded).Message; m != "spec.kubelet.podsPerCore: Bottlerocket has no such setting" {
		t.Errorf("ValidationSucceeded says %q", m)
	}
}
