package permission

import (
	"context"
	"fmt"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
)

// Reasons of the condition ValidationSucceeded. They are Karpenter's.
const (
	CreateLaunchTemplateDenied = "CreateLaunchTemplateAuthCheckFailed"
	CreateFleetDenied          = "CreateFleetAuthCheckFailed"
	RunInstancesDenied         = "RunInstancesAuthCheckFailed"
)

// Denial says which permission the program's role lacks: the reason and message of the class's condition.
type Denial struct {
	Reason, Message string
}

// API are the calls that are tried.
type API interface {
	CreateLaunchTemplate(context.Context, *ec2.CreateLaunchTemplateInput, ...func(*ec2.Options)) (*ec2.CreateLaunchTemplateOutput, error)
	CreateFleet(context.Context, *ec2.CreateFleetInput, ...func(*ec2.Options)) (*ec2.CreateFleetOutput, error)
	RunInstances(context.Context, *ec2.RunInstancesInput, ...func(*ec2.Options)) (*ec2.RunInstancesOutput, error)
}

// Try is a launch to ask about, as a pool would make it: the policy may restrict instance types, tags, subnets and roles.
type Try struct {
	// Image is the id of the image in the launch template that would be created; empty: the template is the user's, and none is created.
	Image string
	Tags  map[string]string
	// Groups are the security groups of the class; none: they are in the user's template.
	Groups []string
	Spot   bool
	// Fleet returns the request for a fleet with one type, in each zone. It creates the launch template if it doesn't exist: EC2 can't tell
	// what may be launched from a template that it doesn't know.
	Fleet func(ctx context.Context) (*ec2.CreateFleetInput, error)
}

// mostTries limits how many pools of a class are asked about while all are denied.
const mostTries = 3

// ask returns why the role may make none of the launches; nil: it may make one of them. The error means that EC2 hasn't said.
func (c *Checker) ask(ctx context.Context, tries []Try) (*Denial, error) {
	var first *Denial
	for i := range tries[:min(len(tries), mostTries)] {
		denial, err := c.try(ctx, &tries[i])
		if err != nil || denial == nil {
			return nil, err
		}
		if first == nil {
			first = denial
		}
	}
	return first, nil
}

// try asks about one launch, in the order in which a launch needs the permissions.
func (c *Checker) try(ctx context.Context, t *Try) (*Denial, error) {
	if t.Image != "" {
		_, err := c.api.CreateLaunchTemplate(ctx, &ec2.CreateLaunchTemplateInput{
			DryRun: awssdk.Bool(true), LaunchTemplateName: awssdk.String("karpenter.k8s.aws/permission-check"),
			LaunchTemplateData: &ec2types.RequestLaunchTemplateData{ImageId: &t.Image},
			TagSpecifications:  []ec2types.TagSpecification{{ResourceType: ec2types.ResourceTypeLaunchTemplate, Tags: sdk.SortedTags(t.Tags)}},
		}, once)
		if denial, err := read(err, CreateLaunchTemplateDenied, "ec2:CreateLaunchTemplate"); denial != nil || err != nil {
			return denial, err
		}
	}
	fleet, err := t.Fleet(ctx)
	if err != nil {
		if denied(err) {
			return denial(err, CreateLaunchTemplateDenied, "ec2:CreateLaunchTemplate"), nil
		}
		return nil, err
	}
	fleet.DryRun = awssdk.Bool(true)
	_, err = c.api.CreateFleet(ctx, fleet, once)
	if denial, err := read(err, CreateFleetDenied, "ec2:CreateFleet"); denial != nil || err != nil {
		return denial, err
	}
	// Subnets are checked here, not by CreateFleet. One that may be launched into is enough: the others fail as launches into full zones do.
	var first *Denial
	for _, in := range t.instances(fleet) {
		_, err := c.api.RunInstances(ctx, in, once)
		denial, err := read(err, RunInstancesDenied, "ec2:RunInstances")
		if denial == nil || err != nil {
			return nil, err
		}
		if first == nil {
			first = denial
		}
	}
	return first, nil
}

// instances returns what the fleet launches as requests for one instance each.
func (t *Try) instances(fleet *ec2.CreateFleetInput) []*ec2.RunInstancesInput {
	var out []*ec2.RunInstancesInput
	for _, c := range fleet.LaunchTemplateConfigs {
		for _, o := range c.Overrides {
			in := &ec2.RunInstancesInput{
				DryRun: awssdk.Bool(true), MinCount: awssdk.Int32(1), MaxCount: awssdk.Int32(1), InstanceType: o.InstanceType,
				LaunchTemplate: &ec2types.LaunchTemplateSpecification{
					LaunchTemplateName: c.LaunchTemplateSpecification.LaunchTemplateName, Version: c.LaunchTemplateSpecification.Version,
				},
			}
			if len(t.Groups) > 0 { // a request's interfaces replace the template's
				in.NetworkInterfaces = []ec2types.InstanceNetworkInterfaceSpecification{{DeviceIndex: awssdk.Int32(0), SubnetId: o.SubnetId, Groups: t.Groups}}
			} else {
				in.SubnetId = o.SubnetId
			}
			kinds := []ec2types.ResourceType{ec2types.ResourceTypeInstance, ec2types.ResourceTypeVolume, ec2types.ResourceTypeNetworkInterface}
			if t.Spot {
				in.InstanceMarketOptions = &ec2types.InstanceMarketOptionsRequest{MarketType: ec2types.MarketTypeSpot}
				kinds = append(kinds, ec2types.ResourceTypeSpotInstancesRequest)
			}
			for _, kind := range kinds {
				in.TagSpecifications = append(in.TagSpecifications, ec2types.TagSpecification{ResourceType: kind, Tags: sdk.SortedTags(t.Tags)})
			}
			out = append(out, in)
		}
	}
	return out
}

// once makes a call without repetitions: the check is repeated later anyway, and launches need the requests more.
func once(o *ec2.Options) { o.Retryer = awssdk.NopRetryer{} }

// read returns what the answer to a dry run says. A request that EC2 refuses for another reason than a missing permission counts as allowed: if the
// reason is real, the launch will report it.
func read(err error, reason, action string) (*Denial, error) {
	switch {
	case denied(err):
		return denial(err, reason, action), nil
	case err == nil, sdk.IsDryRun(err), sdk.IsInsufficientCapacity(err):
		return nil, nil
	case sdk.IsProfileUnknown(err), !sdk.IsRefused(err):
		return nil, fmt.Errorf("dry run of %s: %w", action, err)
	}
	return nil, nil
}

// denied reports whether EC2 says that a permission is missing, and nothing else: other errors of authorization are about credentials.
func denied(err error) bool { return sdk.Code(err) == "UnauthorizedOperation" }

func denial(err error, reason, action string) *Denial {
	return &Denial{Reason: reason, Message: fmt.Sprintf("the role of Dovetail may not do %s for this class: %s", action, sdk.Summarize(err))}
}
