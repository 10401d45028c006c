package aws

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	sim "github.com/dovetail-scheduler/dovetail/test/ec2"
	simiam "github.com/dovetail-scheduler/dovetail/test/ec2/iam"
)

// All tests of this package run under the shipped IAM policy. Here everything that the program does in an account needs each action of each
// of the policy's statements at least once: nothing in it is superfluous.
func TestEveryGrantOfThePolicyIsNeeded(t *testing.T) {
	w := newWorld(t, func(c *Config, s *sim.Config) { s.Queue, c.ZonalShift = "interruptions", true })
	w.sim.AddPlacementGroup("close", "cluster", 0)
	reservation := w.sim.Reserve(sim.Reservation{Type: "m5.large", Zone: "us-west-2a", Count: 1})

	// Images, subnets, groups, prices, the cluster, and an instance profile for the role.
	nc := nodeClass(func(nc *ec2nc.EC2NodeClass) {
		nc.Spec.PlacementGroupSelector = &ec2nc.PlacementGroupSelector{Name: awssdk.String("close")}
		nc.Spec.CapacityReservationSelectorTerms = []ec2nc.CapacityReservationSelectorTerm{{ID: reservation}}
	})
	w.SetNodeClass(nc)
	w.types("default")
	batch := w.prepared(newBatch("t-spot", "spot", 1, offer("m5.large", "a", "spot")))
	res, err := w.Launch(w.ctx, batch)
	if err != nil || len(res.Instances) != 1 {
		t.Fatal(res, err)
	}
	id := res.Instances[0].ID
	if err := w.TagClaim(w.ctx, id, "claim", "node"); err != nil {
		t.Fatal(err)
	}

	// A launch template of the user's own.
	image := w.anImage()
	w.keep("mine", &ec2types.RequestLaunchTemplateData{ImageId: &image})
	own := withOwn("mine")
	own.Name, own.UID = "own", "uid-own"
	w.SetNodeClass(own)
	w.types("own")
	b := newBatch("t-own", "on-demand", 1, offer("m5.large", "a", "on-demand"))
	b.NodeClass = "own"
	if res, err := w.Launch(w.ctx, w.prepared(b)); err != nil || len(res.Instances) != 1 {
		t.Fatal(res, err)
	}

	// A message on the queue.
	heard := make(chan struct{}, 100)
	listener, err := New(Config{Region: "us-west-2", ClusterName: "films", InterruptionQueue: "interruptions"}, w.clients)
	if err != nil {
		t.Fatal(err)
	}
	listener.OnInterruption(func(_ context.Context, all []capacity.Interruption) []error {
		heard <- struct{}{}
		return make([]error, len(all))
	})
	ctx, stop := context.WithCancel(w.ctx)
	var listening sync.WaitGroup
	listening.Go(func() { listener.Listen(ctx) })
	if err := w.sim.Interrupt(id); err != nil {
		t.Fatal(err)
	}
	select {
	case <-heard:
	case <-time.After(time.Minute):
		t.Fatal("the message was not read")
	}
	if err := wait.PollUntilContextTimeout(w.ctx, time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return len(w.sim.Calls("DeleteMessageBatch")) > 0, nil
	}); err != nil {
		t.Fatal(err)
	}
	stop()
	listening.Wait()

	// The end of all of it.
	if err := w.Terminate(w.ctx, id); err != nil {
		t.Fatal(err)
	}
	late := w.later(2 * time.Hour)
	if err := late.templates.RemoveUnused(w.ctx, late.cfg.TidyEvery); err != nil {
		t.Fatal(err)
	}
	if err := w.ReleaseClass(w.ctx, nc); err != nil {
		t.Fatal(err)
	}
	poll, enough := context.WithTimeout(w.ctx, time.Second)
	late.Poll(poll) // of the status of instances
	enough()

	var unneeded []simiam.Grant
	for _, g := range w.sim.PolicyGrants() {
		if !slices.Contains(w.sim.PolicyNeeded(), g) {
			unneeded = append(unneeded, g)
		}
	}
	if diff := cmp.Diff([]simiam.Grant(nil), unneeded); diff != "" {
		t.Errorf("nothing needs these actions of manifests/iam/policy.json (-want +got):\n%s", diff)
	}
}

