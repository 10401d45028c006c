package aws

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	sim "github.com/dovetail-scheduler/dovetail/test/ec2"
)

// offered returns the zones in which a class has available offerings.
func (w *world) offered(class string) []string {
	w.t.Helper()
	var out []string
	for _, it := range w.types(class) {
		for _, o := range it.Offers {
			if o.Available && !slices.Contains(out, strings.TrimPrefix(o.Zone, "us-west-2")) {
				out = append(out, strings.TrimPrefix(o.Zone, "us-west-2"))
			}
		}
	}
	slices.Sort(out)
	return out
}

// offering waits until the class is offered in these zones only.
func (w *world) offering(want string) {
	w.t.Helper()
	deadline := time.After(time.Minute)
	for {
		got := strings.Join(w.offered("default"), "")
		if got == want {
			return
		}
		select {
		case <-w.changed:
		case <-deadline:
			w.t.Fatalf("offered in zones %s, want %s", got, want)
		}
	}
}

// asked lets the next poll of the shifts happen.
func (w *world) asked(clk *clocktesting.FakeClock) {
	w.t.Helper()
	before := len(w.sim.Calls("GetManagedResource"))
	if err := wait.PollUntilContextTimeout(w.ctx, time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		clk.Step(time.Second)
		return len(w.sim.Calls("GetManagedResource")) > before, nil
	}); err != nil {
		w.t.Fatal("the shifts are not asked for")
	}
}

// Nothing is launched in a zone that the cluster's traffic is shifted away from, until the shift ends or expires. The class says so.
func TestZonalShift(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Now())
	w := newWorld(t, func(c *Config, s *sim.Config) { c.Clock, c.ZonalShift = clk, true })
	w.SetNodeClass(nodeClass())
	w.offering("abc")
	subnets := w.status("default", func(st ec2nc.EC2NodeClassStatus) bool { return len(st.Subnets) == 3 }).Subnets
	id := func(zone string) string {
		return subnets[slices.IndexFunc(subnets, func(s ec2nc.Subnet) bool { return s.Zone == "us-west-2"+zone })].ZoneID
	}
	told := func(want string) {
		t.Helper()
		w.status("default", func(st ec2nc.EC2NodeClassStatus) bool {
			for _, c := range st.Conditions {
				if c.Type == ec2nc.ConditionTypeSubnetsReady {
					return (want == "") == (c.Message == "") && strings.Contains(c.Message, want)
				}
			}
			return false
		})
	}

	w.sim.SetShifts(sim.Shift{ZoneID: id("a"), Expires: clk.Now().Add(time.Hour)}, sim.Shift{ZoneID: id("b"), Expires: clk.Now().Add(time.Hour), NotApplied: true})
	w.asked(clk)
	w.offering("bc")
	told("us-west-2a (" + id("a") + ")")
	if _, err := w.Prepare(w.ctx, newBatch("t", "on-demand", 1, offer("m5.large", "a", "on-demand"))); !errors.Is(err, capacity.ErrInsufficientCapacity) {
		t.Errorf("a launch in the zone is prepared: %v", err)
	}
	w.prepared(newBatch("t", "on-demand", 1, offer("m5.large", "b", "on-demand")))

	// No answer changes nothing.
	restore := w.sim.Before("GetManagedResource", func(*sim.Request) *sim.Fault { return &sim.Fault{Code: "AccessDeniedException", Status: 403} })
	w.asked(clk)
	w.offering("bc")
	restore()

	// It ends, and AWS shifts away from another zone by itself.
	w.sim.SetShifts(sim.Shift{ZoneID: id("c")})
	w.asked(clk)
	w.offering("ab")
	w.sim.SetShifts()
	w.asked(clk)
	w.offering("abc")
	told("")

	// A shift that expires ends also while there is no answer.
	w.sim.SetShifts(sim.Shift{ZoneID: id("a"), Expires: time.Now().Add(24 * time.Hour)})
	w.asked(clk)
	w.offering("bc")
	defer w.sim.Before("GetManagedResource", func(*sim.Request) *sim.Fault { return &sim.Fault{Code: "AccessDeniedException", Status: 403} })()
	clk.Step(25 * time.Hour)
	w.offering("abc")
}

// Without the setting nothing is asked.
func TestZonalShiftIsOptIn(t *testing.T) {
	w := newWorld(t)
	w.sim.SetShifts(sim.Shift{ZoneID: "usw2-az1"})
	w.SetNodeClass(nodeClass())
	w.offering("abc")
	if calls := w.sim.Calls("GetManagedResource"); len(calls) > 0 {
		t.Error(calls)
	}
}
