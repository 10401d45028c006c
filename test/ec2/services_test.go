package ec2

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	pricingtypes "github.com/aws/aws-sdk-go-v2/service/pricing/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/google/go-cmp/cmp"
)

func TestPublicImagesHaveAliases(t *testing.T) {
	a := newAccount(t)
	client := ssm.NewFromConfig(once(a.Sim))
	for alias, want := range map[string]string{
		"/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/standard/recommended/image_id":                                           "amazon-eks-node-al2023-x86_64-standard-1.36-v20260915",
		"/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/arm64/nvidia/recommended/image_id":                                              "amazon-eks-node-al2023-arm64-nvidia-1.34-v20260915",
		"/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/neuron/amazon-eks-node-al2023-x86_64-neuron-1.36-v20260814/image_id":     "amazon-eks-node-al2023-x86_64-neuron-1.36-v20260814",
		"/aws/service/eks/optimized-ami/1.36/amazon-linux-2023/x86_64/standard/amazon-eks-node-al2023-x86_64-standard-1.36-v20260814/image_id": "amazon-eks-node-al2023-x86_64-standard-1.36-v20260814",
		"/aws/service/bottlerocket/aws-k8s-1.36/arm64/latest/image_id":                                                                         "bottlerocket-aws-k8s-1.36-aarch64-v1.50.0-",
		"/aws/service/bottlerocket/aws-k8s-1.36-nvidia/x86_64/1.48.0/image_id":                                                                 "bottlerocket-aws-k8s-1.36-nvidia-x86_64-v1.48.0-",
	} {
		p, err := client.GetParameter(a.ctx, &ssm.GetParameterInput{Name: &alias})
		if err != nil {
			t.Errorf("%s: %v", alias, err)
			continue
		}
		im := must(a.ec2.DescribeImages(a.ctx, &awsec2.DescribeImagesInput{ImageIds: []string{*p.Parameter.Value}}))
		if name := *im.Images[0].Name; !strings.HasPrefix(name, want) {
			t.Errorf("%s is %s, want %s", alias, name, want)
		}
	}
	_, err := client.GetParameter(a.ctx, &ssm.GetParameterInput{Name: aws.String("/no/such")})
	if got := code(err); got != "ParameterNotFound" {
		t.Errorf("an unknown name: %q", got)
	}
	a.SetParameter("/custom/image", "ami-1")
	both := must(client.GetParameters(a.ctx, &ssm.GetParametersInput{Names: []string{"/custom/image", "/no/such"}}))
	if len(both.Parameters) != 1 || *both.Parameters[0].Value != "ami-1" || len(both.InvalidParameters) != 1 {
		t.Errorf("two names: %+v", both)
	}
	under := must(client.GetParametersByPath(a.ctx, &ssm.GetParametersByPathInput{Path: aws.String("/custom"), Recursive: aws.Bool(true)}))
	if len(under.Parameters) != 1 {
		t.Errorf("by path: %+v", under.Parameters)
	}
}

func TestThePriceListComesInPages(t *testing.T) {
	a := newAccount(t)
	a.SetPrice("m5.large", "us-west-2a", "on-demand", 0.5)
	client := pricing.NewFromConfig(once(a.Sim))
	term := func(field, value string) pricingtypes.Filter {
		return pricingtypes.Filter{Field: &field, Value: &value, Type: pricingtypes.FilterTypeTermMatch}
	}
	prices := map[string]string{}
	calls := 0
	for _, family := range []string{"Compute Instance", "Compute Instance (bare metal)"} {
		pages := pricing.NewGetProductsPaginator(client, &pricing.GetProductsInput{
			ServiceCode: aws.String("AmazonEC2"), MaxResults: aws.Int32(100),
			Filters: []pricingtypes.Filter{
				term("regionCode", "us-west-2"), term("operatingSystem", "Linux"), term("preInstalledSw", "NA"), term("tenancy", "Shared"), term("capacitystatus", "Used"),
				term("marketoption", "OnDemand"), term("productFamily", family),
			},
		})
		for pages.HasMorePages() {
			out, err := pages.NextPage(a.ctx)
			if err != nil {
				t.Fatal(err)
			}
			calls++
			for _, doc := range out.PriceList {
				var p struct {
					Product struct{ Attributes map[string]string }
					Terms   struct {
						OnDemand map[string]struct {
							PriceDimensions map[string]struct{ PricePerUnit map[string]string }
						}
					}
				}
				if err := json.Unmarshal([]byte(doc), &p); err != nil {
					t.Fatal(err)
				}
				for _, offer := range p.Terms.OnDemand {
					for _, d := range offer.PriceDimensions {
						prices[p.Product.Attributes["instanceType"]] = d.PricePerUnit["USD"]
					}
				}
			}
		}
	}
	if len(prices) < 400 || calls < 5 || prices["m5.large"] != "0.5000000000" || prices["c6i.metal"] != "5.4400000000" {
		t.Errorf("%d prices in %d calls, m5.large %s, c6i.metal %s", len(prices), calls, prices["m5.large"], prices["c6i.metal"])
	}
}