// What isn't this cluster's is refused by EC2 itself, whoever holds the program's credentials.
func TestThePolicyRefuses(t *testing.T) {
	w := newWorld(t)
	w.SetNodeClass(nodeClass())
	w.types("default")
	batch := w.prepared(newBatch("t", "on-demand", 1, offer("m5.large", "a", "on-demand")))
	launched, err := w.Launch(w.ctx, batch)
	if err != nil || len(launched.Instances) != 1 {
		t.Fatal(launched, err)
	}
	own, template := launched.Instances[0].ID, w.names(batch)[0]
	image := w.anImage()
	w.keep("shared", &ec2types.RequestLaunchTemplateData{ImageId: &image})

	tags := func(kind ec2types.ResourceType, pairs ...string) []ec2types.TagSpecification {
		out := ec2types.TagSpecification{ResourceType: kind}
		for i := 0; i < len(pairs); i += 2 {
			out.Tags = append(out.Tags, ec2types.Tag{Key: &pairs[i], Value: &pairs[i+1]})
		}
		return []ec2types.TagSpecification{out}
	}
	ours := []string{"kubernetes.io/cluster/films", "owned", "eks:eks-cluster-name", "films", "karpenter.sh/nodepool", "p"}
	theirs := []string{"kubernetes.io/cluster/other", "owned", "eks:eks-cluster-name", "other", "karpenter.sh/nodepool", "p"}
	program, user := w.clients.EC2.(*awsec2.Client), w.user.EC2.(*awsec2.Client)
	run := func(c *awsec2.Client, specs []ec2types.TagSpecification) (string, error) {
		out, err := c.RunInstances(w.ctx, &awsec2.RunInstancesInput{MinCount: awssdk.Int32(1), MaxCount: awssdk.Int32(1), ImageId: &image,
			InstanceType: "m5.large", TagSpecifications: specs})
		if err != nil {
			return "", err
		}
		return *out.Instances[0].InstanceId, nil
	}
	somebodys := map[string]string{}
	for name, specs := range map[string][]ec2types.TagSpecification{
		"untagged": nil, "another cluster's": tags("instance", theirs...), "without a pool": tags("instance", ours[:4]...),
	} {
		if somebodys[name], err = run(user, specs); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := user.CreateLaunchTemplate(w.ctx, &awsec2.CreateLaunchTemplateInput{LaunchTemplateName: awssdk.String("untagged"),
		LaunchTemplateData: &ec2types.RequestLaunchTemplateData{ImageId: &image}}); err != nil {
		t.Fatal(err)
	}

	fleet := func(template string, specs ...ec2types.TagSpecification) func() error {
		return func() error {
			out, err := program.CreateFleet(w.ctx, &awsec2.CreateFleetInput{
				Type: ec2types.FleetTypeInstant, TagSpecifications: specs,
				TargetCapacitySpecification: &ec2types.TargetCapacitySpecificationRequest{TotalTargetCapacity: awssdk.Int32(1)},
				LaunchTemplateConfigs: []ec2types.FleetLaunchTemplateConfigRequest{{
					LaunchTemplateSpecification: &ec2types.FleetLaunchTemplateSpecificationRequest{LaunchTemplateName: &template, Version: awssdk.String("$Latest")},
					Overrides:                   []ec2types.FleetLaunchTemplateOverridesRequest{{InstanceType: "m5.large"}},
				}},
			})
			if err == nil && len(out.Errors) > 0 {
				return &smithy.GenericAPIError{Code: *out.Errors[0].ErrorCode, Message: *out.Errors[0].ErrorMessage}
			}
			return err
		}
	}
	tag := func(id string, pairs ...string) func() error {
		return func() error {
			_, err := program.CreateTags(w.ctx, &awsec2.CreateTagsInput{Resources: []string{id}, Tags: tags("", pairs...)[0].Tags})
			return err
		}
	}
	end := func(ids ...string) func() error {
		return func() error {
			_, err := program.TerminateInstances(w.ctx, &awsec2.TerminateInstancesInput{InstanceIds: ids})
			return err
		}
	}
	make := func(specs ...ec2types.TagSpecification) func() error {
		return func() error {
			_, err := program.CreateLaunchTemplate(w.ctx, &awsec2.CreateLaunchTemplateInput{LaunchTemplateName: awssdk.String("new"),
				LaunchTemplateData: &ec2types.RequestLaunchTemplateData{ImageId: &image}, TagSpecifications: specs})
			return err
		}
	}
	profile := func(name, path string) func() error {
		return func() error {
			_, err := w.clients.IAM.CreateInstanceProfile(w.ctx, &iam.CreateInstanceProfileInput{InstanceProfileName: &name, Path: &path})
			return err
		}
	}
	all := slices.Concat(tags("fleet", ours...), tags("instance", ours...), tags("volume", ours...))
	for name, try := range map[string]func() error{
		"a fleet without tags":                                 fleet(template),
		"a fleet whose instances have no tags":                 fleet(template, all[0], all[2]),
		"a fleet of another cluster":                           fleet(template, slices.Concat(tags("fleet", theirs...), tags("instance", theirs...), tags("volume", theirs...))...),
		"a fleet from a launch template that isn't ours":       fleet("untagged", all...),
		"instances without tags":                               func() error { _, err := run(program, nil); return err },
		"instances whose volumes have no tags":                 func() error { _, err := run(program, tags("instance", ours...)); return err },
		"a launch template without tags":                       make(),
		"a launch template of another cluster":                 make(tags("launch-template", theirs...)...),
		"ending an instance without tags":                      end(somebodys["untagged"]),
		"ending an instance of another cluster":                end(somebodys["another cluster's"]),
		"ending an instance of the cluster that is of no pool": end(somebodys["without a pool"]),
		"ending an own instance together with another":         end(own, somebodys["untagged"]),
		"adopting an instance":                                 tag(somebodys["untagged"], ours...),
		"naming an instance of another cluster":                tag(somebodys["another cluster's"], "Name", "x"),
		"another tag on an own instance":                       tag(own, "owner", "x"),
		"giving an own instance away":                          tag(own, "kubernetes.io/cluster/films", "shared"),
		"tagging a subnet":                                     tag(w.subnetIn("us-west-2a"), "Name", "x"),
		"deleting the user's launch template": func() error {
			_, err := program.DeleteLaunchTemplate(w.ctx, &awsec2.DeleteLaunchTemplateInput{LaunchTemplateName: awssdk.String("shared")})
			return err
		},
		"an instance profile elsewhere":          profile("x", "/"),
		"an instance profile of another cluster": profile("x", "/karpenter/us-west-2/other/uid/"),
		"an instance profile without the cluster's tag": func() error {
			_, err := w.clients.IAM.CreateInstanceProfile(w.ctx, &iam.CreateInstanceProfileInput{InstanceProfileName: awssdk.String("x"),
				Path: awssdk.String("/karpenter/us-west-2/films/uid/"), Tags: nil})
			if err != nil {
				return err
			}
			_, err = w.clients.IAM.(*iam.Client).TagInstanceProfile(w.ctx, &iam.TagInstanceProfileInput{InstanceProfileName: awssdk.String("x"),
				Tags: []iamtypes.Tag{{Key: awssdk.String("owner"), Value: awssdk.String("x")}}})
			return err
		},
		"a role that isn't the nodes'": func() error {
			_, err := w.clients.IAM.AddRoleToInstanceProfile(w.ctx, &iam.AddRoleToInstanceProfileInput{InstanceProfileName: awssdk.String(ownProfiles.Name(nodeClass())), RoleName: awssdk.String("Admin")})
			return err
		},
		"deleting a profile of the account's": func() error {
			_, err := w.clients.IAM.DeleteInstanceProfile(w.ctx, &iam.DeleteInstanceProfileInput{InstanceProfileName: awssdk.String("DovetailNode")})
			return err
		},
		"a parameter of the account's": func() error {
			_, err := w.clients.SSM.GetParameters(w.ctx, &ssm.GetParametersInput{Names: []string{"/team/secret"}})
			return err
		},
		"another cluster": func() error {
			_, err := w.clients.EKS.DescribeCluster(w.ctx, &eks.DescribeClusterInput{Name: awssdk.String("other")})
			return err
		},
		"another queue": func() error {
			_, err := w.clients.SQS.ReceiveMessage(w.ctx, &sqs.ReceiveMessageInput{QueueUrl: awssdk.String(w.sim.Endpoint() + "/123456789012/other")})
			return err
		},
		"writing to its own queue": func() error {
			_, err := w.clients.SQS.(*sqs.Client).SendMessage(w.ctx, &sqs.SendMessageInput{QueueUrl: awssdk.String(w.sim.QueueURL()), MessageBody: awssdk.String("x")})
			return err
		},
	} {
		var e smithy.APIError
		err := try()
		if !errors.As(err, &e) || !slices.Contains([]string{"UnauthorizedOperation", "AccessDenied", "AccessDeniedException"}, e.ErrorCode()) {
			t.Errorf("%s: %v, want a refusal", name, err)
		}
	}
	if n := len(w.sim.Live()); n != 4 {
		t.Errorf("%d instances run, want the program's and the user's three", n)
	}
}

// An instance whose claim was made by hand is of no pool. IAM must still find a value in its tag.
func TestThePolicyAllowsInstancesOfNoPool(t *testing.T) {
	w := newWorld(t)
	w.SetNodeClass(nodeClass())
	w.types("default")
	b := newBatch("t", "on-demand", 1, offer("m5.large", "a", "on-demand"))
	b.Pool = ""
	res, err := w.Launch(w.ctx, w.prepared(b))
	if err != nil || len(res.Instances) != 1 {
		t.Fatal(res, err)
	}
	if err := w.TagClaim(w.ctx, res.Instances[0].ID, "claim", ""); err != nil {
		t.Error(err)
	}
	if err := w.Terminate(w.ctx, res.Instances[0].ID); err != nil {
		t.Error(err)
	}
}
