package ec2

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"
)

var abc = []string{"us-west-2a", "us-west-2b", "us-west-2c"}

func TestFleetsChooseTheirPools(t *testing.T) {
	const od, spot = types.DefaultTargetCapacityTypeOnDemand, types.DefaultTargetCapacityTypeSpot
	type limit struct {
		typ, zone, capacityType string
		n                       int
	}
	for name, tc := range map[string]struct {
		n            int
		capacityType types.DefaultTargetCapacityType
		zones, types []string
		limits       []limit
		code         string // for pools without capacity
		change       func(*awsec2.CreateFleetInput)
		want, failed []string
	}{
		"the cheapest type, in the first zone given": {
			n: 3, capacityType: od, zones: abc, types: []string{"m5.large", "c6a.large", "m6i.large"}, want: []string{"c6a.large/us-west-2a x 3"},
		},
		"without capacity the next pool is tried and the failure told beside full success": {
			n: 2, capacityType: od, zones: abc[:2], types: []string{"m5.large", "c6a.large"}, limits: []limit{{"c6a.large", "us-west-2a", "on-demand", 0}},
			want: []string{"c6a.large/us-west-2b x 2"}, failed: []string{"c6a.large/us-west-2a: InsufficientInstanceCapacity"},
		},
		"a pool that has some gives some": {
			n: 5, capacityType: od, zones: abc[:1], types: []string{"m5.large", "c6a.large"}, limits: []limit{{"c6a.large", "us-west-2a", "on-demand", 2}},
			want: []string{"c6a.large/us-west-2a x 2", "m5.large/us-west-2a x 3"}, failed: []string{"c6a.large/us-west-2a: InsufficientInstanceCapacity"},
		},
		"fewer than asked for is a success": {
			n: 5, capacityType: od, zones: abc[:1], types: []string{"m5.large"}, limits: []limit{{Any, Any, Any, 2}},
			want: []string{"m5.large/us-west-2a x 2"}, failed: []string{"m5.large/us-west-2a: InsufficientInstanceCapacity"},
		},
		"fewer than the minimum is nothing": {
			n: 5, capacityType: od, zones: abc[:1], types: []string{"m5.large"}, limits: []limit{{Any, Any, Any, 2}},
			change: func(in *awsec2.CreateFleetInput) { in.OnDemandOptions.MinTargetCapacity = aws.Int32(5) },
			failed: []string{"fleet: UnfulfillableCapacity", "m5.large/us-west-2a: InsufficientInstanceCapacity"},
		},
		"no capacity anywhere is an answer with errors only": {
			n: 1, capacityType: spot, zones: abc[:2], types: []string{"m5.large"}, limits: []limit{{Any, Any, "spot", 0}},
			failed: []string{"m5.large/us-west-2a: InsufficientInstanceCapacity", "m5.large/us-west-2b: InsufficientInstanceCapacity"},
		},
		"the error of a pool can be another one": {
			n: 1, capacityType: spot, zones: abc[:1], types: []string{"m5.large"}, limits: []limit{{Any, Any, "spot", 0}}, code: "MaxSpotInstanceCountExceeded",
			failed: []string{"m5.large/us-west-2a: MaxSpotInstanceCountExceeded"},
		},
		"on-demand and spot are different pools": {
			n: 1, capacityType: od, zones: abc[:1], types: []string{"m5.large"}, limits: []limit{{"m5.large", Any, "spot", 0}}, want: []string{"m5.large/us-west-2a x 1"},
		},
		"prioritized goes by priority": {
			n: 1, capacityType: od, zones: abc[:1], types: []string{"c6a.large", "m5.large"},
			change: func(in *awsec2.CreateFleetInput) {
				in.OnDemandOptions.AllocationStrategy = types.FleetOnDemandAllocationStrategyPrioritized
				in.LaunchTemplateConfigs[0].Overrides[0].Priority = aws.Float64(2)
				in.LaunchTemplateConfigs[0].Overrides[1].Priority = aws.Float64(1)
			},
			want: []string{"m5.large/us-west-2a x 1"},
		},
		"what can't be launched at all is told, the rest is launched": {
			n: 1, capacityType: od, zones: abc[:1], types: []string{"m5.huge", "m6g.large", "trn1.2xlarge", "m5.large"}, want: []string{"m5.large/us-west-2a x 1"},
			failed: []string{"m5.huge/us-west-2a: InvalidParameterValue", "m6g.large/us-west-2a: InvalidParameterValue", "trn1.2xlarge/us-west-2a: InvalidFleetConfiguration"},
		},
		"tags for spot requests don't belong on an on-demand fleet": {
			n: 1, capacityType: od, zones: abc[:1], types: []string{"m5.large"},
			change: func(in *awsec2.CreateFleetInput) {
				in.TagSpecifications = append(in.TagSpecifications, types.TagSpecification{ResourceType: types.ResourceTypeSpotInstancesRequest, Tags: tags("a", "b")})
			},
			failed: []string{"m5.large/us-west-2a: InvalidParameterValue"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAccount(t)
			for _, l := range tc.limits {
				a.SetCapacity(l.typ, l.zone, l.capacityType, l.n)
			}
			if tc.code != "" {
				a.SetCapacityError(Any, Any, Any, tc.code)
			}
			in := a.fleetOf(tc.n, a.template("lt"), tc.capacityType, tc.zones, tc.types...)
			if tc.change != nil {
				tc.change(in)
			}
			out, err := a.ec2.CreateFleet(a.ctx, in)
			if err != nil {
				t.Fatal(err)
			}
			got, failed := pools(out)
			slices.Sort(failed)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("instances: -want +got:\n%s", diff)
			}
			if diff := cmp.Diff(tc.failed, failed); diff != "" {
				t.Errorf("errors: -want +got:\n%s", diff)
			}
			if n := len(a.Live()); n != len(fleetIDs(out)) {
				t.Errorf("%d instances live, %d in the answer", n, len(fleetIDs(out)))
			}
		})
	}
}

