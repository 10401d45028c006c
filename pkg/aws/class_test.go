package aws

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/aws/smithy-go"
	"github.com/awslabs/operatorpkg/status"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/catalog"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	sim "github.com/dovetail-scheduler/dovetail/test/ec2"
)

func condition(st ec2nc.EC2NodeClassStatus, kind string) status.Condition {
	for _, c := range st.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return status.Condition{}
}

func isReady(want metav1.ConditionStatus) func(ec2nc.EC2NodeClassStatus) bool {
	return func(st ec2nc.EC2NodeClassStatus) bool { return condition(st, status.ConditionReady).Status == want }
}

func TestStatusOfAClass(t *testing.T) {
	w := newWorld(t)
	w.SetNodeClass(nodeClass())
	st := w.status("default", isReady(metav1.ConditionTrue))
	if len(st.Subnets) != 3 || st.Subnets[0].Zone == "" || st.Subnets[0].ZoneID == "" {
		t.Errorf("subnets %+v", st.Subnets)
	}
	if len(st.SecurityGroups) != 1 || st.SecurityGroups[0].Name != "eks-cluster-sg-films" {
		t.Errorf("security groups %+v", st.SecurityGroups)
	}
	// amd64 and arm64 images for instances without accelerators and for NVIDIA, amd64 also for Neuron.
	if len(st.AMIs) != 5 {
		t.Errorf("images %+v", st.AMIs)
	}
	if !strings.HasPrefix(st.InstanceProfile, "films_") {
		t.Errorf("instance profile %q", st.InstanceProfile)
	}
	for _, c := range st.Conditions {
		if c.Status != metav1.ConditionTrue || c.ObservedGeneration != 1 || c.LastTransitionTime.IsZero() || c.Reason == "" {
			t.Errorf("condition %+v", c)
		}
	}
	// Its own status comes back from the watch: nothing happens.
	version := w.Version()
	nc := nodeClass()
	nc.Status, nc.ResourceVersion = st, "2"
	w.SetNodeClass(nc)
	if w.Version() != version {
		t.Error("a status of our own is a change")
	}
	w.DeleteNodeClass("default")
	if _, err := w.InstanceTypes("default"); err == nil || err.Error() != "EC2NodeClass default does not exist" {
		t.Errorf("after its deletion the class is unready because %v", err)
	}
}

