package aws

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	sim "github.com/dovetail-scheduler/dovetail/test/ec2"
)

// dryRunCalls are what a check of a class calls.
var dryRunCalls = []string{"CreateLaunchTemplate", "CreateFleet", "RunInstances"}

// checkedWorld is a world whose class "default" is resolved and used by the pools, and whose time stands still: it is checked only by next.
func checkedWorld(t *testing.T, nc *ec2nc.EC2NodeClass, policy func(string) string, pools ...*capacity.Pool) (*world, *clocktesting.FakeClock) {
	t.Helper()
	clk := clocktesting.NewFakeClock(time.Now())
	w := newWorld(t, func(c *Config, s *sim.Config) {
		c.Clock, c.DisableDryRun = clk, true // the leader's loop
		s.Policy = []byte(policy(string(s.Policy)))
	})
	w.UsedBy(func(nodeClass string) (out []*capacity.Pool) {
		for _, p := range pools {
			if p.NodeClass == nodeClass {
				out = append(out, p)
			}
		}
		return out
	})
	w.SetNodeClass(nc)
	w.types("default")
	return w, clk
}

func poolOf(name string, requirements ...capacity.Requirement) *capacity.Pool {
	p := &capacity.Pool{Name: name, NodeClass: "default", Labels: map[string]string{"karpenter.sh/nodepool": name}, Requirements: capacity.Requirements{}}
	for _, r := range requirements {
		p.Requirements[r.Key] = r
	}
	return p
}

// without takes actions out of all statements of a policy.
func without(actions ...string) func(string) string {
	return func(policy string) string {
		for _, a := range actions {
			policy = strings.ReplaceAll(policy, `"`+a+`"`, `"ec2:DescribeRegions"`)
		}
		return policy
	}
}

func asShipped(policy string) string { return policy }

func validationOf(st ec2nc.EC2NodeClassStatus) metav1.Condition {
	for _, c := range st.Conditions {
		if c.Type == ec2nc.ConditionTypeValidationSucceeded {
			return metav1.Condition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message}
		}
	}
	return metav1.Condition{}
}

// A role that may not launch is noticed before the first launch: the class says what is missing, and nothing is launched from it. When the
// policy is mended, the class is usable a minute later.
func TestMissingPermissionsAreNoticedBeforeTheFirstLaunch(t *testing.T) {
	for _, tc := range []struct {
		missing, reason string
	}{
		{"ec2:CreateLaunchTemplate", "CreateLaunchTemplateAuthCheckFailed"},
		{"ec2:CreateFleet", "CreateFleetAuthCheckFailed"},
		{"ec2:RunInstances", "RunInstancesAuthCheckFailed"},
		{"iam:PassRole", "RunInstancesAuthCheckFailed"},
		{"ec2:CreateTags", "CreateLaunchTemplateAuthCheckFailed"},
	} {
		t.Run(tc.missing, func(t *testing.T) {
			shipped := string(shippedPolicy(t))
			nc := nodeClass()
			if tc.missing == "iam:PassRole" { // otherwise no profile could be made for the role
				profile := "DovetailNode"
				nc.Spec.Role, nc.Spec.InstanceProfile = "", &profile
			}
			w, clk := checkedWorld(t, nc, without(tc.missing), poolOf("p"))
			if !w.allowed.Next(w.ctx) {
				t.Fatal("the class isn't checked")
			}
			c := validationOf(w.status("default", func(st ec2nc.EC2NodeClassStatus) bool { return validationOf(st).Status == metav1.ConditionFalse }))
			if c.Reason != tc.reason || !strings.Contains(c.Message, tc.missing) {
				t.Errorf("the condition is %+v", c)
			}
			w.unready("default", tc.missing)
			if _, err := w.Prepare(w.ctx, newBatch("t", "on-demand", 1, offer("m5.large", "a", "on-demand"))); !errors.Is(err, capacity.ErrNodeClassNotReady) {
				t.Errorf("a launch is prepared: %v", err)
			}
			before := len(w.sim.DryRuns())
			if clk.Step(59 * time.Second); w.allowed.Next(w.ctx) || len(w.sim.DryRuns()) != before {
				t.Error("it is checked again within a minute")
			}

			if err := w.sim.SetPolicy([]byte(shipped)); err != nil {
				t.Fatal(err)
			}
			if clk.Step(time.Second); !w.allowed.Next(w.ctx) {
				t.Fatal("it isn't checked again after a minute")
			}
			w.types("default")
			if c := validationOf(w.status("default", func(st ec2nc.EC2NodeClassStatus) bool { return validationOf(st).Status == metav1.ConditionTrue })); c.Message != "" {
				t.Errorf("the condition is %+v", c)
			}
			b := w.prepared(newBatch("t", "on-demand", 1, offer("m5.large", "a", "on-demand")))
			if res, err := w.Launch(w.ctx, b); err != nil || len(res.Instances) != 1 {
				t.Errorf("%v, %v", res, err)
			}
			if calls := w.sim.Calls("CreateFleet"); len(calls) != 1 {
				t.Errorf("%d fleets", len(calls))
			}
		})
	}
}

