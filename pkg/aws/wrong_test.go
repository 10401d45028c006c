package aws

import (
	"testing"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	sim "github.com/dovetail-scheduler/dovetail/test/ec2"
)

func TestOffersThatWentWrong(t *testing.T) {
	c := clocktesting.NewFakeClock(time.Unix(1000, 0))
	p, err := New(Config{Region: "us-west-2", ClusterName: "films", Clock: c}, sdk.NewClients(awsConfigForTests(), clock.RealClock{}))
	if err != nil {
		t.Fatal(err)
	}
	gone := func(o capacity.OfferKey) bool {
		p.expire()
		return p.State().Has(o.CapacityType, o.InstanceType, o.Zone, "")
	}
	silent, taken := offer("m5.large", "a", "on-demand"), offer("m5.large", "a", "spot")
	avoided := func(class string) bool {
		p.expire()
		return p.State().Avoided(class, "on-demand", "m5.large", silent.Zone)
	}
	p.NotJoined("broken", silent)
	p.Interrupted(taken)
	for _, at := range []struct {
		step          time.Duration
		silent, taken bool
	}{{0, true, true}, {3 * time.Minute, true, false}, {12 * time.Minute, false, false}} {
		c.Step(at.step)
		if avoided("broken") != at.silent || gone(taken) != at.taken {
			t.Errorf("%v later: not joined is avoided %v, interrupted is out %v", at.step, avoided("broken"), gone(taken))
		}
		if gone(silent) || avoided("default") {
			t.Errorf("%v later: out for all %v, avoided by another class %v", at.step, gone(silent), avoided("default"))
		}
	}
	if gone(offer("m5.large", "b", "on-demand")) {
		t.Error("another zone suffers")
	}
}

// An offering of which an instance has not joined is unavailable to the class of that instance only.
func TestOffersThatDidNotJoin(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"default", "broken"} {
		w.SetNodeClass(nodeClass(func(nc *ec2nc.EC2NodeClass) { nc.Name, nc.UID = name, types.UID("uid-"+name) }))
		w.types(name)
	}
	silent := offer("m5.large", "a", "on-demand")
	w.NotJoined("broken", silent)
	for _, name := range []string{"default", "broken"} {
		for _, o := range typeOf(w.types(name), "m5.large").Offers {
			want := name == "broken" && o.CapacityType == silent.CapacityType && o.Zone == silent.Zone
			if o.Available == want {
				t.Errorf("class %s: %+v, want not joined %v", name, o, want)
			}
		}
	}
}

// Whichever call sees an instance that EC2 has reclaimed marks its pool as exhausted, once.
func TestInterruptedInstancesAreSeen(t *testing.T) {
	w := newWorld(t, func(c *Config, s *sim.Config) { c.ExhaustedFor, s.SpotNotice = time.Hour, time.Second })
	w.SetNodeClass(nodeClass())
	w.types("default")
	spot, other := offer("m5.large", "a", "spot"), offer("m5.large", "b", "spot")
	res, err := w.Launch(w.ctx, w.prepared(newBatch("t", "spot", 1, spot)))
	if err != nil {
		t.Fatal(err)
	}
	id := res.Instances[0].ID
	if err := w.sim.Interrupt(id); err != nil {
		t.Fatal(err)
	}
	look := func() capacity.Instance {
		i, err := w.Describe(w.ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		return i
	}
	for n := 0; look().State != capacity.InstanceTerminated; n++ {
		if n > 1000 {
			t.Fatal("never ended")
		}
	}
	if got := w.available(spot, other); got[0] || !got[1] {
		t.Errorf("available after the interruption: %v, in another zone: %v", got[0], got[1])
	}
	version := w.Version()
	look()
	if w.Version() != version {
		t.Error("the same interruption counted twice")
	}
}