func TestBadClasses(t *testing.T) {
	w := newWorld(t, allowed("iam:PassRole", "*"))
	for _, tt := range []struct {
		name      string
		class     func(*ec2nc.EC2NodeClass)
		condition string
		message   string // of the condition; it is also the reason why the class is unready
	}{
		{"no-subnet", func(nc *ec2nc.EC2NodeClass) {
			nc.Spec.SubnetSelectorTerms = []ec2nc.SubnetSelectorTerm{{Tags: map[string]string{"b": "*", "a": "1"}}, {ID: "subnet-0123"}}
		}, ec2nc.ConditionTypeSubnetsReady, "spec.subnetSelectorTerms: no subnet matches tags {a: 1, b: *} or id subnet-0123"},
		{"no-group", func(nc *ec2nc.EC2NodeClass) {
			nc.Spec.SecurityGroupSelectorTerms = []ec2nc.SecurityGroupSelectorTerm{{Name: "nobody"}}
		}, ec2nc.ConditionTypeSecurityGroupsReady, "spec.securityGroupSelectorTerms: no security group matches name nobody"},
		{"no-image", func(nc *ec2nc.EC2NodeClass) {
			nc.Spec.AMIFamily = ptr.To("AL2023")
			nc.Spec.AMISelectorTerms = []ec2nc.AMISelectorTerm{{ID: "ami-0123"}, {Name: "x*", Owner: "self"}}
		}, ec2nc.ConditionTypeAMIsReady, "spec.amiSelectorTerms: no image of a supported architecture matches id ami-0123 or owner self and name x*"},
		{"no-release", func(nc *ec2nc.EC2NodeClass) { nc.Spec.AMISelectorTerms[0].Alias = "al2023@v19990101" },
			ec2nc.ConditionTypeAMIsReady, "spec.amiSelectorTerms: no image is published for alias al2023@v19990101 and Kubernetes 1.36"},
		{"no-profile", func(nc *ec2nc.EC2NodeClass) { nc.Spec.Role, nc.Spec.InstanceProfile = "", ptr.To("nobody") },
			ec2nc.ConditionTypeInstanceProfileReady, "spec.instanceProfile: no instance profile is called nobody"},
		{"no-role", func(nc *ec2nc.EC2NodeClass) { nc.Spec.Role = "path/nobody" },
			ec2nc.ConditionTypeInstanceProfileReady, "spec.role: no role is called nobody"},
		{"al2", func(nc *ec2nc.EC2NodeClass) { nc.Spec.AMISelectorTerms[0].Alias = "al2@latest" },
			ec2nc.ConditionTypeValidationSucceeded, "spec.amiSelectorTerms[0].alias: AL2 has no images for Kubernetes 1.33 and newer; use AL2023 or Bottlerocket"},
		{"bad-alias", func(nc *ec2nc.EC2NodeClass) { nc.Spec.AMISelectorTerms[0].Alias = "al2023" },
			ec2nc.ConditionTypeValidationSucceeded, `spec.amiSelectorTerms[0].alias: "al2023" is not family@version`},
		{"both", func(nc *ec2nc.EC2NodeClass) { nc.Spec.InstanceProfile = ptr.To("x") },
			ec2nc.ConditionTypeValidationSucceeded, "spec.role, spec.instanceProfile: exactly one of them is required"},
		{"tags", func(nc *ec2nc.EC2NodeClass) { nc.Spec.Tags = map[string]string{"karpenter.sh/nodepool": "mine"} },
			ec2nc.ConditionTypeValidationSucceeded, `spec.tags: the key "karpenter.sh/nodepool" is set by the program itself`},
		{"tags-too-many", func(nc *ec2nc.EC2NodeClass) { nc.Spec.Tags = manyTags(45) },
			ec2nc.ConditionTypeValidationSucceeded, "spec.tags: 45 tags and the 7 that Dovetail adds to every instance are 52; EC2 allows 50 on an instance"},
		{"tags-aws", func(nc *ec2nc.EC2NodeClass) { nc.Spec.Tags = map[string]string{"AWS:owner": "me"} },
			ec2nc.ConditionTypeValidationSucceeded, `spec.tags: the key "AWS:owner" begins with aws:, which AWS reserves`},
		{"tags-key", func(nc *ec2nc.EC2NodeClass) { nc.Spec.Tags = map[string]string{strings.Repeat("ä", 129): ""} },
			ec2nc.ConditionTypeValidationSucceeded, `spec.tags: the key "` + strings.Repeat("ä", 129) + `" has 129 characters; EC2 allows 128`},
		{"tags-value", func(nc *ec2nc.EC2NodeClass) { nc.Spec.Tags = map[string]string{"note": strings.Repeat("x", 257)} },
			ec2nc.ConditionTypeValidationSucceeded, `spec.tags: the value of "note" has 257 characters; EC2 allows 256`},
		{"tags-empty", func(nc *ec2nc.EC2NodeClass) { nc.Spec.Tags = map[string]string{"": "x"} },
			ec2nc.ConditionTypeValidationSucceeded, "spec.tags: a key is empty"},
		{"names", func(nc *ec2nc.EC2NodeClass) { nc.Annotations = map[string]string{objects.AnnotationNodeName: "dns"} },
			ec2nc.ConditionTypeValidationSucceeded, `metadata.annotations[dovetail.sh/node-name]: "dns" is none of private-dns, short-dns, instance-id`},
		{"user-data", func(nc *ec2nc.EC2NodeClass) {
			nc.Spec.AMISelectorTerms[0].Alias = "bottlerocket@latest"
			nc.Spec.UserData = ptr.To("settings = 1")
		}, ec2nc.ConditionTypeValidationSucceeded, "spec.userData: reading TOML: settings is not a table"},
		{"user-data-size", func(nc *ec2nc.EC2NodeClass) { nc.Spec.UserData = ptr.To("#!/bin/sh\n" + strings.Repeat("#", 16<<10)) },
			ec2nc.ConditionTypeValidationSucceeded, "spec.userData: 16"},
		{"placement", func(nc *ec2nc.EC2NodeClass) {
			nc.Spec.PlacementGroupSelector = &ec2nc.PlacementGroupSelector{Name: ptr.To("pg")}
		}, ec2nc.ConditionTypePlacementGroupReady, "spec.placementGroupSelector: no placement group is called pg"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			nc := nodeClass(tt.class)
			nc.Name = tt.name
			w.SetNodeClass(nc)
			st := w.status(tt.name, isReady(metav1.ConditionFalse))
			c := condition(st, tt.condition)
			if c.Status != metav1.ConditionFalse || !strings.HasPrefix(c.Message, tt.message) {
				t.Errorf("%s is %s: %q, want False: %q", tt.condition, c.Status, c.Message, tt.message)
			}
			_, unready := w.InstanceTypes(tt.name)
			if want := "EC2NodeClass " + tt.name + ": " + tt.message; unready == nil || !strings.HasPrefix(unready.Error(), want) {
				t.Errorf("unready because %v, want %q", unready, want)
			}
			if _, err := w.Prepare(w.ctx, capacity.LaunchBatch{NodeClass: tt.name}); !errors.Is(err, capacity.ErrNodeClassNotReady) {
				t.Errorf("Prepare gives %v", err)
			}
		})
	}
	// A fix takes effect at once.
	repaired := nodeClass()
	repaired.Name, repaired.Generation = "no-subnet", 2
	w.SetNodeClass(repaired)
	w.status("no-subnet", isReady(metav1.ConditionTrue))
	renamed := nodeClass()
	renamed.Name, renamed.Annotations = "names", map[string]string{objects.AnnotationNodeName: "short-dns"} // no new generation
	w.SetNodeClass(renamed)
	w.status("names", isReady(metav1.ConditionTrue))
}