func TestPriceCapacityOptimizedTakesTheCheapestDeepPool(t *testing.T) {
	a := newAccount(t)
	typs := []string{"m5.large", "m5a.large", "m6a.large", "m6i.large", "c5.large", "c6a.large", "c6i.large", "r5.large"}
	in := a.fleetOf(1, a.template("lt"), "spot", abc, typs...)
	out := must(a.ec2.CreateFleet(a.ctx, in))
	chosen := out.Instances[0]
	var chosenDepth int
	best, deepest := 1e9, 0
	a.with(func(w *world) {
		at := pool{string(chosen.InstanceType), *chosen.LaunchTemplateAndOverrides.Overrides.AvailabilityZone, "spot"}
		chosenDepth = w.depth(at)
		for _, ty := range typs {
			for _, z := range abc {
				p, _ := w.price(w.cfg.Catalog.Type(ty), z, "spot")
				if d := w.depth(pool{ty, z, "spot"}); d >= 6 {
					best = min(best, p)
					deepest = max(deepest, d)
				}
			}
		}
	})
	if got := a.Instances()[0].Price; deepest > 0 && (got != best || chosenDepth < 6) {
		t.Errorf("chose %s at $%g with depth %d, the cheapest deep pool costs $%g", chosen.InstanceType, got, chosenDepth, best)
	}
}

func TestAClientTokenLaunchesOnce(t *testing.T) {
	a := newAccount(t)
	in := a.fleetOf(2, a.template("lt"), "on-demand", abc, "m5.large")
	in.ClientToken = aws.String("wave-1")
	first := a.launched(in)

	if _, err := a.ec2.DeleteLaunchTemplate(a.ctx, &awsec2.DeleteLaunchTemplateInput{LaunchTemplateName: aws.String("lt")}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, a.launched(in)); diff != "" {
		t.Errorf("the same request again: -first +again:\n%s", diff)
	}
	in.TargetCapacitySpecification.TotalTargetCapacity = aws.Int32(3)
	_, err := a.ec2.CreateFleet(a.ctx, in)
	if got := code(err); got != "IdempotentParameterMismatch" {
		t.Errorf("another request under the same token: %q", got)
	}
	in.TargetCapacitySpecification.TotalTargetCapacity = aws.Int32(2)
	must(a.ec2.TerminateInstances(a.ctx, &awsec2.TerminateInstancesInput{InstanceIds: first[:1]}))
	if diff := cmp.Diff(first, a.launched(in)); diff != "" {
		t.Errorf("with one instance ended: -first +again:\n%s", diff)
	}
	must(a.ec2.TerminateInstances(a.ctx, &awsec2.TerminateInstancesInput{InstanceIds: first}))
	_, err = a.ec2.CreateFleet(a.ctx, in)
	if got := code(err); got != "IdempotentInstanceTerminated" {
		t.Errorf("with all instances ended: %q", got)
	}
	if diff := cmp.Diff(map[string][]string{"wave-1": first}, sorted(a.LaunchesByToken())); diff != "" {
		t.Errorf("launches: -want +got:\n%s", diff)
	}
	var repeated int
	for _, c := range a.Calls("CreateFleet") {
		if c.Repeated {
			repeated++
		}
	}
	if repeated != 2 {
		t.Errorf("the journal has %d repeated calls, want 2", repeated)
	}
}