func TestInstanceProfilesLive(t *testing.T) {
	a := newAccount(t)
	client := iam.NewFromConfig(once(a.Sim))
	have := must(client.GetInstanceProfile(a.ctx, &iam.GetInstanceProfileInput{InstanceProfileName: aws.String("DovetailNode")}))
	if len(have.InstanceProfile.Roles) != 1 || *have.InstanceProfile.Roles[0].RoleName != "DovetailNode" {
		t.Errorf("the profile there is: %+v", have.InstanceProfile)
	}
	name := aws.String("blue_1234")
	_, err := client.GetInstanceProfile(a.ctx, &iam.GetInstanceProfileInput{InstanceProfileName: name})
	if got := code(err); got != "NoSuchEntity" {
		t.Errorf("one that isn't there: %q", got)
	}
	must(client.CreateInstanceProfile(a.ctx, &iam.CreateInstanceProfileInput{InstanceProfileName: name, Path: aws.String("/karpenter/")}))
	_, err = client.CreateInstanceProfile(a.ctx, &iam.CreateInstanceProfileInput{InstanceProfileName: name})
	if got := code(err); got != "EntityAlreadyExists" {
		t.Errorf("one that is there: %q", got)
	}
	_, err = client.AddRoleToInstanceProfile(a.ctx, &iam.AddRoleToInstanceProfileInput{InstanceProfileName: name, RoleName: aws.String("nobody")})
	if got := code(err); got != "NoSuchEntity" {
		t.Errorf("a role that isn't there: %q", got)
	}
	must(client.AddRoleToInstanceProfile(a.ctx, &iam.AddRoleToInstanceProfileInput{InstanceProfileName: name, RoleName: aws.String("DovetailNode")}))
	must(client.TagInstanceProfile(a.ctx, &iam.TagInstanceProfileInput{InstanceProfileName: name, Tags: []iamtypes.Tag{{Key: aws.String("team"), Value: aws.String("a")}}}))
	if p := must(client.GetInstanceProfile(a.ctx, &iam.GetInstanceProfileInput{InstanceProfileName: name})).InstanceProfile; len(p.Tags) != 1 || *p.Tags[0].Value != "a" {
		t.Errorf("tags: %+v", p.Tags)
	}
	list := must(client.ListInstanceProfiles(a.ctx, &iam.ListInstanceProfilesInput{PathPrefix: aws.String("/karpenter/")}))
	if len(list.InstanceProfiles) != 1 || len(list.InstanceProfiles[0].Roles) != 1 {
		t.Errorf("list: %+v", list.InstanceProfiles)
	}
	_, err = client.DeleteInstanceProfile(a.ctx, &iam.DeleteInstanceProfileInput{InstanceProfileName: name})
	if got := code(err); got != "DeleteConflict" {
		t.Errorf("deleting with a role: %q", got)
	}
	must(client.RemoveRoleFromInstanceProfile(a.ctx, &iam.RemoveRoleFromInstanceProfileInput{InstanceProfileName: name, RoleName: aws.String("DovetailNode")}))
	must(client.DeleteInstanceProfile(a.ctx, &iam.DeleteInstanceProfileInput{InstanceProfileName: name}))
	must(client.GetRole(a.ctx, &iam.GetRoleInput{RoleName: aws.String("DovetailNode")}))
}

