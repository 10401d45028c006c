package aws

import (
	"context"
	"slices"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/instanceprofile"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/ownership"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	sim "github.com/dovetail-scheduler/dovetail/test/ec2"
)

// Some services with AWS's API don't honour every filter. A filter in the request does not prove anything about the answer: resources
// that are deleted because they are ours must themselves show that they are.

// careless is an account whose filters by path and by tag do nothing.
func careless(t *testing.T) *world {
	return newWorld(t, func(_ *Config, c *sim.Config) { c.IgnorePathPrefix, c.IgnoreTagFilters = true, true })
}

// ownProfiles names the profiles of the tests' cluster.
var ownProfiles = instanceprofile.New(nil, nil, ownership.Owner{Cluster: "films"}, "us-west-2", nil)

func (w *world) profiles() []string {
	w.t.Helper()
	out, err := w.clients.IAM.ListInstanceProfiles(w.ctx, &iam.ListInstanceProfilesInput{})
	if err != nil {
		w.t.Fatal(err)
	}
	var names []string
	for _, p := range out.InstanceProfiles {
		if len(p.Roles) == 0 {
			w.t.Errorf("%s has lost its role", *p.InstanceProfileName)
		}
		names = append(names, *p.InstanceProfileName)
	}
	slices.Sort(names)
	return names
}

func TestAClassTakesNoOthersProfilesAlong(t *testing.T) {
	w := careless(t)
	fresh := nodeClass(func(nc *ec2nc.EC2NodeClass) { nc.Name, nc.UID = "fresh", "uid-fresh" })
	for _, nc := range []*ec2nc.EC2NodeClass{nodeClass(), fresh} {
		w.SetNodeClass(nc)
		w.types(nc.Name)
	}
	name := ownProfiles.Name(fresh)
	all := w.profiles()
	if !slices.Contains(all, name) || len(all) < 3 { // two classes', and the account's own
		t.Fatalf("profiles %v", all)
	}
	if err := w.ReleaseClass(w.ctx, fresh); err != nil {
		t.Fatal(err)
	}
	want := slices.DeleteFunc(all, func(s string) bool { return s == name })
	if got := w.profiles(); !slices.Equal(got, want) {
		t.Errorf("profiles %v, want %v", got, want)
	}
}

func TestOtherClustersThingsAreLeftAlone(t *testing.T) {
	w := careless(t)
	w.SetNodeClass(nodeClass())
	w.types("default")
	v := w.prepared(newBatch("t", "on-demand", 1, offer("m5.large", "a", "on-demand")))
	res, err := w.Launch(w.ctx, v)
	if err != nil || len(res.Instances) != 1 {
		t.Fatal(res, err)
	}
	if err := w.TagClaim(w.ctx, res.Instances[0].ID, "claim", ""); err != nil {
		t.Fatal(err)
	}
	all := w.profiles()

	other, err := New(Config{Region: "us-west-2", ClusterName: "other", Clock: clocktesting.NewFakeClock(time.Now().Add(2 * time.Hour))},
		w.clients)
	if err != nil {
		t.Fatal(err)
	}
	other.SetNodeClass(nodeClass(func(nc *ec2nc.EC2NodeClass) { nc.Name, nc.UID = "theirs", "uid-theirs" }))
	if err := other.removeUnusedProfiles(w.ctx, other.withProfile); err != nil || !slices.Equal(w.profiles(), all) {
		t.Errorf("profiles %v, want %v; %v", w.profiles(), all, err)
	}
	if err := other.templates.RemoveUnused(w.ctx, other.cfg.TidyEvery); err != nil || len(w.sim.Calls("DeleteLaunchTemplate")) > 0 {
		t.Errorf("a template of another cluster was removed, %v", err)
	}
	for _, c := range []struct {
		what  string
		p     *Provider
		token string
		claim string
		want  int
	}{{"its own", w.Provider, "t", "claim", 1}, {"another launch batch's, another claim's", w.Provider, "u", "another", 0}, {"another cluster's", other, "t", "claim", 0}} {
		batch, err := c.p.FindBatch(w.ctx, c.token)
		if err != nil || len(batch) != c.want {
			t.Errorf("%s: FindBatch gives %d instances, %v; want %d", c.what, len(batch), err, c.want)
		}
		claim, err := c.p.FindClaim(w.ctx, c.claim)
		if err != nil || len(claim) != c.want {
			t.Errorf("%s: FindClaim gives %d instances, %v; want %d", c.what, len(claim), err, c.want)
		}
	}
	if got, err := other.List(w.ctx); err != nil || len(got) > 0 {
		t.Errorf("another cluster's instances are listed: %v, %v", got, err)
	}
	if got, err := w.List(w.ctx); err != nil || len(got) != 1 {
		t.Errorf("%d of its own are listed, %v", len(got), err)
	}
}

