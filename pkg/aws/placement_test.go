package aws

import (
	"errors"
	"testing"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	sim "github.com/dovetail-scheduler/dovetail/test/ec2"
)

// inGroup returns a class that launches into a placement group.
func inGroup(name, group string) *ec2nc.EC2NodeClass {
	return nodeClass(func(nc *ec2nc.EC2NodeClass) {
		nc.Name, nc.Spec.PlacementGroupSelector = name, &ec2nc.PlacementGroupSelector{ID: &group}
	})
}

func in(class string, v capacity.LaunchBatch) capacity.LaunchBatch {
	v.NodeClass = class
	return v
}

// availableIn returns, by zone, whether the on-demand offering of m5.large is available in a class.
func (w *world) availableIn(class string) map[string]bool {
	w.t.Helper()
	out := map[string]bool{}
	for _, o := range typeOf(w.types(class), "m5.large").Offers {
		if o.CapacityType == "on-demand" {
			out[o.Zone] = o.Available
		}
	}
	return out
}

func TestSpreadGroupIsFullPerZone(t *testing.T) {
	w := newWorld(t)
	w.SetNodeClass(nodeClass())
	w.SetNodeClass(inGroup("apart", w.sim.AddPlacementGroup("apart", "spread", 0)))
	w.types("default")
	w.types("apart")
	v := in("apart", newBatch("t", "on-demand", 9, offer("m5.large", "a", "on-demand")))
	res, err := w.Launch(w.ctx, w.prepared(v))
	if err != nil || len(res.Instances) != 7 || len(res.Exhausted) != 1 {
		t.Errorf("%d instances, exhausted %v, %v; want 7 and the offer", len(res.Instances), res.Exhausted, err)
	}
	if diff := cmp.Diff(map[string]bool{"us-west-2a": false, "us-west-2b": true, "us-west-2c": true}, w.availableIn("apart")); diff != "" {
		t.Errorf("available in the group (-want +got):\n%s", diff)
	}
	// Every type is unavailable in the zone, but only for this class.
	if o := typeOf(w.types("apart"), "c5.large").Offers[0]; o.Zone != "us-west-2a" || o.Available {
		t.Errorf("c5.large: %+v", o)
	}
	if !w.availableIn("default")["us-west-2a"] {
		t.Error("a class without the group suffers, too")
	}
}

func TestClusterGroupIsInOneZone(t *testing.T) {
	w := newWorld(t)
	w.SetNodeClass(inGroup("near", w.sim.AddPlacementGroup("near", "cluster", 0)))
	types := w.types("near")
	if typeOf(types, "t3.large") != nil {
		t.Error("a type is offered that can't be near others")
	}
	if l := typeOf(types, "m5.large").Labels[ec2nc.LabelPlacementGroupID]; l == "" {
		t.Error("the types don't say in which group they will be")
	}
	if _, err := w.Launch(w.ctx, w.prepared(in("near", newBatch("t1", "on-demand", 1, offer("m5.large", "b", "on-demand"))))); err != nil {
		t.Fatal(err)
	}
	// In which zone the group is becomes known by a launch.
	res, err := w.Launch(w.ctx, w.prepared(in("near", newBatch("t2", "on-demand", 2, offer("m5.large", "a", "on-demand"), offer("m5.large", "b", "on-demand")))))
	if err != nil || len(res.Instances) != 2 || res.Instances[0].Zone != "us-west-2b" {
		t.Errorf("%+v, %v", res, err)
	}
	if w.availableIn("near")["us-west-2a"] || !w.availableIn("near")["us-west-2b"] {
		t.Errorf("available: %v", w.availableIn("near"))
	}
	_, err = w.Launch(w.ctx, w.prepared(in("near", newBatch("t3", "on-demand", 1, offer("m5.large", "c", "on-demand")))))
	if !errors.Is(err, capacity.ErrInsufficientCapacity) {
		t.Errorf("where the group is not: %v", err)
	}
}

