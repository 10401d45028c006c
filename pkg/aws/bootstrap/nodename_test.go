package bootstrap

import (
	"testing"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func TestWhatAClassSaysOfNames(t *testing.T) {
	for _, tt := range []struct {
		name, family, annotation, userData string
		want                               NameForm
	}{
		{"AL2023", "AL2023", "", "", NamePrivateDNS},
		{"AL2023 with a script", "AL2023", "", "#!/bin/bash\n", NamePrivateDNS},
		{"AL2023 by instance id", "AL2023", "", "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: {featureGates: {InstanceIdNodeName: true}}\n", NameID},
		{"AL2023, explicitly not", "AL2023", "", "kind: NodeConfig\nspec: {featureGates: {InstanceIdNodeName: false}}\n", NamePrivateDNS},
		{"Bottlerocket", "Bottlerocket", "", "", NamePrivateDNS},
		{"Bottlerocket by instance id", "Bottlerocket", "", "[settings.kubernetes]\nhostname-override-source = \"instance-id\"\n", NameID},
		{"Bottlerocket by a name of the user's own", "Bottlerocket", "", "[settings.kubernetes]\nhostname-override = \"mine\"\n", NameOther},
		{"Windows", "Windows2022", "", "", NamePrivateDNS},
		{"Custom is anybody's guess", "Custom", "", "", NameUnknown},
		{"Custom, and the user knows", "Custom", "short-dns", "", NameShortDNS},
		{"an annotation that means nothing", "Custom", "short", "", NameUnknown},
		{"an annotation counts more than user data", "AL2023", "short-dns", "kind: NodeConfig\nspec: {featureGates: {InstanceIdNodeName: true}}\n", NameShortDNS},
	} {
		spec := &ec2nc.EC2NodeClassSpec{UserData: ptr.To(tt.userData)}
		if got := NameFormOf(spec, tt.annotation, families[tt.family]); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestFormsOfNames(t *testing.T) {
	const id, ip = "i-0123456789abcdef0", "10.0.1.2"
	for name, want := range map[string]NameForm{
		"ip-10-0-1-2.us-west-2.compute.internal":         NamePrivateDNS,
		"ip-10-0-1-2.ec2.internal":                       NamePrivateDNS,
		"i-0123456789abcdef0.us-west-2.compute.internal": NamePrivateDNS,
		"ip-10-0-1-2":                            NameShortDNS,
		"i-0123456789abcdef0":                    NameID,
		"ip-10-0-1-3.us-west-2.compute.internal": NameOther, // another instance's address
		"worker-7":                               NameOther,
		"ip-10-0-1-2.":                           NameOther,
	} {
		if got := NameFormSeen(name, id, ip); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	for _, name := range []string{"ip-", "ip-10-0-1-2.ec2.internal"} {
		if got := NameFormSeen(name, id, ""); got != NameOther {
			t.Errorf("without an address, %s is %q", name, got)
		}
	}
	// A node of an IPv6 cluster reports its IPv6 address.
	for name, want := range map[string]NameForm{
		"ip-10-0-1-2.us-west-2.compute.internal":         NamePrivateDNS,
		"i-0123456789abcdef0.us-west-2.compute.internal": NamePrivateDNS,
		"ip-10-0-1-2":                NameShortDNS,
		"i-0123456789abcdef0":        NameID,
		"ip-10-0-1.ec2.internal":     NameOther,
		"ip-10-0-1-256.ec2.internal": NameOther,
		"worker-7":                   NameOther,
	} {
		if got := NameFormSeen(name, id, "2600:1f14::7"); got != want {
			t.Errorf("%s is %q in an IPv6 cluster, want %q", name, got, want)
		}
	}
	i := capacity.Instance{ID: id, Hostname: "ip-10-0-1-2.us-west-2.compute.internal"}
	for form, want := range map[NameForm]string{NamePrivateDNS: i.Hostname, NameShortDNS: "ip-10-0-1-2", NameID: id} {
		if name, sure := form.Name(&i); name != want || !sure {
			t.Errorf("%s: %q, sure %v", form, name, sure)
		}
		if name, _ := form.Name(&capacity.Instance{ID: id}); name != "" {
			t.Errorf("%s: named %q before EC2 shows anything", form, name)
		}
	}
	for _, form := range []NameForm{NameUnknown, NameOther} {
		if name, sure := form.Name(&i); sure || name == "" {
			t.Errorf("%q: %q, sure %v", form, name, sure)
		}
	}
}