func TestAnEmptyAnswerBelongsToItsTokenToo(t *testing.T) {
	a := newAccount(t)
	a.SetCapacity(Any, Any, Any, 0)
	in := a.fleetOf(1, a.template("lt"), "on-demand", abc[:1], "m5.large")
	in.ClientToken = aws.String("wave-1")
	if ids := a.launched(in); len(ids) != 0 {
		t.Fatalf("launched %v without capacity", ids)
	}
	a.SetCapacity(Any, Any, Any, Unlimited)
	if ids := a.launched(in); len(ids) != 0 {
		t.Errorf("the token's first answer was empty, the second has %v", ids)
	}
	in.ClientToken = aws.String("wave-2")
	if ids := a.launched(in); len(ids) != 1 {
		t.Errorf("a new token launched %v", ids)
	}
}

func TestFleetsThatAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*awsec2.CreateFleetInput)
		want   string
	}{
		"a template that isn't there": {func(in *awsec2.CreateFleetInput) {
			in.LaunchTemplateConfigs[0].LaunchTemplateSpecification.LaunchTemplateName = aws.String("gone")
		}, "InvalidLaunchTemplateName.NotFoundException"},
		"no target": {func(in *awsec2.CreateFleetInput) { in.TargetCapacitySpecification.TotalTargetCapacity = aws.Int32(0) }, "InvalidParameterValue"},
		"too many configs": {func(in *awsec2.CreateFleetInput) {
			in.LaunchTemplateConfigs = slices.Repeat(in.LaunchTemplateConfigs, 51)
		}, "InvalidParameterValue"},
		"a fleet that maintains itself": {func(in *awsec2.CreateFleetInput) { in.Type = types.FleetTypeMaintain }, "UnsupportedOperation"},
		"a dry run":                     {func(in *awsec2.CreateFleetInput) { in.DryRun = aws.Bool(true) }, "DryRunOperation"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAccount(t)
			in := a.fleetOf(1, a.template("lt"), "on-demand", abc, "m5.large")
			tc.change(in)
			_, err := a.ec2.CreateFleet(a.ctx, in)
			if got := code(err); got != tc.want {
				t.Errorf("error %q, want %q", got, tc.want)
			}
			if len(a.Instances()) != 0 {
				t.Error("something was launched")
			}
		})
	}
}

func TestASubnetRunsOutOfAddresses(t *testing.T) {
	a := newAccount(t)
	a.with(func(w *world) {
		s := w.network.subnets[0]
		for s.free() > 2 {
			s.take()
		}
	})
	out := must(a.ec2.CreateFleet(a.ctx, a.fleetOf(4, a.template("lt"), "on-demand", abc[:1], "c5.large", "m5.large")))
	got, failed := pools(out)
	if diff := cmp.Diff([]string{"c5.large/us-west-2a x 2"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"c5.large/us-west-2a: InsufficientFreeAddressesInSubnet", "m5.large/us-west-2a: InsufficientFreeAddressesInSubnet"}, failed); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestReservedCapacityIsUsedByTarget(t *testing.T) {
	a := newAccount(t)
	id := a.Reserve(Reservation{Type: "m5.large", Zone: "us-west-2a", Count: 2, Tags: map[string]string{"team": "a"}})
	image := must(a.ec2.DescribeImages(a.ctx, &awsec2.DescribeImagesInput{Filters: filters("name", "golden-x86_64-*")})).Images[0].ImageId
	must(a.ec2.CreateLaunchTemplate(a.ctx, &awsec2.CreateLaunchTemplateInput{LaunchTemplateName: aws.String("reserved"), LaunchTemplateData: &types.RequestLaunchTemplateData{
		ImageId: image, CapacityReservationSpecification: &types.LaunchTemplateCapacityReservationSpecificationRequest{
			CapacityReservationTarget: &types.CapacityReservationTarget{CapacityReservationId: &id},
		},
	}}))
	out := must(a.ec2.CreateFleet(a.ctx, a.fleetOf(3, "reserved", "on-demand", abc[:1], "m5.large")))
	got, failed := pools(out)
	if diff := cmp.Diff([]string{"m5.large/us-west-2a x 2"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"m5.large/us-west-2a: ReservationCapacityExceeded"}, failed); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	left := func() int32 {
		return *must(a.ec2.DescribeCapacityReservations(a.ctx, &awsec2.DescribeCapacityReservationsInput{Filters: filters("tag:team", "a")})).CapacityReservations[0].AvailableInstanceCount
	}
	if n := left(); n != 0 {
		t.Errorf("%d left", n)
	}
	must(a.ec2.TerminateInstances(a.ctx, &awsec2.TerminateInstancesInput{InstanceIds: fleetIDs(out)}))
	a.step(time.Minute)
	if n := left(); n != 2 {
		t.Errorf("%d left after the instances ended, want 2", n)
	}
}

func sorted(m map[string][]string) map[string][]string {
	out := maps.Clone(m)
	for _, ids := range out {
		slices.Sort(ids)
	}
	return out
}
