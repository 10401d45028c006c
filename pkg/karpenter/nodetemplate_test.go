package karpenter

import (
	"fmt"
	"testing"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// The settings mean the same inline and in an AWSNodeTemplate.
func TestClassOfAWSSettings(t *testing.T) {
	tags := func(pairs ...string) map[string]string {
		out := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			out[pairs[i]] = pairs[i+1]
		}
		return out
	}
	fields, inlined := newDrivenFields(t, NodeTemplates), newDrivenFields(t, Provisioners)
	for _, tc := range []struct {
		name         string
		settings     string
		templateOnly bool
		options      nodeclass.Legacy
		want         func(spec *ec2nc.EC2NodeClassSpec)
	}{
		{name: "a tag with any value", settings: `{subnetSelector: {kubernetes.io/cluster/demo: '*'}, securityGroupSelector: {"aws:eks:cluster-name": demo}, instanceProfile: p}`,
			want: func(s *ec2nc.EC2NodeClassSpec) {
				s.SubnetSelectorTerms = []ec2nc.SubnetSelectorTerm{{Tags: tags("kubernetes.io/cluster/demo", "*")}}
				s.SecurityGroupSelectorTerms = []ec2nc.SecurityGroupSelectorTerm{{Tags: tags("aws:eks:cluster-name", "demo")}}
			}},
		{name: "wildcards inside values are EC2's business", settings: `{subnetSelector: {Name: 'private-*'}, securityGroupSelector: {team: a}, instanceProfile: p}`,
			want: func(s *ec2nc.EC2NodeClassSpec) {
				s.SubnetSelectorTerms = []ec2nc.SubnetSelectorTerm{{Tags: tags("Name", "private-*")}}
			}},
		{name: "all tags of a selector, any of a tag's values", settings: `{subnetSelector: {Name: 'a, b', team: x}, securityGroupSelector: {Name: 'g,h', team: 'x,y'}, instanceProfile: p}`,
			want: func(s *ec2nc.EC2NodeClassSpec) {
				s.SubnetSelectorTerms = []ec2nc.SubnetSelectorTerm{{Tags: tags("Name", "a", "team", "x")}, {Tags: tags("Name", "b", "team", "x")}}
				s.SecurityGroupSelectorTerms = []ec2nc.SecurityGroupSelectorTerm{
					{Tags: tags("Name", "g", "team", "x")}, {Tags: tags("Name", "g", "team", "y")}, {Tags: tags("Name", "h", "team", "x")}, {Tags: tags("Name", "h", "team", "y")}}
			}},
		{name: "ids, by either key", settings: `{subnetSelector: {aws-ids: "subnet-1,subnet-2"}, securityGroupSelector: {"aws::ids": "sg-1"}, instanceProfile: p}`,
			want: func(s *ec2nc.EC2NodeClassSpec) {
				s.SubnetSelectorTerms = []ec2nc.SubnetSelectorTerm{{ID: "subnet-1"}, {ID: "subnet-2"}}
				s.SecurityGroupSelectorTerms = []ec2nc.SecurityGroupSelectorTerm{{ID: "sg-1"}}
			}},
		{name: "instanceProfile: the cluster's default", settings: `{subnetSelector: {team: a}, securityGroupSelector: {team: a}}`, options: nodeclass.Legacy{DefaultInstanceProfile: "q"},
			want: func(s *ec2nc.EC2NodeClassSpec) { s.InstanceProfile = ptr.To("q") }},
		{name: "instanceProfile: its own wins", settings: settled + `}`, options: nodeclass.Legacy{DefaultInstanceProfile: "q"}, want: func(*ec2nc.EC2NodeClassSpec) {}},
		{name: "amiFamily Bottlerocket", settings: settled + `, amiFamily: Bottlerocket}`, want: func(s *ec2nc.EC2NodeClassSpec) {
			s.AMIFamily, s.AMISelectorTerms = ptr.To("Bottlerocket"), []ec2nc.AMISelectorTerm{{Alias: "bottlerocket@latest"}}
		}},
		{name: "amiFamily Windows2022", settings: settled + `, amiFamily: Windows2022}`, want: func(s *ec2nc.EC2NodeClassSpec) {
			s.AMIFamily, s.AMISelectorTerms = ptr.To("Windows2022"), []ec2nc.AMISelectorTerm{{Alias: "windows2022@latest"}}
		}},
		{name: "context", settings: settled + `, context: c}`, want: func(s *ec2nc.EC2NodeClassSpec) { s.Context = ptr.To("c") }},
		{name: "tags", settings: settled + `, tags: {cost: low, Name: mine, kubernetes.io/cluster/demo: owned}}`, want: func(s *ec2nc.EC2NodeClassSpec) {
			s.Tags = tags("cost", "low", "Name", "mine", "karpenter.sh/provisioner-name", "old")
		}},
		{name: "metadataOptions", settings: settled + `, metadataOptions: {httpEndpoint: disabled, httpProtocolIPv6: enabled, httpPutResponseHopLimit: 64, httpTokens: optional}}`,
			want: func(s *ec2nc.EC2NodeClassSpec) {
				s.MetadataOptions = &ec2nc.MetadataOptions{HTTPEndpoint: ptr.To("disabled"), HTTPProtocolIPv6: ptr.To("enabled"), HTTPPutResponseHopLimit: ptr.To[int64](64), HTTPTokens: ptr.To("optional")}
			}},
		{name: "metadataOptions: one of them", settings: settled + `, metadataOptions: {httpTokens: optional}}`,
			want: func(s *ec2nc.EC2NodeClassSpec) { s.MetadataOptions.HTTPTokens = ptr.To("optional") }},
		{name: "blockDeviceMappings", settings: settled + `, blockDeviceMappings: [{deviceName: /dev/xvda, ebs: {deleteOnTermination: true, encrypted: true, iops: 3000, kmsKeyID: k, snapshotID: snap-1,
			throughput: 125, volumeSize: 100Gi, volumeType: gp3}}, {deviceName: /dev/sdb, virtualName: ephemeral0}]}`,
			want: func(s *ec2nc.EC2NodeClassSpec) {
				s.BlockDeviceMappings = []*ec2nc.BlockDeviceMapping{{DeviceName: ptr.To("/dev/xvda"), EBS: &ec2nc.BlockDevice{
					DeleteOnTermination: ptr.To(true), Encrypted: ptr.To(true), IOPS: ptr.To[int64](3000), KMSKeyID: ptr.To("k"), SnapshotID: ptr.To("snap-1"),
					Throughput: ptr.To[int64](125), VolumeSize: ptr.To(resource.MustParse("100Gi")), VolumeType: ptr.To("gp3"),
				}}}
			}},
		{name: "userData", settings: settled + `, userData: "#!/bin/sh"}`, templateOnly: true, want: func(s *ec2nc.EC2NodeClassSpec) { s.UserData = ptr.To("#!/bin/sh") }},
		{name: "detailedMonitoring", settings: settled + `, detailedMonitoring: true}`, templateOnly: true, want: func(s *ec2nc.EC2NodeClassSpec) { s.DetailedMonitoring = ptr.To(true) }},
		{name: "amiSelector: tags", settings: settled + `, amiSelector: {role: 'node,other'}}`, templateOnly: true, want: func(s *ec2nc.EC2NodeClassSpec) {
			s.AMISelectorTerms = []ec2nc.AMISelectorTerm{{Tags: tags("role", "node")}, {Tags: tags("role", "other")}}
		}},
		{name: "amiSelector: name and owners", settings: settled + `, amiSelector: {"aws::name": "my-*", "aws::owners": "self,123456789012", role: node}}`, templateOnly: true,
			want: func(s *ec2nc.EC2NodeClassSpec) {
				s.AMISelectorTerms = []ec2nc.AMISelectorTerm{{Name: "my-*", Owner: "self", Tags: tags("role", "node")}, {Name: "my-*", Owner: "123456789012", Tags: tags("role", "node")}}
			}},
		{name: "amiSelector: ids of the family Custom", settings: settled + `, amiFamily: Custom, amiSelector: {aws-ids: "ami-1,ami-2"}}`, templateOnly: true,
			want: func(s *ec2nc.EC2NodeClassSpec) {
				s.AMIFamily, s.AMISelectorTerms = ptr.To("Custom"), []ec2nc.AMISelectorTerm{{ID: "ami-1"}, {ID: "ami-2"}}
			}},
	} {
		fields.by(tc.settings)
		if !tc.templateOnly {
			inlined.by(`{provider: ` + tc.settings + `}`)
		}
		t.Run(tc.name, func(t *testing.T) {
			var classes []*ec2nc.EC2NodeClass
			add := func(_ *karpv1.NodePool, nc *ec2nc.EC2NodeClass, err error) {
				if err != nil {
					t.Fatal(err)
				}
				classes = append(classes, nc)
			}
			np, nc, errs := fromProvisioner(provisioner(t, byRef+`}`), nodeTemplate(t, tc.settings), tc.options)
			add(np, nc, errs.ToAggregate())
			refusedByDefinition(t, NodeTemplates, tc.settings, "")
			if !tc.templateOnly {
				refusedByDefinition(t, Provisioners, `{provider: `+tc.settings+`}`, "")
				np, nc, errs = fromProvisioner(provisioner(t, `{provider: `+tc.settings+`}`), nil, tc.options)
				add(np, nc, errs.ToAggregate())
			}
			_, want := smallest()
			tc.want(&want.Spec)
			for i, nc := range classes {
				same(t, fmt.Sprintf("class of %s", []string{"a template", "the Provisioner"}[i]), want, nc)
				if err := acceptable(nc, "spec"); err != nil {
					t.Errorf("today's definition: %v", err)
				}
			}
		})
	}
	fields.all("", "launchTemplate" /* TestLaunchTemplateOfTheUser */)
	inlined.all("provider.", "provider.launchTemplate", "provider.apiVersion", "provider.kind" /* TestFromProvisioner */)
}

func TestLaunchTemplateOfTheUser(t *testing.T) {
	_, got, errs := fromProvisioner(provisioner(t, `{provider: {launchTemplate: mine, subnetSelector: {team: a}, tags: {cost: low}, context: c}}`), nil, nodeclass.Legacy{})
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	_, want := smallest()
	want.Annotations[objects.AnnotationLaunchTemplate] = "mine"
	want.Spec = ec2nc.EC2NodeClassSpec{SubnetSelectorTerms: want.Spec.SubnetSelectorTerms, Context: ptr.To("c"), Tags: want.Spec.Tags}
	want.Spec.Tags["cost"] = "low"
	same(t, "class", want, got)
}
