package aws

import (
	"strings"
	"testing"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/bootstrap"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/catalog"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodesize"
	"github.com/dovetail-scheduler/dovetail/test/fixtures"
)

func TestImageFilters(t *testing.T) {
	for _, tt := range []struct {
		name  string
		term  ec2nc.AMISelectorTerm
		want  map[string][]string
		owner []string
		words string
	}{
		{
			// Anyone can publish an image under any name.
			name: "a name alone means this account's or Amazon's", term: ec2nc.AMISelectorTerm{Name: "golden-*"},
			want: map[string][]string{"name": {"golden-*"}}, owner: []string{"self", "amazon"}, words: "name golden-*",
		},
		{
			name: "an owner is that one", term: ec2nc.AMISelectorTerm{Name: "golden-*", Owner: "123456789012"},
			want: map[string][]string{"name": {"golden-*"}}, owner: []string{"123456789012"}, words: "owner 123456789012 and name golden-*",
		},
		{
			name: "tags, one of them with any value", term: ec2nc.AMISelectorTerm{Tags: map[string]string{"team": "a", "golden": "*"}},
			want: map[string][]string{"tag:team": {"a"}, "tag-key": {"golden"}}, words: "tags {golden: *, team: a}",
		},
	} {
		filters, owner, words := imageFilters(&tt.term)
		got := map[string][]string{}
		for _, f := range filters {
			got[*f.Name] = f.Values
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: filters (-want +got):\n%s", tt.name, diff)
		}
		if diff := cmp.Diff(tt.owner, owner); diff != "" {
			t.Errorf("%s: owners (-want +got):\n%s", tt.name, diff)
		}
		if words != tt.words {
			t.Errorf("%s: %q, want %q", tt.name, words, tt.words)
		}
	}
}

// After a class has changed, nothing may be launched from its old version.
func TestChangedClassIsNotReady(t *testing.T) {
	w := newWorld(t)
	w.SetNodeClass(nodeClass())
	w.types("default")
	version := w.Version()
	hold := make(chan struct{})
	remove := w.hold("DescribeSubnets", hold)
	w.SetNodeClass(nodeClass(func(nc *ec2nc.EC2NodeClass) { nc.Generation, nc.Spec.DetailedMonitoring = 2, ptr.To(true) }))
	if _, err := w.InstanceTypes("default"); err == nil || !strings.Contains(err.Error(), "not resolved yet") {
		t.Errorf("a changed class is usable: %v", err)
	}
	if w.Version() == version {
		t.Error("the version did not grow")
	}
	close(hold)
	remove()
	w.types("default")
}

func TestAccepts(t *testing.T) {
	metal := *fixtures.M5Large
	metal.Hypervisor = ""
	xen := *fixtures.P38XLarge
	a1 := *fixtures.M6GXLarge
	a1.Family = "a1"
	nested := *fixtures.M5Large
	nested.NestedVirtualization = true
	ena := *fixtures.Trn132XLarge
	ena.ENA = true
	card := func(card, dev int32, kind ec2nc.InterfaceType) *ec2nc.NetworkInterface {
		return &ec2nc.NetworkInterface{NetworkCardIndex: card, DeviceIndex: dev, InterfaceType: kind}
	}
	for _, tt := range []struct {
		name     string
		class    func(*ec2nc.EC2NodeClassSpec)
		hardware *catalog.Hardware
		want     bool
	}{
		{"anything", func(*ec2nc.EC2NodeClassSpec) {}, fixtures.M5Large, true},
		{"no image of the architecture", func(*ec2nc.EC2NodeClassSpec) {}, fixtures.M6GXLarge, false},
		{"connection tracking needs Nitro", func(s *ec2nc.EC2NodeClassSpec) { s.ConnectionTracking = &ec2nc.ConnectionTracking{} }, &xen, false},
		{"connection tracking on Nitro", func(s *ec2nc.EC2NodeClassSpec) { s.ConnectionTracking = &ec2nc.ConnectionTracking{} }, fixtures.M5Large, true},
		{"connection tracking on metal", func(s *ec2nc.EC2NodeClassSpec) { s.ConnectionTracking = &ec2nc.ConnectionTracking{} }, &metal, true},
		{"no nested virtualization", func(s *ec2nc.EC2NodeClassSpec) {
			s.CPUOptions = &ec2nc.CPUOptions{NestedVirtualization: ptr.To("enabled")}
		}, fixtures.M5Large, false},
		{"nested virtualization", func(s *ec2nc.EC2NodeClassSpec) {
			s.CPUOptions = &ec2nc.CPUOptions{NestedVirtualization: ptr.To("enabled")}
		}, &nested, true},
		{"interfaces on two cards", func(s *ec2nc.EC2NodeClassSpec) {
			s.NetworkInterfaces = []*ec2nc.NetworkInterface{card(0, 0, "interface"), card(1, 1, "efa-only")}
		}, &ena, true},
		{"a card it does not have", func(s *ec2nc.EC2NodeClassSpec) {
			s.NetworkInterfaces = []*ec2nc.NetworkInterface{card(0, 0, "interface"), card(2, 1, "efa-only")}
		}, &ena, false},
		{"more devices than the card takes", func(s *ec2nc.EC2NodeClassSpec) {
			s.NetworkInterfaces = []*ec2nc.NetworkInterface{card(0, 0, "interface"), card(0, 5, "interface")}
		}, &ena, false},
	} {
		nc := nodeClass()
		tt.class(&nc.Spec)
		cfg, _ := Config{Region: "r", ClusterName: "c"}.complete()
		s, err := nodesize.SettingsOf(&nc.Spec, bootstrap.AL2023, cfg.sizes())
		if err != nil {
			t.Fatal(err)
		}
		r := &resolved{class: nc, family: bootstrap.AL2023, settings: s, images: []image{{id: "ami-1", arch: "amd64"}}}
		if got := accepts(r, tt.hardware); got != tt.want {
			t.Errorf("%s: accepted is %v", tt.name, got)
		}
	}
	nc := nodeClass()
	r := &resolved{class: nc, family: bootstrap.AL2023, settings: &nodesize.Settings{}, images: []image{{id: "ami-1", arch: "arm64"}}}
	if accepts(r, &a1) || !accepts(r, fixtures.M6GXLarge) {
		t.Error("AL2023 runs on Graviton, but not on the first of them")
	}
}
