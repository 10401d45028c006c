package aws

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"k8s.io/apimachinery/pkg/types"
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
	if late.tidy(w.ctx); len(profiles()) != 3 {
		t.Errorf("a process that has not read the classes yet left %v", profiles())
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
	// The last class is gone.
	last := w.later(2 * time.Hour)
	last.cfg.Synced = func() bool { return true }
	last.tidy(w.ctx)
	if got := profiles(); !slices.Equal(got, []string{name(used)}) {
		t.Errorf("profiles %v without any class, want the one an instance has: %s", got, name(used))
	}
}

// What can't be deleted keeps nothing else from being deleted.
func TestWhatCannotBeRemovedKeepsNothingElse(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"a", "b"} {
		w.SetNodeClass(nodeClass(func(nc *ec2nc.EC2NodeClass) { nc.Name, nc.UID = name, types.UID("uid-"+name) }))
		w.types(name)
		v := newBatch("t", "on-demand", 1, offer("m5.large", "a", "on-demand"))
		v.NodeClass = name
		w.prepared(v)
	}
	late := w.later(2 * time.Hour)
	removed := map[string]func() error{
		"DeleteLaunchTemplate":  func() error { return late.templates.RemoveUnused(w.ctx, late.cfg.TidyEvery) },
		"DeleteInstanceProfile": func() error { return late.removeUnusedProfiles(w.ctx, late.withProfile) },
	}
	for action, remove := range removed {
		w.sim.Before(action, sim.Times(1, sim.Fault{Code: "UnauthorizedOperation", Message: "not this one"}))
		if err := remove(); err == nil || !strings.Contains(err.Error(), "not this one") {
			t.Errorf("%s: the error is %v", action, err)
		}
		if n := len(w.sim.Calls(action)); n != 2 {
			t.Errorf("%d calls of %s, want one for each of the two", n, action)
		}
	}
}

// While Karpenter leads, no instance profile is created: Karpenter deletes what its classes don't name. When it has gone, the profile is created.
func TestProfilesWhileAnotherLeads(t *testing.T) {
	var leads atomic.Bool
	leads.Store(true)
	w := newWorld(t, func(c *Config, _ *sim.Config) {
		c.Hold = func() error {
			if leads.Load() {
				return errors.New("Karpenter holds its lease")
			}
			return nil
		}
	})
	w.SetNodeClass(nodeClass())
	st := w.status("default", func(st ec2nc.EC2NodeClassStatus) bool {
		return condition(st, ec2nc.ConditionTypeInstanceProfileReady).Message != "not looked up yet"
	})
	if got, want := condition(st, ec2nc.ConditionTypeInstanceProfileReady).Message, "instance profile "+ownProfiles.Name(nodeClass())+" is not created yet: Karpenter holds its lease"; got != want {
		t.Errorf("the profile: %q, want %q", got, want)
	}
	if calls := w.sim.Calls("CreateInstanceProfile", "AddRoleToInstanceProfile"); len(calls) > 0 {
		t.Errorf("calls while another leads: %v", calls)
	}
	leads.Store(false)
	w.HoldChanged()
	w.types("default")
	if calls := w.sim.Calls("CreateInstanceProfile", "AddRoleToInstanceProfile"); len(calls) != 2 {
		t.Errorf("calls afterwards: %v, want a profile with its role", calls)
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
