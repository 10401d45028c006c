package drift

import (
	"testing"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/catalog"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
)

// What isn't known yet, or any more, must not look as if the class selected nothing: then all of its nodes would drift.
func TestWhatIsNotKnownDriftsNothing(t *testing.T) {
	whole := func() *Class {
		return &Class{Images: 1, Image: "ami-1", Groups: []string{"sg-1", "sg-2"}, Subnets: []string{"subnet-1"}, Reservations: []string{"cr-1"},
			ReservationsKnown: true, PlacementGroup: "pg-1", PlacementKnown: true}
	}
	for name, tc := range map[string]struct {
		change  func(*Class, *Instance)
		image   string
		want    cloudprovider.DriftReason
		unknown bool
	}{
		"the same":                 {func(*Class, *Instance) {}, "ami-1", "", false},
		"no images":                {func(c *Class, _ *Instance) { c.Images, c.Image = 0, "" }, "ami-1", "", true},
		"no image of the instance": {func(*Class, *Instance) {}, "", "", true},
		"no image fits the type":   {func(c *Class, _ *Instance) { c.Image = "" }, "ami-1", AMIDrift, false},
		"no groups":                {func(c *Class, _ *Instance) { c.Groups = nil }, "ami-1", "", true},
		"groups of its own":        {func(c *Class, _ *Instance) { c.Groups, c.OwnGroups = nil, true }, "ami-1", "", false},
		"a group less":             {func(_ *Class, i *Instance) { i.Groups = []string{"sg-1"} }, "ami-1", SecurityGroupDrift, false},
		"no network shown yet":     {func(_ *Class, i *Instance) { i.Subnet, i.Groups = "", nil }, "ami-1", "", true},
		"no subnets":               {func(c *Class, _ *Instance) { c.Subnets = nil }, "ami-1", "", true},
		"another subnet":           {func(_ *Class, i *Instance) { i.Subnet = "subnet-2" }, "ami-1", SubnetDrift, false},
		"no reservations":          {func(c *Class, _ *Instance) { c.Reservations, c.ReservationsKnown = nil, false }, "ami-1", "", true},
		"another reservation":      {func(_ *Class, i *Instance) { i.Reservation = "cr-2" }, "ami-1", CapacityReservationDrift, false},
		"not reserved":             {func(c *Class, i *Instance) { i.Reservation, c.ReservationsKnown = "", false }, "ami-1", "", false},
		"no placement group known": {func(c *Class, _ *Instance) { c.PlacementGroup, c.PlacementKnown = "", false }, "ami-1", "", true},
		"no placement group":       {func(c *Class, _ *Instance) { c.PlacementGroup = "" }, "ami-1", PlacementGroupDrift, false},
	} {
		t.Run(name, func(t *testing.T) {
			c, i := whole(), &Instance{Subnet: "subnet-1", Reservation: "cr-1", Groups: []string{"sg-2", "sg-1"}}
			tc.change(c, i)
			got, err := Of(c, i, tc.image, map[string]string{ec2nc.LabelPlacementGroupID: "pg-1"})
			if got != tc.want || (err != nil) != tc.unknown {
				t.Errorf("drifted because of %q, want %q; error %v", got, tc.want, err)
			}
		})
	}
}

func TestTypeSold(t *testing.T) {
	spotless := &catalog.Hardware{}
	spotless.Name, spotless.OnDemand = "b.large", true
	both := &catalog.Hardware{}
	both.Name, both.OnDemand, both.Spot = "m.large", true, true
	blocks := &catalog.Hardware{} // sold in capacity blocks only
	blocks.Name = "p.large"
	r := &catalog.Region{Types: []*catalog.Hardware{spotless, both, blocks}, Zones: map[string][]string{"b.large": {"a"}, "m.large": {"a", "b"}, "p.large": {"a"}}}
	for _, tc := range []struct {
		name, zone, capacityType string
		want                     bool
	}{
		{"m.large", "a", karpv1.CapacityTypeSpot, true},
		{"b.large", "a", karpv1.CapacityTypeSpot, false},
		{"b.large", "a", karpv1.CapacityTypeOnDemand, true},
		{"b.large", "a", karpv1.CapacityTypeReserved, true},
		{"p.large", "a", karpv1.CapacityTypeReserved, true},
		{"p.large", "z", karpv1.CapacityTypeReserved, false},
		{"p.large", "a", karpv1.CapacityTypeOnDemand, false}, // its block is over
		{"b.large", "b", karpv1.CapacityTypeOnDemand, true},  // not offered there any more, but the zone exists
		{"b.large", "z", karpv1.CapacityTypeOnDemand, false},
		{"a.large", "a", karpv1.CapacityTypeOnDemand, false},
		{"z.large", "a", karpv1.CapacityTypeOnDemand, false},
	} {
		h, err := TypeSold(r, map[string]string{karpv1.CapacityTypeLabelKey: tc.capacityType}, tc.name, tc.zone)
		if err != nil || (h != nil) != tc.want || h != nil && h.Name != tc.name {
			t.Errorf("%+v: sold %v, %v", tc, h, err)
		}
	}
	if _, err := TypeSold(&catalog.Region{Types: r.Types}, nil, "m.large", "a"); err == nil {
		t.Error("the zones aren't known, and nothing can be told")
	}
}

func TestSeen(t *testing.T) {
	s := &Seen{}
	s.Note(&ec2types.Instance{InstanceId: awssdk.String("i-1"), SubnetId: awssdk.String("subnet-1"),
		SecurityGroups: []ec2types.GroupIdentifier{{GroupId: awssdk.String("sg-1")}}}, "cr-1", false)
	i, listed := s.Get("i-1")
	if i == nil || listed || i.Subnet != "subnet-1" || i.Reservation != "cr-1" || len(i.Groups) != 1 {
		t.Errorf("seen %+v, listed %v", i, listed)
	}
	s.Keep(map[string]bool{"i-2": true})
	if i, listed := s.Get("i-1"); i != nil || !listed {
		t.Errorf("kept %+v, listed %v", i, listed)
	}
}
