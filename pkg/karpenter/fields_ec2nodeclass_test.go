package karpenter

import (
	"fmt"
	"strings"
	"testing"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/dovetail-scheduler/dovetail/pkg/aws"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/catalog"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
)

// aRegion is a catalogue of one instance type, in one zone.
const aRegion = `{"meta":{"region":"eu-west-1","source":"test","asOf":"2026-03-01"},"instanceTypes":[
	{"name":"m5.large","arch":["x86_64"],"hypervisor":"nitro","vcpus":2,"memoryMiB":8192,"maxENIs":3,"ipv4PerENI":10,"usageClasses":["on-demand"],"zones":["eu-west-1a"],"onDemandUSDPerHour":0.1}
]}`

// TestEveryFieldOfEC2NodeClass tests which fields change a class's hash, and that wrong values are refused: by the definition, or by
// the cloud adapter when it reads the class, whose message becomes the condition ValidationSucceeded. The fields' effects on launches
// are tested in pkg/aws.
func TestEveryFieldOfEC2NodeClass(t *testing.T) {
	file, err := catalog.Read(strings.NewReader(aRegion))
	if err != nil {
		t.Fatal(err)
	}
	cloud, err := aws.NewOffline(file, aws.OfflineConfig{})
	if err != nil {
		t.Fatal(err)
	}
	k := &kindOfFields{
		kind: "EC2NodeClass",
		base: `
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default, uid: uid-of-class-default, generation: 1}
spec:
  subnetSelectorTerms: [{id: subnet-1}]
  securityGroupSelectorTerms: [{id: sg-1}]
  amiSelectorTerms: [{alias: al2023@latest}]
  role: nodes
`,
		more: func(t *testing.T, u *unstructured.Unstructured) []string {
			nc := used[*ec2nc.EC2NodeClass](t, u, NodeClasses(nodeclass.Kind).New)
			if why := Malformed(nc); why != "" {
				return strings.Split(why, "; ")
			}
			if _, _, err := cloud.InstanceTypes(nc); err != nil {
				return []string{strings.TrimPrefix(err.Error(), "EC2NodeClass default: ")}
			}
			return nil
		},
	}
	k.see = func(t *testing.T, u *unstructured.Unstructured, at string) string {
		before := used[*ec2nc.EC2NodeClass](t, fromYAML(t, k.base), NodeClasses(nodeclass.Kind).New)
		nc := used[*ec2nc.EC2NodeClass](t, u, NodeClasses(nodeclass.Kind).New)
		if asJSON(before.Spec) == asJSON(nc.Spec) {
			return "nothing"
		}
		if nodeclass.Kind.Hash(before, "ca") == nodeclass.Kind.Hash(nc, "ca") {
			return "a class whose nodes stay"
		}
		return "another class"
	}
	const another, stays = "another class", "a class whose nodes stay"
	manyTags := "{"
	for i := range 21 {
		manyTags += fmt.Sprintf("t%d: v, ", i)
	}
	manyTags += "}"
	terms := func(n int, one string) string { return "[" + strings.Repeat(one+", ", n) + "]" }
	kubelet := func(name, valid string, invalid ...string) fieldCase {
		leaf, _, _ := strings.Cut(name, "[")
		leaf, _, _ = strings.Cut(leaf, "{")
		return fieldCase{fields: []string{"kubelet." + name}, at: "kubelet." + leaf, valid: valid, want: another, invalid: refusedAs("spec.kubelet."+leaf, invalid...)}
	}
	device := func(leaf, valid, names string, invalid ...string) fieldCase {
		c := fieldCase{fields: []string{"blockDeviceMappings[]." + leaf}, at: "blockDeviceMappings", valid: "[" + valid + "]", want: another}
		for _, v := range invalid {
			c.invalid = append(c.invalid, wrong{"[" + v + "]", "spec.blockDeviceMappings" + names})
		}
		return c
	}
	k.run(t, []fieldCase{
		{fields: []string{"subnetSelectorTerms[].id", "subnetSelectorTerms[].tags{}"}, at: "subnetSelectorTerms", valid: "[{id: subnet-2}, {tags: {a: '*'}}]", want: stays, invalid: refusedAs("spec.subnetSelectorTerms",
			"[]", "null", "[{}]", "[{id: subnet-1, tags: {a: b}}]", "[{id: vpc-1}]", "[{tags: {a: ''}}]", "[{tags: {'': b}}]", "[{tags: "+manyTags+"}]", terms(31, "{id: subnet-1}"))},
		{fields: []string{"securityGroupSelectorTerms[].id", "securityGroupSelectorTerms[].name", "securityGroupSelectorTerms[].tags{}"}, at: "securityGroupSelectorTerms", valid: "[{id: sg-2}, {name: nodes}, {tags: {a: b}}]", want: stays,
			invalid: refusedAs("spec.securityGroupSelectorTerms", "[]", "[{}]", "[{id: sg-1, name: x}]", "[{name: x, tags: {a: b}}]", "[{id: group-1}]", "[{tags: {a: ''}}]", terms(31, "{id: sg-1}"))},
		{fields: []string{"capacityReservationSelectorTerms[].id", "capacityReservationSelectorTerms[].tags{}", "capacityReservationSelectorTerms[].ownerID", "capacityReservationSelectorTerms[].instanceMatchCriteria"},
			at: "capacityReservationSelectorTerms", valid: "[{id: cr-1}, {tags: {a: b}, ownerID: '123456789012', instanceMatchCriteria: open}]", want: stays,
			invalid: refusedAs("spec.capacityReservationSelectorTerms", "[{}]", "[{id: cr-1, ownerID: '123456789012'}]", "[{id: res-1}]", "[{tags: {a: b}, ownerID: me}]", "[{instanceMatchCriteria: closed}]", "[{tags: {a: ''}}]", terms(31, "{id: cr-1}"))},
		{fields: []string{"placementGroupSelector.name", "placementGroupSelector.id"}, at: "placementGroupSelector", valid: "{name: near}", want: another, invalid: refusedAs("spec.placementGroupSelector", "{}", "{name: a, id: pg-1}", "{id: x}", "{name: ''}")},
		{fields: []string{"associatePublicIPAddress"}, at: "associatePublicIPAddress", valid: "false", want: another, invalid: refusedAs("spec.associatePublicIPAddress", "maybe")},
		{fields: []string{"ipPrefixCount"}, at: "ipPrefixCount", valid: "2", want: stays, invalid: refusedAs("spec.ipPrefixCount", "-1", "many")},
		{fields: []string{"amiSelectorTerms[].alias"}, at: "amiSelectorTerms", valid: "[{alias: bottlerocket@v1.20.0}]", want: another, invalid: refusedAs("spec.amiSelectorTerms",
			"[]", "[{}]", "[{alias: al2023}]", "[{alias: ubuntu@latest}]", "[{alias: windows2022@v1}]", "[{alias: al2023@latest, id: ami-1}]", "[{alias: al2023@latest}, {id: ami-1}]", "[{alias: al2023@"+strings.Repeat("v", 30)+"}]", "[{alias: al2@latest}]")},
		{fields: []string{"amiSelectorTerms[].id", "amiSelectorTerms[].tags{}", "amiSelectorTerms[].name", "amiSelectorTerms[].owner", "amiSelectorTerms[].ssmParameter", "amiFamily"}, at: "",
			valid: "{subnetSelectorTerms: [{id: subnet-1}], securityGroupSelectorTerms: [{id: sg-1}], role: nodes, amiFamily: Bottlerocket, amiSelectorTerms: [{id: ami-1}, {tags: {a: b}, name: mine, owner: self}, {ssmParameter: /my/ami}]}", want: another,
			invalid: []wrong{
				{"{subnetSelectorTerms: [{id: subnet-1}], securityGroupSelectorTerms: [{id: sg-1}], role: nodes, amiSelectorTerms: [{id: ami-1}]}", "spec"},
				{"{subnetSelectorTerms: [{id: subnet-1}], securityGroupSelectorTerms: [{id: sg-1}], role: nodes, amiFamily: Bottlerocket, amiSelectorTerms: [{alias: al2023@latest}]}", "spec"},
				{"{subnetSelectorTerms: [{id: subnet-1}], securityGroupSelectorTerms: [{id: sg-1}], role: nodes, amiFamily: Debian, amiSelectorTerms: [{id: ami-1}]}", "spec.amiFamily"},
				{"{subnetSelectorTerms: [{id: subnet-1}], securityGroupSelectorTerms: [{id: sg-1}], role: nodes, amiFamily: Custom, amiSelectorTerms: [{id: ami-1, name: x}]}", "spec.amiSelectorTerms"},
				{"{subnetSelectorTerms: [{id: subnet-1}], securityGroupSelectorTerms: [{id: sg-1}], role: nodes, amiFamily: Custom, amiSelectorTerms: [{id: image-1}]}", "spec.amiSelectorTerms[0].id"},
				{"{subnetSelectorTerms: [{id: subnet-1}], securityGroupSelectorTerms: [{id: sg-1}], role: nodes, amiFamily: Custom, amiSelectorTerms: [{tags: {'': x}}]}", "spec.amiSelectorTerms[0].tags"},
			}},
		{fields: []string{"userData"}, at: "userData", valid: "'#!/bin/sh'", want: another, invalid: refusedAs("spec.userData", "{}", "'"+strings.Repeat("x", 20000)+"'")},
		{fields: []string{"role"}, at: "role", valid: "others", want: another, invalid: append(refusedAs("spec.role", "''", "[]"), wrong{"null", "spec"})},
		{fields: []string{"instanceProfile"}, at: "", valid: "{subnetSelectorTerms: [{id: subnet-1}], securityGroupSelectorTerms: [{id: sg-1}], amiSelectorTerms: [{alias: al2023@latest}], instanceProfile: mine}", want: another,
			invalid: []wrong{
				{"{subnetSelectorTerms: [{id: subnet-1}], securityGroupSelectorTerms: [{id: sg-1}], amiSelectorTerms: [{alias: al2023@latest}], instanceProfile: ''}", "spec.instanceProfile"},
				{"{subnetSelectorTerms: [{id: subnet-1}], securityGroupSelectorTerms: [{id: sg-1}], amiSelectorTerms: [{alias: al2023@latest}], instanceProfile: mine, role: mine}", "spec"},
			}},
		{fields: []string{"tags{}"}, at: "tags", valid: "{team: a}", want: another, invalid: refusedAs("spec.tags", "{'': x}", "{eks:eks-cluster-name: x}", "{kubernetes.io/cluster/x: owned}", "{karpenter.sh/nodepool: x}", "{karpenter.sh/nodeclaim: x}", "{karpenter.k8s.aws/ec2nodeclass: x}", "{dovetail.sh/launch-batch: x}", "[a]")},
		kubelet("clusterDNS[]", "[10.0.0.10]", "[dns]", "10.0.0.10"),
		kubelet("maxPods", "50", "-1", "many"),
		kubelet("podsPerCore", "10", "-1"),
		kubelet("systemReserved{}", "{cpu: 100m, memory: 100Mi}", "{disk: 1Gi}", "{cpu: -1}", "{cpu: lots}"),
		kubelet("kubeReserved{}", "{pid: '1000', ephemeral-storage: 1Gi}", "{disk: 1Gi}", "{memory: -1Gi}", "{memory: lots}"),
		kubelet("evictionHard{}", "{memory.available: 5%, nodefs.available: 1Gi}", "{disk.available: 5%}", "{memory.available: lots}", "{memory.available: 101%}", "{memory.available: -1Mi}"),
		{fields: []string{"kubelet.evictionSoft{}", "kubelet.evictionSoftGracePeriod{}"}, at: "kubelet", valid: "{evictionSoft: {memory.available: 10%}, evictionSoftGracePeriod: {memory.available: 1m}}", want: another, invalid: []wrong{
			{"{evictionSoft: {memory.available: 10%}}", "spec.kubelet"}, {"{evictionSoftGracePeriod: {memory.available: 1m}}", "spec.kubelet"},
			{"{evictionSoft: {disk.available: 10%}, evictionSoftGracePeriod: {disk.available: 1m}}", "spec.kubelet.evictionSoft"}, {"{evictionSoft: {memory.available: lots}, evictionSoftGracePeriod: {memory.available: 1m}}", "spec.kubelet.evictionSoft"},
			{"{evictionSoft: {memory.available: 10%}, evictionSoftGracePeriod: {memory.available: soon}}", "spec.kubelet.evictionSoftGracePeriod"}, {"{evictionSoft: {memory.available: 10%}, evictionSoftGracePeriod: {memory.available: -1m}}", "spec.kubelet.evictionSoftGracePeriod"},
		}},
		kubelet("evictionMaxPodGracePeriod", "60", "-1", "long"),
		{fields: []string{"kubelet.imageGCHighThresholdPercent", "kubelet.imageGCLowThresholdPercent"}, at: "kubelet", valid: "{imageGCHighThresholdPercent: 80, imageGCLowThresholdPercent: 60}", want: another, invalid: []wrong{
			{"{imageGCHighThresholdPercent: 60, imageGCLowThresholdPercent: 60}", "spec.kubelet"}, {"{imageGCHighThresholdPercent: 101}", "spec.kubelet.imageGCHighThresholdPercent"}, {"{imageGCLowThresholdPercent: -1}", "spec.kubelet.imageGCLowThresholdPercent"},
		}},
		kubelet("cpuCFSQuota", "false", "maybe"),
		device("deviceName", "{deviceName: /dev/xvda, ebs: {volumeSize: 30Gi}}", "[0].deviceName", "{ebs: {volumeSize: 30Gi}}", "{deviceName: '', ebs: {volumeSize: 30Gi}}"),
		device("rootVolume", "{deviceName: /dev/xvda, rootVolume: true, ebs: {volumeSize: 30Gi}}", "", "{deviceName: a, rootVolume: true, ebs: {volumeSize: 30Gi}}, {deviceName: b, rootVolume: true, ebs: {volumeSize: 30Gi}}", "{deviceName: a}"),
		device("ebs.deleteOnTermination", "{deviceName: /dev/xvda, ebs: {volumeSize: 30Gi, deleteOnTermination: false}}", "[0].ebs.deleteOnTermination", "{deviceName: a, ebs: {volumeSize: 30Gi, deleteOnTermination: maybe}}"),
		device("ebs.encrypted", "{deviceName: /dev/xvda, ebs: {volumeSize: 30Gi, encrypted: true}}", "[0].ebs.encrypted", "{deviceName: a, ebs: {volumeSize: 30Gi, encrypted: maybe}}"),
		device("ebs.iops", "{deviceName: /dev/xvda, ebs: {volumeSize: 30Gi, volumeType: io2, iops: 5000}}", "[0].ebs.iops", "{deviceName: a, ebs: {volumeSize: 30Gi, iops: many}}", "{deviceName: a, ebs: {volumeSize: 30Gi, iops: -1}}"),
		device("ebs.kmsKeyID", "{deviceName: /dev/xvda, ebs: {volumeSize: 30Gi, encrypted: true, kmsKeyID: alias/mine}}", "[0].ebs.kmsKeyID", "{deviceName: a, ebs: {volumeSize: 30Gi, kmsKeyID: 3}}"),
		device("ebs.snapshotID", "{deviceName: /dev/xvda, ebs: {snapshotID: snap-1}}", "[0].ebs", "{deviceName: a, ebs: {}}", "{deviceName: a, ebs: {snapshotID: 3}}"),
		device("ebs.throughput", "{deviceName: /dev/xvda, ebs: {volumeSize: 30Gi, volumeType: gp3, throughput: 500}}", "[0].ebs.throughput", "{deviceName: a, ebs: {volumeSize: 30Gi, throughput: fast}}", "{deviceName: a, ebs: {volumeSize: 30Gi, throughput: -1}}"),
		device("ebs.volumeInitializationRate", "{deviceName: /dev/xvda, ebs: {snapshotID: snap-1, volumeInitializationRate: 200}}", "[0].ebs", "{deviceName: a, ebs: {snapshotID: snap-1, volumeInitializationRate: 99}}", "{deviceName: a, ebs: {snapshotID: snap-1, volumeInitializationRate: 301}}", "{deviceName: a, ebs: {volumeSize: 30Gi, volumeInitializationRate: 200}}"),
		device("ebs.volumeSize", "{deviceName: /dev/xvda, ebs: {volumeSize: 2Ti}}", "[0].ebs", "{deviceName: a, ebs: {volumeSize: 0Gi}}", "{deviceName: a, ebs: {volumeSize: 30}}", "{deviceName: a, ebs: {volumeSize: 100Ti}}", "{deviceName: a, ebs: {volumeSize: big}}"),
		device("ebs.volumeType", "{deviceName: /dev/xvda, ebs: {volumeSize: 30Gi, volumeType: io1, iops: 100}}", "[0].ebs.volumeType", "{deviceName: a, ebs: {volumeSize: 30Gi, volumeType: gp9}}"),
		{fields: []string{"instanceStorePolicy"}, at: "instanceStorePolicy", valid: "RAID0", want: another, invalid: refusedAs("spec.instanceStorePolicy", "RAID5", "''")},
		{fields: []string{"networkInterfaces[].networkCardIndex", "networkInterfaces[].deviceIndex", "networkInterfaces[].interfaceType"}, at: "networkInterfaces",
			valid: "[{networkCardIndex: 0, deviceIndex: 0, interfaceType: interface}, {networkCardIndex: 0, deviceIndex: 1, interfaceType: efa-only}]", want: another, invalid: refusedAs("spec.networkInterfaces",
				"[{networkCardIndex: 0, deviceIndex: 1, interfaceType: interface}]", "[{networkCardIndex: 0, deviceIndex: 0, interfaceType: efa-only}]", "[{networkCardIndex: 0, deviceIndex: 0, interfaceType: interface}, {networkCardIndex: 0, deviceIndex: 0, interfaceType: interface}]",
				"[{networkCardIndex: 0, deviceIndex: 0, interfaceType: interface}, {networkCardIndex: 1, deviceIndex: 0, interfaceType: efa-only}, {networkCardIndex: 1, deviceIndex: 1, interfaceType: efa-only}]",
				"[{networkCardIndex: 0, deviceIndex: 0, interfaceType: interface}, {networkCardIndex: -1, deviceIndex: 0, interfaceType: interface}]", "[{networkCardIndex: 0, deviceIndex: 0, interfaceType: interface}, {networkCardIndex: 0, deviceIndex: -1, interfaceType: interface}]",
				"[{networkCardIndex: 0, deviceIndex: 0, interfaceType: trunk}]")},
		{fields: []string{"detailedMonitoring"}, at: "detailedMonitoring", valid: "true", want: another, invalid: refusedAs("spec.detailedMonitoring", "maybe")},
		{fields: []string{"metadataOptions.httpEndpoint"}, at: "metadataOptions.httpEndpoint", valid: "disabled", want: another, invalid: refusedAs("spec.metadataOptions.httpEndpoint", "on")},
		{fields: []string{"metadataOptions.httpProtocolIPv6"}, at: "metadataOptions.httpProtocolIPv6", valid: "enabled", want: another, invalid: refusedAs("spec.metadataOptions.httpProtocolIPv6", "on")},
		{fields: []string{"metadataOptions.httpPutResponseHopLimit"}, at: "metadataOptions.httpPutResponseHopLimit", valid: "2", want: another, invalid: refusedAs("spec.metadataOptions.httpPutResponseHopLimit", "0", "65", "far")},
		{fields: []string{"metadataOptions.httpTokens"}, at: "metadataOptions.httpTokens", valid: "optional", want: another, invalid: refusedAs("spec.metadataOptions.httpTokens", "never")},
		{fields: []string{"connectionTracking.tcpEstablishedTimeout"}, at: "connectionTracking.tcpEstablishedTimeout", valid: "600", want: another, invalid: refusedAs("spec.connectionTracking.tcpEstablishedTimeout", "59", "432001", "long")},
		{fields: []string{"connectionTracking.udpStreamTimeout"}, at: "connectionTracking.udpStreamTimeout", valid: "90", want: another, invalid: refusedAs("spec.connectionTracking.udpStreamTimeout", "59", "181")},
		{fields: []string{"connectionTracking.udpTimeout"}, at: "connectionTracking.udpTimeout", valid: "45", want: another, invalid: refusedAs("spec.connectionTracking.udpTimeout", "29", "61")},
		{fields: []string{"context"}, at: "context", valid: "ctx-1", want: another, invalid: refusedAs("spec.context", "{}")},
		{fields: []string{"cpuOptions.nestedVirtualization"}, at: "cpuOptions.nestedVirtualization", valid: "enabled", want: another, invalid: refusedAs("spec.cpuOptions.nestedVirtualization", "yes")},
	})
	if got := fieldTexts(shipped.Admit(k.with(t, "connectionTracking", "{}"))); len(got) != 1 || !strings.HasPrefix(got[0], "spec.connectionTracking:") {
		t.Errorf("connection tracking without any timeout: %q", got)
	}
}