func manyTags(n int) map[string]string {
	out := map[string]string{}
	for i := range n {
		out[fmt.Sprintf("key-%d", i)] = "value"
	}
	return out
}

// A class with the maximum number of tags launches, and its instance also gets the tag of its claim. With one tag more the class is
// not Ready, because the launch would succeed but the claim's tag be refused.
func TestAsManyTagsAsEC2Takes(t *testing.T) {
	for managedBy, most := range map[string]int{"": 43, "red": 42} { // a name is a tag, too
		t.Run("a Dovetail called "+strconv.Quote(managedBy), func(t *testing.T) { testMostTags(t, managedBy, most) })
	}
}

func testMostTags(t *testing.T, managedBy string, most int) {
	w := newWorld(t, func(c *Config, _ *sim.Config) { c.ManagedBy = managedBy })
	with := func(n int, key string) map[string]string {
		m := manyTags(n)
		m[key] = "mine"
		return m
	}
	for _, tt := range []struct {
		name string
		tags map[string]string
		fits bool
	}{
		{"most", manyTags(most), true},
		{"one-more", manyTags(most + 1), false},
		{"its-own-name", with(most, "Name"), true},
		{"our-name", with(most, objects.TagManagedBy), true}, // it is overwritten, or removed if the Dovetail has no name
		{"long", map[string]string{strings.Repeat("k", 128): strings.Repeat("v", 256)}, true},
	} {
		w.SetNodeClass(nodeClass(func(nc *ec2nc.EC2NodeClass) { nc.Name, nc.Spec.Tags = tt.name, tt.tags }))
		if !tt.fits {
			w.status(tt.name, isReady(metav1.ConditionFalse))
			continue
		}
		w.types(tt.name)
		v := newBatch("t-"+tt.name, "on-demand", 1, offer("m5.large", "a", "on-demand"))
		v.NodeClass = tt.name
		res, err := w.Launch(w.ctx, w.prepared(v))
		if err != nil || len(res.Instances) != 1 {
			t.Fatalf("%s: launched %v, %v", tt.name, res.Instances, err)
		}
		if err := w.TagClaim(w.ctx, res.Instances[0].ID, "claim", "ip-10-0-0-1.us-west-2.compute.internal"); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestImagesAreChosen(t *testing.T) {
	day := func(d int) time.Time { return time.Date(2026, 10, d, 0, 0, 0, 0, time.UTC) }
	w := newWorld(t)
	tags := map[string]string{"golden": "yes"}
	w.sim.AddImage(sim.Image{Name: "old", Arch: "x86_64", Created: day(1), Tags: tags})
	newest := w.sim.AddImage(sim.Image{Name: "new", Arch: "x86_64", Created: day(2), Tags: tags})
	w.sim.AddImage(sim.Image{Name: "withdrawn", Arch: "x86_64", Created: day(3), Deprecated: time.Unix(1, 0), Tags: tags})
	arm := w.sim.AddImage(sim.Image{Name: "arm-withdrawn", Arch: "arm64", Created: day(1), Deprecated: time.Unix(1, 0), Tags: tags})
	w.SetNodeClass(nodeClass(func(nc *ec2nc.EC2NodeClass) {
		nc.Spec.AMIFamily, nc.Spec.AMISelectorTerms = ptr.To("Custom"), []ec2nc.AMISelectorTerm{{Tags: map[string]string{"golden": "*"}}}
	}))
	st := w.status("default", isReady(metav1.ConditionTrue))
	var got []ec2nc.AMI
	for _, a := range st.AMIs {
		got = append(got, ec2nc.AMI{ID: a.ID, Name: a.Name, Deprecated: a.Deprecated})
	}
	want := []ec2nc.AMI{{ID: newest, Name: "new"}, {ID: arm, Name: "arm-withdrawn", Deprecated: true}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("images (-want +got):\n%s", diff)
	}
	if m := condition(st, ec2nc.ConditionTypeAMIsReady).Message; m != "deprecated by their owner: "+arm {
		t.Errorf("AMIsReady says %q", m)
	}
}

func TestOneArchitectureOnly(t *testing.T) {
	w := newWorld(t)
	id := w.sim.AddImage(sim.Image{Name: "intel", Arch: "x86_64", Created: time.Unix(1, 0)})
	w.SetNodeClass(nodeClass(func(nc *ec2nc.EC2NodeClass) {
		nc.Spec.AMIFamily, nc.Spec.AMISelectorTerms = ptr.To("AL2023"), []ec2nc.AMISelectorTerm{{ID: id}}
		nc.Spec.SubnetSelectorTerms = []ec2nc.SubnetSelectorTerm{{Tags: map[string]string{"Name": "films/private-us-west-2b"}}}
	}))
	for _, typ := range w.types("default") {
		if typ.Labels["kubernetes.io/arch"] != "amd64" {
			t.Fatalf("%s has no image, but is offered", typ.Name)
		}
		for _, o := range typ.Offers {
			if o.Zone != "us-west-2b" {
				t.Fatalf("%s is offered in %s, where the class has no subnet", typ.Name, o.Zone)
			}
		}
	}
}

// A region that doesn't answer, or an account without credentials: the provider starts, reports what is missing, and stops at once.
func TestNothingAnswers(t *testing.T) {
	for _, tt := range []struct {
		name   string
		config awssdk.Config
		want   string
	}{
		{
			name: "no credentials",
			config: awssdk.Config{Region: "us-west-2", BaseEndpoint: ptr.To("http://127.0.0.1:1"), Credentials: awssdk.CredentialsProviderFunc(
				func(context.Context) (awssdk.Credentials, error) {
					return awssdk.Credentials{}, errors.New("no EC2 IMDS role found")
				})},
			want: "no AWS credentials found",
		},
		{
			name: "a refusal",
			config: awssdk.Config{Region: "us-west-2", BaseEndpoint: ptr.To("http://127.0.0.1:1"), Credentials: awssdk.CredentialsProviderFunc(
				func(context.Context) (awssdk.Credentials, error) {
					return awssdk.Credentials{}, &smithy.GenericAPIError{Code: "AccessDenied", Message: "not you"}
				})},
			want: "AccessDenied: not you",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			_, ctx := ktesting.NewTestContext(t)
			ctx, stop := context.WithCancel(ctx)
			p, err := New(Config{Region: "us-west-2", ClusterName: "films"}, sdk.NewClients(tt.config, clock.RealClock{}))
			if err != nil {
				t.Fatal(err)
			}
			told := make(chan ec2nc.EC2NodeClassStatus, 100)
			p.OnNodeClass(func(o status.Object) { told <- o.(*ec2nc.EC2NodeClass).Status })
			p.SetNodeClass(nodeClass())
			if _, unready := p.InstanceTypes("default"); unready == nil {
				t.Error("usable before anything is known")
			}
			done := make(chan struct{})
			go func() {
				p.Run(ctx)
				close(done)
			}()
			st := <-told
			if c := condition(st, ec2nc.ConditionTypeSubnetsReady); c.Status != metav1.ConditionUnknown || c.Message != tt.want {
				t.Errorf("SubnetsReady is %s: %q, want Unknown: %q", c.Status, c.Message, tt.want)
			}
			for deadline := time.After(60 * time.Second); strings.Count(p.Status().Error(), tt.want) < 4; {
				select {
				case <-deadline:
					t.Fatalf("status: %v", p.Status())
				case <-told:
				case <-time.After(10 * time.Millisecond):
				}
			}
			stop()
			<-done
		})
	}
}

func TestConfigIsChecked(t *testing.T) {
	for _, tt := range []struct {
		cfg  Config
		want string
	}{
		{Config{ClusterName: "c"}, "AWS provider: region is required"},
		{Config{Region: "r"}, "AWS provider: clusterName is required: it identifies the cluster's instances"},
		{Config{Region: "r", ClusterName: "c", ClusterCIDR: "10.0.0.0"}, "AWS provider: clusterCIDR: "},
		{Config{Region: "r", ClusterName: "c", ClusterDNS: "dns"}, "AWS provider: clusterDNS: "},
		{Config{Region: "r", ClusterName: "c", VMMemoryOverheadPercent: 7.5}, "AWS provider: vmMemoryOverheadPercent is a share below 1, not 7.5"},
	} {
		if _, err := New(tt.cfg, sdk.Clients{}); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("New gives %v, want %q", err, tt.want)
		}
	}
}