// Of several Dovetails in a cluster each lists, and so collects, only the instances and the templates that it has launched and created itself,
// with a name or without one. A profile that is in use is in use, whoever launched the instance.
func TestWhatAnotherDovetailLaunchedIsLeftAlone(t *testing.T) {
	w := careless(t)
	named := func(name string, later time.Duration) *Provider {
		p, err := New(Config{Region: "us-west-2", ClusterName: "films", ManagedBy: name, Clock: clocktesting.NewFakeClock(time.Now().Add(later))}, w.clients)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	w.SetNodeClass(nodeClass())
	w.types("default")
	red := *w.launcher
	red.owner = ownership.Owner{Cluster: "films", ManagedBy: "red"}
	launched := map[string]string{}
	for name, l := range map[string]*launcher{"": w.launcher, "red": &red} {
		v := newBatch("token-"+name, "on-demand", 1, offer("m5.large", "a", "on-demand"))
		var err error
		if v.Request, err = l.Prepare(w.ctx, v); err != nil {
			t.Fatal(err)
		}
		res, err := l.Launch(w.ctx, v)
		if err != nil || len(res.Instances) != 1 {
			t.Fatal(res, err)
		}
		launched[name] = res.Instances[0].ID
	}
	for _, name := range []string{"", "red", "blue"} {
		p := named(name, 2*time.Hour)
		got, err := p.List(w.ctx)
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		if id, ok := launched[name]; ok {
			want = []string{id}
		}
		if ids := idsOf(got); !slices.Equal(ids, want) {
			t.Errorf("%q lists %v, want %v", name, ids, want)
		}
		for other := range launched {
			found, err := p.FindBatch(w.ctx, "token-"+other)
			if err != nil || (len(found) == 1) != (other == name) {
				t.Errorf("%q finds %d instances launched by %q, %v", name, len(found), other, err)
			}
		}
	}
	before := len(w.sim.Calls("DeleteLaunchTemplate"))
	for i, name := range []string{"blue", "red", ""} {
		p := named(name, 2*time.Hour)
		if err := p.templates.RemoveUnused(w.ctx, p.cfg.TidyEvery); err != nil {
			t.Fatal(err)
		}
		if n := len(w.sim.Calls("DeleteLaunchTemplate")) - before; n != i {
			t.Errorf("%d templates are removed when %q has looked for its own, want %d", n, name, i)
		}
	}
}

func idsOf(of []capacity.Instance) (ids []string) {
	for i := range of {
		ids = append(ids, of[i].ID)
	}
	return ids
}

// operated is an account whose instances are all managed by EKS Auto Mode.
type operated struct{ sdk.EC2 }

func (o operated) DescribeInstances(ctx context.Context, in *ec2.DescribeInstancesInput, f ...func(*ec2.Options)) (*ec2.DescribeInstancesOutput, error) {
	out, err := o.EC2.DescribeInstances(ctx, in, f...)
	if err == nil {
		for _, r := range out.Reservations {
			for i := range r.Instances {
				r.Instances[i].Operator = &ec2types.OperatorResponse{Managed: awssdk.Bool(true), Principal: awssdk.String("eks.amazonaws.com")}
			}
		}
	}
	return out, err
}

// The instances of EKS Auto Mode run in the same account and for the same cluster, whatever tags their NodeClass gives them.
func TestInstancesOfEKSAutoModeAreLeftAlone(t *testing.T) {
	w := newWorld(t)
	w.SetNodeClass(nodeClass())
	w.types("default")
	res, err := w.Launch(w.ctx, w.prepared(newBatch("t", "on-demand", 1, offer("m5.large", "a", "on-demand"))))
	if err != nil || len(res.Instances) != 1 {
		t.Fatal(res, err)
	}
	if err := w.TagClaim(w.ctx, res.Instances[0].ID, "claim", ""); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what string
		ec2  sdk.EC2
		want int
	}{{"the account's own", w.clients.EC2, 1}, {"Auto Mode's", operated{w.clients.EC2}, 0}} {
		p, err := New(w.cfg, sdk.Clients{EC2: c.ec2, SSM: w.clients.SSM, IAM: w.clients.IAM, Pricing: w.clients.Pricing})
		if err != nil {
			t.Fatal(err)
		}
		for call, find := range map[string]func() ([]capacity.Instance, error){
			"List":      func() ([]capacity.Instance, error) { return p.List(w.ctx) },
			"FindWave":  func() ([]capacity.Instance, error) { return p.FindBatch(w.ctx, "t") },
			"FindClaim": func() ([]capacity.Instance, error) { return p.FindClaim(w.ctx, "claim") },
		} {
			if got, err := find(); err != nil || len(got) != c.want {
				t.Errorf("%s: %s gives %d instances, %v; want %d", c.what, call, len(got), err, c.want)
			}
		}
	}
}
