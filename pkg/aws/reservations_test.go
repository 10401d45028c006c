package aws

import (
	"errors"
	"testing"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	sim "github.com/dovetail-scheduler/dovetail/test/ec2"
)

// reserved returns the reserved offering of a type in the class, or nil.
func (w *world) reserved(name string) *capacity.Offer {
	w.t.Helper()
	t := typeOf(w.types("default"), name)
	if t == nil {
		return nil
	}
	for i := range t.Offers {
		if t.Offers[i].CapacityType == "reserved" {
			return &t.Offers[i]
		}
	}
	return nil
}

func TestReservedCapacity(t *testing.T) {
	w := newWorld(t)
	templates, fleets := w.forms("CreateLaunchTemplate"), w.forms("CreateFleet")
	id := w.sim.Reserve(sim.Reservation{Type: "m5.large", Zone: "us-west-2a", Count: 2, Tags: map[string]string{"team": "a"}})
	w.sim.Reserve(sim.Reservation{Type: "m5.large", Zone: "us-west-2a", Count: 9, Tags: map[string]string{"team": "b"}})
	w.SetNodeClass(nodeClass(func(nc *ec2nc.EC2NodeClass) {
		nc.Spec.CapacityReservationSelectorTerms = []ec2nc.CapacityReservationSelectorTerm{{Tags: map[string]string{"team": "a"}}, {ID: "cr-nobody"}}
	}))
	o := w.reserved("m5.large")
	if o == nil {
		t.Fatal("no reserved offer")
	}
	if !o.Available || o.Remaining != 2 || o.ReservationID != id || o.Price <= 0 || o.Price > 1e-6 {
		t.Errorf("reserved offer %+v", o)
	}
	if diff := cmp.Diff(map[string]string{
		"topology.k8s.aws/zone-id": "usw2-az1", "karpenter.k8s.aws/instance-tenancy": "default", "karpenter.k8s.aws/capacity-reservation-id": id, "karpenter.k8s.aws/capacity-reservation-type": "default",
		"karpenter.k8s.aws/capacity-reservation-interruptible": "false",
	}, o.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	key := offer("m5.large", "a", "reserved")
	key.ReservationID = id
	res, err := w.Launch(w.ctx, w.prepared(newBatch("t1", "reserved", 3, key)))
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Instances) != 2 || len(res.Exhausted) != 1 || res.Instances[0].CapacityType != "reserved" || res.Instances[0].ReservationID != id {
		t.Errorf("launched %+v, exhausted %v; want 2 of 3 from %s", res.Instances, res.Exhausted, id)
	}
	if o := w.reserved("m5.large"); o.Available || o.Remaining != 0 {
		t.Errorf("used up, but offered: %+v", o)
	}
	if _, err := w.Launch(w.ctx, w.prepared(newBatch("t2", "reserved", 1, key))); !errors.Is(err, capacity.ErrInsufficientCapacity) {
		t.Errorf("launching from a reservation that is used up: %v", err)
	}
	f := templates()[0]
	if p, to := f.Get("LaunchTemplateData.CapacityReservationSpecification.CapacityReservationPreference"),
		f.Get("LaunchTemplateData.CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId"); p != "capacity-reservations-only" || to != id {
		t.Errorf("template prefers %q, targets %q", p, to)
	}
	if k := fleets()[0].Get("TargetCapacitySpecification.DefaultTargetCapacityType"); k != "on-demand" {
		t.Errorf("the fleet asks for %s", k)
	}
	st := w.status("default", isReady("True"))
	if len(st.CapacityReservations) != 1 || st.CapacityReservations[0].ID != id || st.CapacityReservations[0].State != "active" {
		t.Errorf("status %+v", st.CapacityReservations)
	}
}