// Karpenter deletes instance profiles of the cluster that neither a class nor a claim's annotation names. Claims get it from the answer of the
// launch, or, if that was lost, from the instance.
func TestInstanceProfilesAreReported(t *testing.T) {
	w := newWorld(t)
	w.SetNodeClass(inGroup("parts", w.sim.AddPlacementGroup("parts", "partition", 2)))
	w.types("parts")
	res, err := w.Launch(w.ctx, w.prepared(in("parts", newBatch("t", "on-demand", 1, offer("m5.large", "a", "on-demand")))))
	if err != nil {
		t.Fatal(err)
	}
	shown, err := w.Describe(w.ctx, res.Instances[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{ec2nc.AnnotationInstanceProfile: w.sim.Instances()[0].Profile}
	if want[ec2nc.AnnotationInstanceProfile] == "" {
		t.Fatal("the instance has no profile")
	}
	for name, got := range map[string]map[string]string{"the answer": res.Instances[0].Annotations, "the description": shown.Annotations} {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestPartitionsAreReported(t *testing.T) {
	w := newWorld(t)
	w.SetNodeClass(inGroup("parts", w.sim.AddPlacementGroup("parts", "partition", 2)))
	w.types("parts")
	v := in("parts", newBatch("t", "on-demand", 2, offer("m5.large", "a", "on-demand")))
	res, err := w.Launch(w.ctx, w.prepared(v))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, i := range res.Instances {
		d, err := w.Describe(w.ctx, i.ID)
		if err != nil {
			t.Fatal(err)
		}
		got[d.Labels[ec2nc.LabelPlacementGroupPartition]] = true
	}
	if diff := cmp.Diff(map[string]bool{"1": true, "2": true}, got); diff != "" {
		t.Errorf("partitions (-want +got):\n%s", diff)
	}
	v = in("parts", newBatch("t2", "on-demand", 1, offer("m5.large", "a", "on-demand")))
	v.Labels[ec2nc.LabelPlacementGroupPartition] = "3"
	if _, err := w.Prepare(w.ctx, v); !errors.Is(err, capacity.ErrRefused) {
		t.Errorf("a partition there isn't: %v", err)
	}
}

func TestPlacementGroupThatGoes(t *testing.T) {
	w := newWorld(t, func(c *Config, _ *sim.Config) { c.PlacementsEvery = 20 * time.Millisecond })
	id := w.sim.AddPlacementGroup("near", "cluster", 0)
	w.SetNodeClass(inGroup("near", id))
	st := w.status("near", isReady("True"))
	if c := condition(st, ec2nc.ConditionTypePlacementGroupReady); c.Status != "True" {
		t.Errorf("PlacementGroupReady is %+v", c)
	}
	w.sim.DeletePlacementGroup(id)
	st = w.status("near", isReady("False"))
	if m := condition(st, ec2nc.ConditionTypePlacementGroupReady).Message; m != "spec.placementGroupSelector: no placement group has the id "+id {
		t.Errorf("PlacementGroupReady says %q", m)
	}
}

func TestMachinesOfOnesOwn(t *testing.T) {
	w := newWorld(t)
	templates := w.forms("CreateLaunchTemplate")
	w.SetNodeClass(nodeClass())
	shared := len(typeOf(w.types("default"), "m5.large").Offers)
	version := w.Version()
	w.OfferDedicated(map[string]bool{"default": true})
	if w.Version() == version {
		t.Error("the version did not grow")
	}
	offers := typeOf(w.types("default"), "m5.large").Offers
	if len(offers) != 2*shared {
		t.Fatalf("%d offers, want twice %d", len(offers), shared)
	}
	price := map[string]float64{}
	for _, o := range offers {
		tenancy := o.Labels[ec2nc.LabelInstanceTenancy]
		if (tenancy == "dedicated") != (o.Tenancy == "dedicated") || tenancy == "" || o.Labels[ec2nc.LabelTopologyZoneID] == "" {
			t.Errorf("offer %+v", o)
		}
		if o.CapacityType == "on-demand" {
			price[tenancy] = o.Price
		}
	}
	if price["dedicated"] <= price["default"] {
		t.Errorf("prices %v", price)
	}
	own := offer("m5.large", "a", "on-demand")
	own.Tenancy = "dedicated"
	res, err := w.Launch(w.ctx, w.prepared(newBatch("t", "on-demand", 1, own)))
	if err != nil {
		t.Fatal(err)
	}
	if got := templates()[0].Get("LaunchTemplateData.Placement.Tenancy"); got != "dedicated" || res.Instances[0].Tenancy != "dedicated" {
		t.Errorf("tenancy %q in the template, %q of the instance", got, res.Instances[0].Tenancy)
	}
	if d, err := w.Describe(w.ctx, res.Instances[0].ID); err != nil || d.Tenancy != "dedicated" {
		t.Errorf("described %+v, %v", d, err)
	}
	// A class that is added later gets dedicated offerings, too; a class that isn't listed any more doesn't.
	w.OfferDedicated(map[string]bool{"later": true})
	w.SetNodeClass(nodeClass(func(nc *ec2nc.EC2NodeClass) { nc.Name, nc.Spec.DetailedMonitoring = "later", ptr.To(true) }))
	if n := len(typeOf(w.types("later"), "m5.large").Offers); n != 2*shared {
		t.Errorf("%d offers of a later class", n)
	}
	if n := len(typeOf(w.types("default"), "m5.large").Offers); n != shared {
		t.Errorf("%d offers when nobody asks any more", n)
	}
	version = w.Version()
	w.OfferDedicated(map[string]bool{"later": true})
	if w.Version() != version {
		t.Error("told twice, changed twice")
	}
}