// unready waits until the class can't be used.
func (w *world) unready(class, why string) {
	w.t.Helper()
	deadline := time.After(60 * time.Second)
	for {
		if _, err := w.InstanceTypes(class); err != nil && strings.Contains(err.Error(), why) {
			return
		}
		select {
		case <-w.changed:
		case <-deadline:
			w.t.Fatalf("class %s can be used", class)
		}
	}
}

// The shipped policy allows the dry runs, which launch nothing. They are made once in half an hour, and again when the class changes.
func TestDryRunsAreRare(t *testing.T) {
	w, clk := checkedWorld(t, nodeClass(), asShipped, poolOf("p"), poolOf("q"))
	count := func(want int) {
		t.Helper()
		for _, action := range dryRunCalls {
			calls := w.sim.DryRuns(action)
			if len(calls) != want {
				t.Errorf("%s was tried %d times, want %d: %v", action, len(calls), want, calls)
			}
			for _, c := range calls {
				if c.Code != "DryRunOperation" {
					t.Errorf("%s: %s", action, c.Code)
				}
			}
		}
	}
	for range 3 {
		w.allowed.Next(w.ctx)
	}
	count(1)
	clk.Step(29 * time.Minute)
	w.allowed.Next(w.ctx)
	count(1)
	clk.Step(time.Minute)
	w.allowed.Next(w.ctx)
	count(2)
	if len(w.sim.Instances()) > 0 || len(w.sim.Calls("CreateLaunchTemplate")) != 1 {
		t.Errorf("%d instances, and launch templates: %v", len(w.sim.Instances()), w.sim.Calls("CreateLaunchTemplate"))
	}

	w.SetNodeClass(nodeClass(func(nc *ec2nc.EC2NodeClass) { nc.Generation, nc.Spec.Tags = 2, map[string]string{"team": "a"} }))
	w.types("default")
	w.allowed.Next(w.ctx)
	count(3)
	if denied := w.sim.PolicyDenied(); len(denied) > 0 {
		t.Error(denied)
	}
}

// A class is usable until EC2 says no, and stays so when EC2 doesn't answer.
func TestNoAnswerIsNoDenial(t *testing.T) {
	w, clk := checkedWorld(t, nodeClass(), asShipped, poolOf("p"))
	restore := w.sim.BeforeDryRun("CreateFleet", func(*sim.Request) *sim.Fault { return &sim.Fault{Code: "InternalError", Status: 500} })
	w.allowed.Next(w.ctx)
	w.types("default")
	if n := len(w.sim.DryRuns("CreateFleet")); n != 1 {
		t.Errorf("asked %d times, want once: the check repeats nothing", n)
	}
	w.allowed.Next(w.ctx)
	if n := len(w.sim.DryRuns("CreateFleet")); n != 1 {
		t.Errorf("asked again at once: %d times", n)
	}
	restore()
	clk.Step(time.Second)
	if !w.allowed.Next(w.ctx) || len(w.sim.DryRuns("RunInstances")) != 1 {
		t.Error("not asked again")
	}
	w.types("default")
}

// A denial stays while EC2 doesn't answer, and ends when the class is changed.
func TestDenialIsKept(t *testing.T) {
	w, clk := checkedWorld(t, nodeClass(), without("ec2:RunInstances"), poolOf("p"))
	w.allowed.Next(w.ctx)
	w.unready("default", "ec2:RunInstances")
	restore := w.sim.BeforeDryRun("RunInstances", func(*sim.Request) *sim.Fault { return &sim.Fault{Code: "InternalError", Status: 500} })
	defer restore()
	clk.Step(time.Minute)
	w.allowed.Next(w.ctx)
	w.unready("default", "ec2:RunInstances")
	w.SetNodeClass(nodeClass(func(nc *ec2nc.EC2NodeClass) { nc.Generation, nc.Spec.Tags = 2, map[string]string{"team": "a"} }))
	w.types("default")
}