func TestTheClusterAndTheCallerAreKnown(t *testing.T) {
	a := newAccount(t)
	a.SetCluster("https://127.0.0.1:6443", []byte("PEM"))
	out := must(eks.NewFromConfig(once(a.Sim)).DescribeCluster(a.ctx, &eks.DescribeClusterInput{Name: aws.String("blue")}))
	got := []string{*out.Cluster.Endpoint, *out.Cluster.CertificateAuthority.Data, *out.Cluster.Version, *out.Cluster.KubernetesNetworkConfig.ServiceIpv4Cidr, string(out.Cluster.Status)}
	if diff := cmp.Diff([]string{"https://127.0.0.1:6443", "UEVN", "1.36", "172.20.0.0/16", "ACTIVE"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	_, err := eks.NewFromConfig(once(a.Sim)).DescribeCluster(a.ctx, &eks.DescribeClusterInput{Name: aws.String("red")})
	if got := code(err); got != "ResourceNotFoundException" {
		t.Errorf("another cluster: %q", got)
	}
	who := must(sts.NewFromConfig(once(a.Sim)).GetCallerIdentity(a.ctx, &sts.GetCallerIdentityInput{}))
	if *who.Account != "123456789012" {
		t.Errorf("account %s", *who.Account)
	}
}

func TestTheQueueDeliversUntilDeleted(t *testing.T) {
	a := newAccount(t)
	client := sqs.NewFromConfig(once(a.Sim))
	url := must(client.GetQueueUrl(a.ctx, &sqs.GetQueueUrlInput{QueueName: aws.String("blue")})).QueueUrl
	_, err := client.GetQueueUrl(a.ctx, &sqs.GetQueueUrlInput{QueueName: aws.String("red")})
	if got := code(err); !strings.Contains(got, "QueueDoesNotExist") {
		t.Errorf("another queue: %q", got)
	}
	receive := func() *sqs.ReceiveMessageOutput {
		return must(client.ReceiveMessage(a.ctx, &sqs.ReceiveMessageInput{QueueUrl: url, VisibilityTimeout: 20, MaxNumberOfMessages: 10}))
	}
	must(client.SendMessage(a.ctx, &sqs.SendMessageInput{QueueUrl: url, MessageBody: aws.String("hello")}))
	first := receive()
	if len(first.Messages) != 1 || *first.Messages[0].Body != "hello" {
		t.Fatalf("first: %+v", first.Messages)
	}
	if again := receive(); len(again.Messages) != 0 {
		t.Error("a message in flight was delivered")
	}
	a.step(20 * time.Second)
	second := receive()
	if len(second.Messages) != 1 {
		t.Fatal("a message that was not deleted didn't come again")
	}
	must(client.DeleteMessage(a.ctx, &sqs.DeleteMessageInput{QueueUrl: url, ReceiptHandle: second.Messages[0].ReceiptHandle}))
	a.step(20 * time.Second)
	if third := receive(); len(third.Messages) != 0 {
		t.Error("a deleted message came again")
	}
}

func TestAWaitingReceiverGetsTheInterruption(t *testing.T) {
	a := newAccount(t)
	client := sqs.NewFromConfig(once(a.Sim))
	id := a.launched(a.fleetOf(1, a.template("lt"), types.DefaultTargetCapacityTypeSpot, abc[:1], "m5.large"))[0]
	a.step(3 * time.Second)
	got := make(chan string, 1)
	go func() {
		out, err := client.ReceiveMessage(a.ctx, &sqs.ReceiveMessageInput{QueueUrl: aws.String(a.QueueURL()), WaitTimeSeconds: 20})
		if err != nil || len(out.Messages) != 1 {
			got <- ""
			return
		}
		got <- *out.Messages[0].Body
	}()
	if err := a.Interrupt(id); err != nil {
		t.Fatal(err)
	}
	var event struct {
		Source     string
		DetailType string `json:"detail-type"`
		Resources  []string
		Detail     map[string]string
	}
	if err := json.Unmarshal([]byte(<-got), &event); err != nil {
		t.Fatal(err)
	}
	if event.Source != "aws.ec2" || event.DetailType != "EC2 Spot Instance Interruption Warning" || event.Detail["instance-id"] != id || event.Detail["instance-action"] != "terminate" {
		t.Errorf("event %+v", event)
	}
	a.step(119 * time.Second)
	if n := len(a.Live()); n != 1 {
		t.Error("the instance ended before two minutes were over")
	}
	a.step(time.Second)
	if n := len(a.Live()); n != 0 {
		t.Error("the instance lives on")
	}
}

func TestLaunchTemplatesLive(t *testing.T) {
	a := newAccount(t)
	create := &awsec2.CreateLaunchTemplateInput{LaunchTemplateName: aws.String("lt"), LaunchTemplateData: &types.RequestLaunchTemplateData{ImageId: aws.String("ami-1")},
		ClientToken: aws.String("t"), TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeLaunchTemplate, Tags: tags("karpenter.k8s.aws/cluster", "blue")}}}
	first := must(a.ec2.CreateLaunchTemplate(a.ctx, create))
	again := must(a.ec2.CreateLaunchTemplate(a.ctx, create))
	if *first.LaunchTemplate.LaunchTemplateId != *again.LaunchTemplate.LaunchTemplateId {
		t.Error("the same token made two templates")
	}
	create.ClientToken = aws.String("u")
	_, err := a.ec2.CreateLaunchTemplate(a.ctx, create)
	if got := code(err); got != "InvalidLaunchTemplateName.AlreadyExistsException" {
		t.Errorf("the same name again: %q", got)
	}
	create.LaunchTemplateName, create.ClientToken = aws.String("lt2"), nil
	create.LaunchTemplateData.UserData = aws.String("not base64!")
	_, err = a.ec2.CreateLaunchTemplate(a.ctx, create)
	if got := code(err); got != "InvalidUserData.Malformed" {
		t.Errorf("bad user data: %q", got)
	}
	list := must(a.ec2.DescribeLaunchTemplates(a.ctx, &awsec2.DescribeLaunchTemplatesInput{Filters: filters("tag:karpenter.k8s.aws/cluster", "blue")}))
	if len(list.LaunchTemplates) != 1 {
		t.Errorf("%d by tag", len(list.LaunchTemplates))
	}
	_, err = a.ec2.DescribeLaunchTemplates(a.ctx, &awsec2.DescribeLaunchTemplatesInput{LaunchTemplateNames: []string{"gone"}})
	if got := code(err); got != "InvalidLaunchTemplateName.NotFoundException" {
		t.Errorf("an unknown name: %q", got)
	}
	must(a.ec2.DeleteLaunchTemplate(a.ctx, &awsec2.DeleteLaunchTemplateInput{LaunchTemplateId: first.LaunchTemplate.LaunchTemplateId}))
	_, err = a.ec2.DeleteLaunchTemplate(a.ctx, &awsec2.DeleteLaunchTemplateInput{LaunchTemplateId: first.LaunchTemplate.LaunchTemplateId})
	if got := code(err); got != "InvalidLaunchTemplateId.NotFound" {
		t.Errorf("deleting twice: %q", got)
	}
}

