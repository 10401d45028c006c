package aws

import (
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/iam"
	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	clocktesting "k8s.io/utils/clock/testing"

	sim "github.com/dovetail-scheduler/dovetail/test/ec2"
)

// Some that speak AWS's language don't honour every filter. What was asked for is no proof of what is answered: whatever is
// destroyed for being ours must say so itself.

// careless is an account whose filters by path and by tag do nothing.
func careless(t *testing.T) *world {
	return newWorld(t, func(_ *Config, c *sim.Config) { c.IgnorePathPrefix, c.IgnoreTagFilters = true, true })
}

func (w *world) profiles() []string {
	w.t.Helper()
	out, err := w.iam.ListInstanceProfiles(w.ctx, &iam.ListInstanceProfilesInput{})
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
	name := profileName("films", "us-west-2", fresh)
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
	v := w.prepared(wave("t", "on-demand", 1, offer("m5.large", "a", "on-demand")))
	res, err := w.Launch(w.ctx, v)
	if err != nil || len(res.Instances) != 1 {
		t.Fatal(res, err)
	}
	if err := w.TagClaim(w.ctx, res.Instances[0].ID, "claim", ""); err != nil {
		t.Fatal(err)
	}
	all := w.profiles()

	other, err := New(Config{Region: "us-west-2", ClusterName: "other", Clock: clocktesting.NewFakeClock(time.Now().Add(2 * time.Hour))},
		Clients{EC2: w.ec2, SSM: w.ssm, IAM: w.iam, Pricing: w.catalogue.pricing})
	if err != nil {
		t.Fatal(err)
	}
	other.SetNodeClass(nodeClass(func(nc *ec2nc.EC2NodeClass) { nc.Name, nc.UID = "theirs", "uid-theirs" }))
	if err := other.tidyProfiles(w.ctx); err != nil || !slices.Equal(w.profiles(), all) {
		t.Errorf("profiles %v, want %v; %v", w.profiles(), all, err)
	}
	if err := other.tidyTemplates(w.ctx); err != nil || len(w.sim.Calls("DeleteLaunchTemplate")) > 0 {
		t.Errorf("a template of another cluster was removed, %v", err)
	}
	for _, c := range []struct {
		what  string
		p     *Provider
		token string
		claim string
		want  int
	}{{"its own", w.Provider, "t", "claim", 1}, {"another wave's, another claim's", w.Provider, "u", "another", 0}, {"another cluster's", other, "t", "claim", 0}} {
		wave, err := c.p.FindWave(w.ctx, c.token)
		if err != nil || len(wave) != c.want {
			t.Errorf("%s: FindWave gives %d instances, %v; want %d", c.what, len(wave), err, c.want)
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
