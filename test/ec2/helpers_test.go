package ec2

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
	clocktesting "k8s.io/utils/clock/testing"
)

// account is a simulator with a fake clock, which moves only by step, and a client that doesn't retry.
type account struct {
	*Sim
	t     *testing.T
	clock *clocktesting.FakeClock
	ec2   *awsec2.Client
	ctx   context.Context
}

var epoch = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

func newAccount(t *testing.T, change ...func(*Config)) *account {
	t.Helper()
	clk := clocktesting.NewFakeClock(epoch)
	cfg := Config{Clock: clk, Seed: 7, Cluster: "blue"}
	for _, c := range change {
		c(&cfg)
	}
	sim, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sim.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return &account{Sim: sim, t: t, clock: clk, ec2: awsec2.NewFromConfig(once(sim)), ctx: t.Context()}
}

// once returns a configuration for a client that returns every answer without retrying. It retries only if the client itself has
// closed the connection while reading an answer, which net/http does occasionally, as the SDK's own retryer does.
func once(sim *Sim) aws.Config {
	cfg := sim.AWSConfig()
	cfg.Retryer = func() aws.Retryer {
		return retry.NewStandard(func(o *retry.StandardOptions) {
			o.Backoff = retry.BackoffDelayerFunc(func(int, error) (time.Duration, error) { return 0, nil })
			o.RateLimiter = ratelimit.None
			o.Retryables = []retry.IsErrorRetryable{retry.IsErrorRetryableFunc(func(err error) aws.Ternary {
				return aws.BoolTernary(errors.Is(err, net.ErrClosed))
			})}
		})
	}
	return cfg
}

// step advances the clock; everything due by then has happened at the next call.
func (a *account) step(d time.Duration) { a.clock.Step(d) }

// template creates a launch template for x86_64 and returns its name.
func (a *account) template(name string) string {
	a.t.Helper()
	group := must(a.ec2.DescribeSecurityGroups(a.ctx, &awsec2.DescribeSecurityGroupsInput{Filters: filters("tag:karpenter.sh/discovery", "blue")}))
	image := must(a.ec2.DescribeImages(a.ctx, &awsec2.DescribeImagesInput{Filters: filters("name", "amazon-eks-node-al2023-x86_64-standard-1.36-v20260915")}))
	_, err := a.ec2.CreateLaunchTemplate(a.ctx, &awsec2.CreateLaunchTemplateInput{
		LaunchTemplateName: &name,
		LaunchTemplateData: &types.RequestLaunchTemplateData{
			ImageId: image.Images[0].ImageId, SecurityGroupIds: []string{*group.SecurityGroups[0].GroupId}, UserData: aws.String("aGVsbG8="),
			IamInstanceProfile: &types.LaunchTemplateIamInstanceProfileSpecificationRequest{Name: aws.String("DovetailNode")},
		},
	})
	if err != nil {
		a.t.Fatal(err)
	}
	return name
}

// subnet returns the ID of the subnet in a zone.
func (a *account) subnet(zone string) string {
	a.t.Helper()
	out := must(a.ec2.DescribeSubnets(a.ctx, &awsec2.DescribeSubnetsInput{Filters: filters("availability-zone", zone)}))
	return *out.Subnets[0].SubnetId
}

// fleetOf returns a request for n instances of any of the types in any of the zones, both in order.
func (a *account) fleetOf(n int, template string, capacityType types.DefaultTargetCapacityType, zones []string, instanceTypes ...string) *awsec2.CreateFleetInput {
	a.t.Helper()
	var overrides []types.FleetLaunchTemplateOverridesRequest
	for _, it := range instanceTypes {
		for _, z := range zones {
			overrides = append(overrides, types.FleetLaunchTemplateOverridesRequest{InstanceType: types.InstanceType(it), SubnetId: aws.String(a.subnet(z))})
		}
	}
	return &awsec2.CreateFleetInput{
		Type: types.FleetTypeInstant,
		LaunchTemplateConfigs: []types.FleetLaunchTemplateConfigRequest{{
			LaunchTemplateSpecification: &types.FleetLaunchTemplateSpecificationRequest{LaunchTemplateName: &template, Version: aws.String("$Latest")},
			Overrides:                   overrides,
		}},
		TargetCapacitySpecification: &types.TargetCapacitySpecificationRequest{DefaultTargetCapacityType: capacityType, TotalTargetCapacity: aws.Int32(int32(n))},
		OnDemandOptions:             &types.OnDemandOptionsRequest{AllocationStrategy: types.FleetOnDemandAllocationStrategyLowestPrice},
		SpotOptions:                 &types.SpotOptionsRequest{AllocationStrategy: types.SpotAllocationStrategyPriceCapacityOptimized},
		TagSpecifications:           []types.TagSpecification{{ResourceType: types.ResourceTypeInstance, Tags: tags("team", "a")}},
	}
}

// launched launches a fleet, which must succeed, and returns the instance IDs, sorted.
func (a *account) launched(in *awsec2.CreateFleetInput) []string {
	a.t.Helper()
	request := *in // a copy, because the SDK writes its own token into its input
	out, err := a.ec2.CreateFleet(a.ctx, &request)
	if err != nil {
		a.t.Fatal(err)
	}
	return fleetIDs(out)
}

func fleetIDs(out *awsec2.CreateFleetOutput) []string {
	var ids []string
	for _, i := range out.Instances {
		ids = append(ids, i.InstanceIds...)
	}
	slices.Sort(ids)
	return ids
}

// pools formats a fleet's answer as lines "type/zone x n" and "type/zone: code".
func pools(out *awsec2.CreateFleetOutput) (got, failed []string) {
	for _, i := range out.Instances {
		got = append(got, fmt.Sprintf("%s/%s x %d", i.InstanceType, *i.LaunchTemplateAndOverrides.Overrides.AvailabilityZone, len(i.InstanceIds)))
	}
	for _, e := range out.Errors {
		where := "fleet"
		if o := e.LaunchTemplateAndOverrides; o != nil && o.Overrides != nil && o.Overrides.InstanceType != "" {
			where = fmt.Sprintf("%s/%s", o.Overrides.InstanceType, aws.ToString(o.Overrides.AvailabilityZone))
		}
		failed = append(failed, where+": "+*e.ErrorCode)
	}
	return got, failed
}

// states returns the state of every instance that DescribeInstances shows.
func (a *account) states() map[string]string {
	a.t.Helper()
	out := must(a.ec2.DescribeInstances(a.ctx, &awsec2.DescribeInstancesInput{}))
	states := map[string]string{}
	for _, r := range out.Reservations {
		for _, i := range r.Instances {
			states[*i.InstanceId] = string(i.State.Name)
		}
	}
	return states
}

func filters(kv ...string) []types.Filter {
	var out []types.Filter
	for i := 0; i < len(kv); i += 2 {
		out = append(out, types.Filter{Name: &kv[i], Values: []string{kv[i+1]}})
	}
	return out
}

func tags(kv ...string) []types.Tag {
	var out []types.Tag
	for i := 0; i < len(kv); i += 2 {
		out = append(out, types.Tag{Key: &kv[i], Value: &kv[i+1]})
	}
	return out
}

// code returns an error's API code, "" for nil, or the text of an error that is not from the API.
func code(err error) string {
	var api smithy.APIError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &api):
		return api.ErrorCode()
	}
	return err.Error()
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
