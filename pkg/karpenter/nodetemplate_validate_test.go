package karpenter

import (
	"strings"
	"testing"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
)

func TestInvalidAWSSettings(t *testing.T) {
	const noGroups = `{subnetSelector: {team: a}, instanceProfile: p`
	fields, inlined := newDrivenFields(t, NodeTemplates), newDrivenFields(t, Provisioners)
	for _, tc := range []struct {
		name         string
		settings     string
		templateOnly bool
		want         string // the field, relative to the settings, and part of the error
		api          string // the field that the definition refuses; empty: it accepts the value
	}{
		{name: "a volume that is perhaps encrypted", settings: settled + `, blockDeviceMappings: [{deviceName: a, ebs: {volumeSize: 1Gi, encrypted: maybe}}]}`, want: "blockDeviceMappings[0].ebs.encrypted", api: "blockDeviceMappings[0].ebs.encrypted"},
		{name: "a volume that perhaps goes", settings: settled + `, blockDeviceMappings: [{deviceName: a, ebs: {volumeSize: 1Gi, deleteOnTermination: maybe}}]}`, want: "blockDeviceMappings[0].ebs.deleteOnTermination", api: "blockDeviceMappings[0].ebs.deleteOnTermination"},
		{name: "monitoring now and then", settings: settled + `, detailedMonitoring: often}`, templateOnly: true, want: "detailedMonitoring", api: "detailedMonitoring"},
		{name: "no subnets", settings: `{securityGroupSelector: {team: a}, instanceProfile: p}`, want: "subnetSelector: Required", api: "subnetSelector"},
		{name: "no subnets at all", settings: `{subnetSelector: {}, securityGroupSelector: {team: a}, instanceProfile: p}`, want: "subnetSelector: Required", api: "subnetSelector"},
		{name: "a tag without value", settings: `{subnetSelector: {team: ""}, securityGroupSelector: {team: a}, instanceProfile: p}`, want: "subnetSelector[team]: Invalid value", api: "subnetSelector.team"},
		{name: "a list with a hole", settings: `{subnetSelector: {team: "a,,b"}, securityGroupSelector: {team: a}, instanceProfile: p}`, want: "subnetSelector[team]: Invalid value"},
		{name: "a tag without key", settings: `{subnetSelector: {"": a}, securityGroupSelector: {team: a}, instanceProfile: p}`, want: "subnetSelector[]: Invalid value", api: "subnetSelector"},
		{name: "an id that is none", settings: `{subnetSelector: {aws-ids: "subnet-1,vpc-1"}, securityGroupSelector: {team: a}, instanceProfile: p}`, want: `subnetSelector[aws-ids]: Invalid value: "vpc-1"`},
		{name: "ids and tags", settings: `{subnetSelector: {aws-ids: subnet-1, team: a}, securityGroupSelector: {team: a}, instanceProfile: p}`, want: "subnetSelector: Invalid value"},
		{name: "lists that multiply", settings: `{subnetSelector: {a: "1,2,3,4,5,6", b: "1,2,3,4,5,6"}, securityGroupSelector: {team: a}, instanceProfile: p}`, want: "its lists combine to more than 30 selectors"},
		{name: "no security groups", settings: noGroups + `}`, want: "securityGroupSelector: Required", api: "."},
		{name: "a security group id that is none", settings: noGroups + `, securityGroupSelector: {"aws::ids": x}}`, want: "securityGroupSelector[aws::ids]: Invalid value"},
		{name: "no instance profile anywhere", settings: `{subnetSelector: {team: a}, securityGroupSelector: {team: a}}`, want: "instanceProfile: Required"},
		{name: "AL2", settings: settled + `, amiFamily: AL2}`, want: "amiFamily: Invalid value: \"AL2\": AL2 has no images for Kubernetes 1.33 and newer; use AL2023 or Bottlerocket"},
		{name: "Ubuntu", settings: settled + `, amiFamily: Ubuntu}`, want: `amiFamily: Unsupported value: "Ubuntu"`},
		{name: "a family that there never was", settings: settled + `, amiFamily: Gentoo}`, want: `amiFamily: Unsupported value: "Gentoo"`, api: "amiFamily"},
		{name: "Custom without images", settings: settled + `, amiFamily: Custom}`, templateOnly: true, want: "amiSelector: Required", api: "."},
		{name: "an image id that is none", settings: settled + `, amiSelector: {aws-ids: i-1}}`, templateOnly: true, want: "amiSelector[aws-ids]: Invalid value"},
		{name: "any image of an owner", settings: settled + `, amiSelector: {"aws::owners": self}}`, templateOnly: true, want: "amiSelector: Invalid value"},
		{name: "a tag without key on instances", settings: settled + `, tags: {"": a}}`, want: "tags[]: Invalid value", api: "tags"},
		{name: "a tag of the program's", settings: settled + `, tags: {karpenter.sh/nodepool: a}}`, want: "tags[karpenter.sh/nodepool]: Forbidden"},
		{name: "the Provisioner's tag", settings: settled + `, tags: {karpenter.sh/provisioner-name: a}}`, want: "tags[karpenter.sh/provisioner-name]: Forbidden"},
		{name: "another cluster's tag", settings: settled + `, tags: {kubernetes.io/cluster/other: shared}}`, want: "tags[kubernetes.io/cluster/other]: Forbidden"},
		{name: "metadata: half on", settings: settled + `, metadataOptions: {httpEndpoint: half}}`, want: "metadataOptions.httpEndpoint: Unsupported value", api: "metadataOptions.httpEndpoint"},
		{name: "metadata: some IPv6", settings: settled + `, metadataOptions: {httpProtocolIPv6: some}}`, want: "metadataOptions.httpProtocolIPv6: Unsupported value", api: "metadataOptions.httpProtocolIPv6"},
		{name: "metadata: too far", settings: settled + `, metadataOptions: {httpPutResponseHopLimit: 65}}`, want: "metadataOptions.httpPutResponseHopLimit: Invalid value", api: "metadataOptions.httpPutResponseHopLimit"},
		{name: "metadata: nowhere", settings: settled + `, metadataOptions: {httpPutResponseHopLimit: 0}}`, want: "metadataOptions.httpPutResponseHopLimit: Invalid value", api: "metadataOptions.httpPutResponseHopLimit"},
		{name: "metadata: tokens wanted", settings: settled + `, metadataOptions: {httpTokens: wanted}}`, want: "metadataOptions.httpTokens: Unsupported value", api: "metadataOptions.httpTokens"},
		{name: "a device without name", settings: settled + `, blockDeviceMappings: [{ebs: {volumeSize: 1Gi}}]}`, want: "blockDeviceMappings[0].deviceName: Required", api: "blockDeviceMappings.0.deviceName"},
		{name: "a device of nothing", settings: settled + `, blockDeviceMappings: [{deviceName: a}]}`, want: "blockDeviceMappings[0].ebs: Required"},
		{name: "a volume of no size", settings: settled + `, blockDeviceMappings: [{deviceName: a, ebs: {}}]}`, want: "blockDeviceMappings[0].ebs.volumeSize: Required", api: "blockDeviceMappings.0.ebs"},
		{name: "a volume too small", settings: settled + `, blockDeviceMappings: [{deviceName: a, ebs: {volumeSize: 1Mi}}]}`, want: "blockDeviceMappings[0].ebs.volumeSize: Invalid value"},
		{name: "a volume too large", settings: settled + `, blockDeviceMappings: [{deviceName: a, ebs: {volumeSize: 65T}}]}`, want: "blockDeviceMappings[0].ebs.volumeSize: Invalid value"},
		{name: "a volume of another type", settings: settled + `, blockDeviceMappings: [{deviceName: a, ebs: {volumeSize: 1Gi, volumeType: gp9}}]}`, want: "blockDeviceMappings[0].ebs.volumeType: Unsupported value", api: "blockDeviceMappings.0.ebs.volumeType"},
		{name: "a volume with negative iops", settings: settled + `, blockDeviceMappings: [{deviceName: a, ebs: {volumeSize: 1Gi, iops: -1}}]}`, want: "blockDeviceMappings[0].ebs.iops: Invalid value"},
		{name: "a volume with negative throughput", settings: settled + `, blockDeviceMappings: [{deviceName: a, ebs: {volumeSize: 1Gi, throughput: -1}}]}`, want: "blockDeviceMappings[0].ebs.throughput: Invalid value"},
		{name: "launchTemplate and security groups", settings: `{launchTemplate: x, subnetSelector: {team: a}, securityGroupSelector: {team: a}}`, want: "securityGroupSelector: Forbidden", api: "."},
		{name: "launchTemplate and metadata", settings: `{launchTemplate: x, subnetSelector: {team: a}, metadataOptions: {}}`, want: "metadataOptions: Forbidden", api: "."},
		{name: "launchTemplate and a family", settings: `{launchTemplate: x, subnetSelector: {team: a}, amiFamily: AL2023}`, want: "amiFamily: Forbidden", api: "."},
		{name: "launchTemplate and a profile", settings: `{launchTemplate: x, subnetSelector: {team: a}, instanceProfile: p}`, want: "instanceProfile: Forbidden", api: "."},
		{name: "launchTemplate and devices", settings: `{launchTemplate: x, subnetSelector: {team: a}, blockDeviceMappings: [{deviceName: a, ebs: {volumeSize: 1Gi}}]}`, want: "blockDeviceMappings: Forbidden", api: "."},
		{name: "launchTemplate and user data", settings: `{launchTemplate: x, subnetSelector: {team: a}, userData: x}`, templateOnly: true, want: "userData: Forbidden", api: "."},
		{name: "launchTemplate and images", settings: `{launchTemplate: x, subnetSelector: {team: a}, amiSelector: {a: b}}`, templateOnly: true, want: "amiSelector: Forbidden", api: "."},
	} {
		fields.by(tc.settings)
		if !tc.templateOnly {
			inlined.by(`{provider: ` + tc.settings + `}`)
		}
		t.Run(tc.name, func(t *testing.T) {
			place := func(prefix string) string {
				if tc.api == "." {
					return prefix
				} else if tc.api == "" {
					return ""
				}
				return prefix + "." + tc.api
			}
			_, _, errs := fromProvisioner(provisioner(t, byRef+`}`), nodeTemplate(t, tc.settings), nodeclass.Legacy{})
			if len(errs) == 0 || !strings.Contains(errs.ToAggregate().Error(), tc.want) {
				t.Errorf("a template: refused with %v, want %q", errs, tc.want)
			}
			refusedByDefinition(t, NodeTemplates, tc.settings, place("spec"))
			if tc.templateOnly {
				return
			}
			_, _, errs = fromProvisioner(provisioner(t, `{provider: `+tc.settings+`}`), nil, nodeclass.Legacy{})
			if len(errs) == 0 || !strings.Contains(errs.ToAggregate().Error(), tc.want) || !strings.Contains(errs[0].Error(), "spec.provider.") {
				t.Errorf("inline: refused with %v, want spec.provider.%s", errs, tc.want)
			}
			refusedByDefinition(t, Provisioners, `{provider: `+tc.settings+`}`, place("spec.provider"))
		})
	}
	const anyText = "blockDeviceMappings[]."
	fields.all("", "context", anyText+"virtualName", anyText+"ebs.kmsKeyID", anyText+"ebs.snapshotID")
	inlined.all("provider.", "provider.context", "provider.apiVersion", "provider.kind",
		"provider."+anyText+"virtualName", "provider."+anyText+"ebs.kmsKeyID", "provider."+anyText+"ebs.snapshotID")
}