// Capacity blocks and interruptible reservations are separate markets: fleet and template name them.
func TestReservationsOfOtherMarkets(t *testing.T) {
	for _, tt := range []struct {
		name, market, target string
		r                    sim.Reservation
		over                 bool
	}{
		{"capacity block", "capacity-block", "capacity-block", sim.Reservation{Kind: "capacity-block"}, true},
		{"interruptible", "interruptible-capacity-reservation", "reserved-capacity", sim.Reservation{Interruptible: true}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			templates, fleets := w.forms("CreateLaunchTemplate"), w.forms("CreateFleet")
			end := time.Now().Add(30 * 24 * time.Hour).Truncate(time.Second)
			tt.r.Type, tt.r.Zone, tt.r.Count, tt.r.End = "m5.large", "us-west-2a", 2, end
			id := w.sim.Reserve(tt.r)
			w.SetNodeClass(nodeClass(func(nc *ec2nc.EC2NodeClass) {
				nc.Spec.CapacityReservationSelectorTerms = []ec2nc.CapacityReservationSelectorTerm{{ID: id}}
			}))
			if o := w.reserved("m5.large"); o == nil || !o.Available || o.Remaining != 2 {
				t.Fatalf("offer %+v", o)
			}
			key := offer("m5.large", "a", "reserved")
			key.ReservationID = id
			res, err := w.Launch(w.ctx, w.prepared(newBatch("t1", "reserved", 2, key)))
			if err != nil || len(res.Instances) != 2 {
				t.Fatalf("launched %+v: %v", res, err)
			}
			if m := templates()[0].Get("LaunchTemplateData.InstanceMarketOptions.MarketType"); m != tt.market {
				t.Errorf("the template's market is %q", m)
			}
			if m := fleets()[0].Get("TargetCapacitySpecification.DefaultTargetCapacityType"); m != tt.target {
				t.Errorf("the fleet asks for %q", m)
			}
			i, err := w.Describe(w.ctx, res.Instances[0].ID)
			if err != nil || i.CapacityType != "reserved" || i.ReservationID != id {
				t.Errorf("shown as %+v, %v", i, err)
			}
			at, over := w.ReservationOver(id)
			if over != tt.over || over && !at.Equal(end.Add(-40*time.Minute)) {
				t.Errorf("over %v at %v, the reservation ends at %v", over, at, end)
			}
		})
	}
}

// Two reservations of the same type in the same zone: in a fleet, EC2 accepts only one per pool.
func TestOnePoolOncePerFleet(t *testing.T) {
	w := newWorld(t)
	var ids []string
	var keys []capacity.OfferKey
	for range 2 {
		id := w.sim.Reserve(sim.Reservation{Type: "m5.large", Zone: "us-west-2a", Count: 1})
		key := offer("m5.large", "a", "reserved")
		key.ReservationID = id
		ids, keys = append(ids, id), append(keys, key)
	}
	w.SetNodeClass(nodeClass(func(nc *ec2nc.EC2NodeClass) {
		for _, id := range ids {
			nc.Spec.CapacityReservationSelectorTerms = append(nc.Spec.CapacityReservationSelectorTerms, ec2nc.CapacityReservationSelectorTerm{ID: id})
		}
	}))
	w.types("default")
	in, err := unpack(w.prepared(newBatch("t", "reserved", 1, keys...)).Request)
	if err != nil {
		t.Fatal(err)
	}
	if len(in.LaunchTemplateConfigs) != 1 || len(in.LaunchTemplateConfigs[0].Overrides) != 1 {
		t.Errorf("the fleet's choices: %+v", in.LaunchTemplateConfigs)
	}
}

func TestNoReservationMatches(t *testing.T) {
	w := newWorld(t)
	w.SetNodeClass(nodeClass(func(nc *ec2nc.EC2NodeClass) {
		nc.Spec.CapacityReservationSelectorTerms = []ec2nc.CapacityReservationSelectorTerm{{ID: "cr-nobody"}}
	}))
	st := w.status("default", isReady("True"))
	if m := condition(st, ec2nc.ConditionTypeCapacityReservationsReady).Message; m != "spec.capacityReservationSelectorTerms: no active capacity reservation matches" {
		t.Errorf("CapacityReservationsReady says %q", m)
	}
	if o := w.reserved("m5.large"); o != nil {
		t.Errorf("offered %+v", o)
	}
}