func TestConnectFollowsTheEnvironment(t *testing.T) {
	s, err := sim.New(sim.Config{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, kv := range s.Env() {
		k, v, _ := strings.Cut(kv, "=")
		t.Setenv(k, v)
	}
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	c, err := sdk.Connect(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := catalog.Fetch(t.Context(), c, "us-west-2", time.Now()); err != nil {
		t.Error(err)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	t.Setenv("AWS_REGION", "")
	t.Setenv("AWS_DEFAULT_REGION", "")
	if _, err := sdk.Connect(t.Context(), ""); err == nil {
		t.Error("no region, no error")
	}
}

// odd is EC2 with an answer that makes the program panic, a limited number of times.
type odd struct {
	sdk.EC2
	mistakes atomic.Int32
}

func (o *odd) DescribeSubnets(ctx context.Context, in *ec2.DescribeSubnetsInput, opts ...func(*ec2.Options)) (*ec2.DescribeSubnetsOutput, error) {
	if o.mistakes.Add(-1) >= 0 {
		panic("a mistake")
	}
	return o.EC2.DescribeSubnets(ctx, in, opts...)
}

// A panic while a class is resolved ends neither the scheduler nor the resolver of the class.
func TestClassSurvivesAPanic(t *testing.T) {
	_, ctx := ktesting.NewTestContext(t)
	ctx, stop := context.WithCancel(ctx)
	s, err := sim.New(sim.Config{Seed: 1, Speed: 1000, Cluster: "films", ClusterCA: []byte("a certificate"), Catalog: fewTypes})
	if err != nil {
		t.Fatal(err)
	}
	clients := sdk.NewClients(s.AWSConfig(), clock.RealClock{})
	answers := &odd{EC2: clients.EC2}
	answers.mistakes.Store(1)
	clients.EC2 = answers
	p, err := New(Config{Region: "us-west-2", ClusterName: "films"}, clients)
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan ec2nc.EC2NodeClassStatus, 100)
	p.OnNodeClass(func(o status.Object) { told <- o.(*ec2nc.EC2NodeClass).Status })
	p.SetNodeClass(nodeClass())
	done := make(chan struct{})
	go func() {
		p.Run(ctx)
		close(done)
	}()
	for deadline, ready := time.After(60*time.Second), false; !ready; {
		select {
		case <-deadline:
			t.Fatal("the class is not ready a minute after the mistake")
		case st := <-told:
			c := condition(st, ec2nc.ConditionTypeSubnetsReady)
			ready = c.Status == metav1.ConditionTrue
		}
	}
	if answers.mistakes.Load() >= 0 {
		t.Error("the mistake was not made")
	}
	stop()
	<-done
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