// What is asked about is what the pools would launch: a policy may allow no more than that.
func TestDryRunsAreOfWhatPoolsLaunch(t *testing.T) {
	only := func(policy string) string {
		return strings.Replace(policy, `"Statement": [`, `"Statement": [{"Sid": "OnlyC5", "Effect": "Deny", "Action": "ec2:RunInstances", "Resource": "arn:${Partition}:ec2:*:*:instance/*",
			"Condition": {"StringNotLike": {"ec2:InstanceType": "c5.*"}}},`, 1)
	}
	family, spot := capacity.ValueIn("karpenter.k8s.aws/instance-family", "c5"), capacity.ValueIn("karpenter.sh/capacity-type", "spot")
	t.Run("one of the pools may launch", func(t *testing.T) {
		w, _ := checkedWorld(t, nodeClass(), only, poolOf("open"), poolOf("c5", family))
		w.allowed.Next(w.ctx)
		w.types("default")
		if n := len(w.sim.DryRuns("CreateFleet")); n != 2 {
			t.Errorf("%d fleets are tried, want those of both pools", n)
		}
	})
	t.Run("no pool may launch", func(t *testing.T) {
		w, _ := checkedWorld(t, nodeClass(), only, poolOf("open"))
		w.allowed.Next(w.ctx)
		w.unready("default", "ec2:RunInstances")
	})
	t.Run("no pool uses the class", func(t *testing.T) {
		w, _ := checkedWorld(t, nodeClass(), without("ec2:RunInstances"))
		if w.allowed.Next(w.ctx) || len(w.sim.DryRuns()) > 0 {
			t.Error("it is checked")
		}
	})
	t.Run("spot", func(t *testing.T) {
		w, _ := checkedWorld(t, nodeClass(), asShipped, poolOf("spot", spot))
		w.allowed.Next(w.ctx)
		w.types("default")
		if calls := w.sim.DryRuns("RunInstances"); len(calls) != 1 || calls[0].Code != "DryRunOperation" {
			t.Errorf("%+v", calls)
		}
	})
}

// While another controller leads, nothing is asked.
func TestNoDryRunsWhileAnotherControllerLeads(t *testing.T) {
	var free atomic.Bool
	w := newWorld(t, func(c *Config, _ *sim.Config) {
		c.DisableDryRun = true
		c.Clock, c.Hold = clocktesting.NewFakeClock(time.Now()), func() error {
			if free.Load() {
				return nil
			}
			return errors.New("Karpenter leads")
		}
	})
	profile := "DovetailNode"
	w.UsedBy(func(string) []*capacity.Pool { return []*capacity.Pool{poolOf("p")} })
	w.SetNodeClass(nodeClass(func(nc *ec2nc.EC2NodeClass) { nc.Spec.Role, nc.Spec.InstanceProfile = "", &profile }))
	w.types("default")
	if w.allowed.Next(w.ctx) || len(w.sim.DryRuns()) > 0 {
		t.Errorf("%v", w.sim.DryRuns())
	}
	if free.Store(true); !w.allowed.Next(w.ctx) {
		t.Error("not asked afterwards")
	}
}

// The leader checks by itself, unless the setting forbids it.
func TestTheLeaderMakesDryRuns(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Now())
	w := newWorld(t, func(c *Config, s *sim.Config) {
		c.Clock, s.Policy = clk, []byte(without("ec2:RunInstances")(string(s.Policy)))
	})
	w.UsedBy(func(string) []*capacity.Pool { return []*capacity.Pool{poolOf("p")} })
	w.SetNodeClass(nodeClass())
	w.types("default") // not before it is usable
	if err := wait.PollUntilContextTimeout(w.ctx, time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		clk.Step(time.Second)
		return len(w.sim.DryRuns("RunInstances")) > 0, nil
	}); err != nil {
		t.Fatal(err)
	}
	w.unready("default", "ec2:RunInstances")
}
