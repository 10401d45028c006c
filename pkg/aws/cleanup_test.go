package aws

import (
	"errors"
	"slices"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	sim "github.com/dovetail-scheduler/dovetail/test/ec2"
)

// later returns another process's provider for the same account, with its clock ahead. It isn't running.
func (w *world) later(d time.Duration) *Provider {
	w.t.Helper()
	p, err := New(Config{Region: "us-west-2", ClusterName: "films", Clock: clocktesting.NewFakeClock(time.Now().Add(d))}, w.clients)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

func TestIdleTemplatesAreRemoved(t *testing.T) {
	w := newWorld(t)
	w.SetNodeClass(nodeClass())
	w.types("default")
	v := w.prepared(newBatch("t", "on-demand", 1, offer("m5.large", "a", "on-demand")))
	deleted := func() int { return len(w.sim.Calls("DeleteLaunchTemplate")) }

	soon := w.later(30 * time.Minute)
	if err := soon.templates.RemoveUnused(w.ctx, soon.cfg.TidyEvery); err != nil || deleted() != 0 {
		t.Errorf("half an hour later %d templates are removed, %v", deleted(), err)
	}
	late := w.later(2 * time.Hour)
	name := w.names(v)[0]
	busy := *w.launcher
	busy.templates = late.templates
	if _, err := busy.Prepare(w.ctx, v); err != nil {
		t.Fatal(err)
	}
	if err := late.templates.RemoveUnused(w.ctx, late.cfg.TidyEvery); err != nil || deleted() != 0 {
		t.Errorf("%d templates are removed while in use, %v", deleted(), err)
	}
	late.templates.Forget(name)
	if err := late.templates.RemoveUnused(w.ctx, late.cfg.TidyEvery); err != nil || deleted() != 1 {
		t.Errorf("%d templates are removed, %v; want the one nobody used", deleted(), err)
	}
	// A launch batch with a recorded request that names it is stale.
	if _, err := w.Launch(w.ctx, v); !errors.Is(err, capacity.ErrRequestStale) {
		t.Errorf("launching from it: %v", err)
	}
}

func TestOrphanedProfilesAreRemoved(t *testing.T) {
	w := newWorld(t)
	gone := nodeClass(func(nc *ec2nc.EC2NodeClass) { nc.Name, nc.UID = "gone", "uid-gone" })
	used := nodeClass(func(nc *ec2nc.EC2NodeClass) { nc.Name, nc.UID = "used", "uid-used" })
	for _, nc := range []*ec2nc.EC2NodeClass{nodeClass(), gone, used} {
		w.SetNodeClass(nc)
		w.types(nc.Name)
	}
	v := newBatch("t", "on-demand", 1, offer("m5.large", "a", "on-demand"))
	v.NodeClass = "used"
	if _, err := w.Launch(w.ctx, w.prepared(v)); err != nil {
		t.Fatal(err)
	}
	profiles := func() []string {
		out, err := w.clients.IAM.ListInstanceProfiles(w.ctx, &iam.ListInstanceProfilesInput{PathPrefix: awssdk.String("/karpenter/us-west-2/films/")})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, p := range out.InstanceProfiles {
			names = append(names, *p.InstanceProfileName)
		}
		slices.Sort(names)
		return names
	}
	name := func(nc *ec2nc.EC2NodeClass) string { return ownProfiles.Name(nc) }
	all := []string{name(nodeClass()), name(gone), name(used)}
	slices.Sort(all)
	if got := profiles(); !slices.Equal(got, all) {
		t.Fatalf("profiles %v, want %v", got, all)
	}
	late := w.later(2 * time.Hour)
	if err := late.removeUnusedProfiles(w.ctx, late.withProfile); err != nil || len(profiles()) != 3 {
		t.Errorf("a process that knows no class left %v, %v", profiles(), err)
	}
	late.SetNodeClass(nodeClass())
	young := w.later(30 * time.Minute)
	young.SetNodeClass(nodeClass())
	if err := young.removeUnusedProfiles(w.ctx, young.withProfile); err != nil || len(profiles()) != 3 {
		t.Errorf("young profiles are gone, left are %v, %v", profiles(), err)
	}
	if err := late.removeUnusedProfiles(w.ctx, late.withProfile); err != nil {
		t.Error(err)
	}
	want := []string{name(nodeClass()), name(used)}
	slices.Sort(want)
	if got := profiles(); !slices.Equal(got, want) {
		t.Errorf("profiles %v, want the class's and the one an instance has: %v", got, want)
	}
}

func TestProfileThatEC2DoesNotKnowYet(t *testing.T) {
	w := newWorld(t)
	w.SetNodeClass(nodeClass())
	w.types("default")
	w.sim.Before("CreateFleet", sim.Times(1, sim.Fault{Code: "InvalidParameterValue",
		Message: "Value (films_1) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name"}))
	v := newBatch("t", "on-demand", 1, offer("m5.large", "a", "on-demand"))
	looked := len(w.sim.Calls("GetInstanceProfile"))
	if _, err := w.Launch(w.ctx, w.prepared(v)); !errors.Is(err, capacity.ErrRequestStale) {
		t.Errorf("Launch gives %v, want ErrRequestStale", err)
	}
	if len(w.sim.Calls("GetInstanceProfile")) == looked {
		t.Error("the profile was not looked up again")
	}
	v.Token = "t2"
	if _, err := w.Launch(w.ctx, w.prepared(v)); err != nil {
		t.Error(err)
	}
}