func TestAnotherProcessCanSteer(t *testing.T) {
	a := newAccount(t)
	post := func(path, body string) int {
		out, err := http.Post(a.Endpoint()+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		out.Body.Close()
		return out.StatusCode
	}
	get := func(path string, into any) {
		out, err := http.Get(a.Endpoint() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer out.Body.Close()
		if err := json.NewDecoder(out.Body).Decode(into); err != nil {
			t.Fatal(err)
		}
	}
	if s := post("/_sim/capacity", `{"type": "m5.large", "n": 1}`); s != http.StatusNoContent {
		t.Errorf("capacity: status %d", s)
	}
	if s := post("/_sim/fault", `{"action": "DescribeImages", "code": "RequestLimitExceeded"}`); s != http.StatusNoContent {
		t.Errorf("fault: status %d", s)
	}
	if s := post("/_sim/fault", `{"aktion": "DescribeImages"}`); s != http.StatusBadRequest {
		t.Errorf("a misspelt fault: status %d", s)
	}
	_, err := a.ec2.DescribeImages(a.ctx, &awsec2.DescribeImagesInput{})
	if got := code(err); got != "RequestLimitExceeded" {
		t.Errorf("error %q", got)
	}
	ids := a.launched(a.fleetOf(3, a.template("lt"), "spot", abc[:1], "m5.large"))
	a.step(3 * time.Second)
	if s := post("/_sim/endnew", `{"n": 1, "reason": "Client.InternalError: Client error on launch"}`); s != http.StatusNoContent {
		t.Errorf("endnew: %d", s)
	}
	if s := post("/_sim/interrupt", `{"instance": "`+ids[0]+`"}`); s != http.StatusNoContent {
		t.Errorf("interrupt: status %d", s)
	}
	var live []Instance
	get("/_sim/instances?live=true", &live)
	if len(live) != 1 || live[0].ID != ids[0] || live[0].Tags["team"] != "a" {
		t.Errorf("live: %+v", live)
	}
	var journal struct {
		Calls   []Call
		Changes []Change
		Bill    Bill
	}
	get("/_sim/journal", &journal)
	if len(journal.Calls) < 5 || len(journal.Changes) != 2 || journal.Bill.Running != 1 {
		t.Errorf("journal: %d calls, %d changes, %+v", len(journal.Calls), len(journal.Changes), journal.Bill)
	}
}
