package integration

import (
	"flag"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/ec2"
)

var accountNodes = flag.Int("account.nodes", 100, "nodes of the burst in a throttled account")

// This file tests what happens in real accounts beside our launches: limits, delays, missing roles and empty subnets.

// warnings returns the reasons of the Warning events of an application's pods, with their number.
func (e *env) warnings(app string) map[string]int {
	e.Helper()
	var list corev1.EventList
	if err := e.api.List(e.ctx, &list); err != nil {
		e.Fatal(err)
	}
	out := map[string]int{}
	for _, v := range list.Items {
		if v.Type == corev1.EventTypeWarning && v.InvolvedObject.Kind == "Pod" && strings.HasPrefix(v.InvolvedObject.Name, app+"-") {
			out[v.Reason]++
		}
	}
	return out
}

// An account with EC2's documented limits, a neighbour who has used them up, and a burst: it takes its time, and no pod
// hears of it. Alone: a hundred nodes keep the machine busy. More nodes: go test ./test/integration -run ThrottledAccount -account.nodes=500 -patience=10m
func TestManyNodesInAThrottledAccount(t *testing.T) {
	n := *accountNodes
	e := start(t, func(s *setting) {
		s.sim.Throttle, s.lives = true, max(s.lives, 3**patience)
		// With hundreds of nodes, this process simulates all kubelets and runs the API server: on a busy host the lease would be lost.
		s.config = func(cfg cluster.Config) {
			cfg.Leases(2*time.Minute, 90*time.Second, 5*time.Second)
			cfg.SetProvisionArgs(map[string]any{"newImageNodes": 0}) // this test fills the account and doesn't try the image first
		}
	})
	limited := ec2.Fault{Code: "RequestLimitExceeded", Message: "Request limit exceeded."}
	for _, action := range []string{"CreateFleet", "CreateLaunchTemplate", "DescribeInstances", "CreateTags"} {
		e.sim.Before(action, ec2.Times(3, limited))
	}
	// Instances that hold one pod each.
	e.apply(nodeClass, strings.Replace(nodePool, "        - {key: karpenter.k8s.aws/instance-category",
		"        - {key: karpenter.k8s.aws/instance-cpu, operator: In, values: [\"2\"]}\n        - {key: karpenter.k8s.aws/instance-category", 1))
	begun := time.Now()
	e.pods("web", n, "1500m", "2Gi")
	created := time.Since(begun)
	e.bound("web", n)
	bound := time.Since(begun)
	e.settled(n)
	if got := e.launches(); got != n {
		t.Errorf("%d instances were launched for %d pods", got, n)
	}
	t.Logf("%d pods on as many nodes: created within %s, bound within %s, settled within %s", n, created.Round(time.Second),
		bound.Round(time.Second), time.Since(begun).Round(time.Second))
	for reason, n := range e.warnings("web") {
		if reason != "FailedScheduling" { // the scheduler's own event, from before there was a plan
			t.Errorf("%d warnings %s", n, reason)
		}
	}
	throttled := map[string]int{}
	for _, c := range e.sim.Calls() {
		if c.Code == "RequestLimitExceeded" {
			throttled[c.Action]++
		}
	}
	if throttled["CreateFleet"] != 3 || throttled["DescribeInstances"] != 3 {
		t.Errorf("what was throttled: %v, want the neighbour's part alone", throttled)
	}
}

// EC2 may list instances late, here up to 20 s after the launch.
func TestInstancesThatShowLate(t *testing.T) {
	t.Parallel()
	e := start(t, func(s *setting) { s.sim.DescribeLag, s.sim.Speed = 20*time.Second, 1 })
	e.apply(nodeClass, nodePool)
	e.pods("web", 30, "1500m", "2Gi", anti)
	e.bound("web", 30)
	e.settled(30)
	if n := e.launches(); n != 30 {
		t.Errorf("%d instances were launched for 30 pods: what did not show was taken for lost", n)
	}
	if w := e.warnings("web"); w["LaunchFailed"] > 0 {
		t.Errorf("warnings %v", w)
	}
}

// A launch succeeds, its answer is lost, and the call can't be repeated, because EC2 reports that the token belongs to another
// request. The instances appear seconds later, and nothing is launched a second time.
func TestLostLaunchThatShowsLate(t *testing.T) {
	t.Parallel()
	e := start(t, func(s *setting) { s.sim.DescribeLag, s.sim.Speed = 12*time.Second, 1 })
	var first atomic.Pointer[string]
	e.sim.After("CreateFleet", func(r *ec2.Request, _ *ec2.Answer) *ec2.Fault {
		if first.CompareAndSwap(nil, &r.Token) {
			return &ec2.Fault{Drop: true}
		}
		return nil
	})
	e.sim.Before("CreateFleet", func(r *ec2.Request) *ec2.Fault {
		if t := first.Load(); t != nil && *t == r.Token {
			return &ec2.Fault{Code: "IdempotentParameterMismatch"}
		}
		return nil
	})
	e.apply(nodeClass, nodePool)
	e.pods("web", 2, "1500m", "2Gi", anti)
	e.bound("web", 2)
	e.settled(2)
	if n := e.launches(); n != 2 {
		t.Errorf("%d instances were launched for 2 pods", n)
	}
}

// Spot instances need a service-linked role that somebody has to create once. Pods that require spot report that and how; others use
// on-demand capacity.
func TestSpotWithoutItsRole(t *testing.T) {
	t.Parallel()
	e := start(t, func(s *setting) { s.sim.NoSpotRole = true })
	spot := strings.NewReplacer("name: default}\nspec:\n  template", "name: spot}\nspec:\n  template", "[on-demand]", "[spot]").Replace(nodePool)
	either := strings.NewReplacer("name: default}\nspec:\n  template", "name: either}\nspec:\n  template", "[on-demand]", "[spot, on-demand]").Replace(nodePool)
	e.apply(nodeClass, spot)
	e.pods("web", 1, "1", "1Gi")
	note := e.eventOf("web-0", "LaunchFailed")
	for _, want := range []string{"AWSServiceRoleForEC2Spot", "create-service-linked-role --aws-service-name spot.amazonaws.com"} {
		if !strings.Contains(note, want) {
			t.Errorf("the event does not say %q: %s", want, note)
		}
	}
	if calls := len(e.sim.Calls("CreateFleet")); calls > 3 {
		t.Errorf("%d launches were tried", calls)
	}
	e.apply(either)
	e.bound("web", 1)
	if in := e.sim.Live(); len(in) != 1 || in[0].CapacityType != "on-demand" {
		t.Errorf("instances %+v", in)
	}
}

// EC2 doesn't know a class's new instance profile for some seconds. No pod needs help because of that.
func TestNewProfileIsNotKnownYet(t *testing.T) {
	t.Parallel()
	e := start(t, func(s *setting) { s.sim.ProfileLag, s.sim.Speed = 10*time.Second, 1 })
	e.apply(strings.Replace(nodeClass, "instanceProfile: DovetailNode", "role: DovetailNode", 1), nodePool)
	e.pods("web", 5, "1500m", "2Gi", anti)
	e.bound("web", 5)
	e.settled(5)
	if n := e.launches(); n != 5 {
		t.Errorf("%d instances were launched for 5 pods", n)
	}
}

// A subnet without free addresses affects only its zone; if no subnet has any, pods report why they wait.
func TestSubnetsWithoutAddresses(t *testing.T) {
	t.Parallel()
	e := start(t, nil)
	e.apply(nodeClass, nodePool)
	e.sim.SetFreeAddresses("us-west-2a", 1)
	e.sim.SetFreeAddresses("us-west-2b", 0)
	e.pods("web", 5, "1500m", "2Gi", anti)
	e.bound("web", 5)
	byZone := map[string]int{}
	for _, in := range e.sim.Live() {
		byZone[in.Zone]++
	}
	if byZone["us-west-2b"] > 0 || byZone["us-west-2a"] > 1 || len(e.sim.Live()) != 5 {
		t.Errorf("instances by zone: %v", byZone)
	}
	e.sim.SetFreeAddresses("us-west-2a", 0)
	e.sim.SetFreeAddresses("us-west-2c", 0)
	e.pods("late", 1, "1500m", "2Gi", anti)
	if note := e.eventOf("late-0", "LaunchFailed"); !strings.Contains(note, "InsufficientFreeAddressesInSubnet") {
		t.Errorf("the event does not say why: %s", note)
	}
}

// CreateFleet answers that contain errors beside some of the instances, and beside all of them.
func TestErrorsBesideInstances(t *testing.T) {
	t.Parallel()
	e := start(t, nil)
	e.apply(nodeClass, nodePool)
	e.sim.SetCapacity(ec2.Any, "us-west-2a", "on-demand", 2)
	e.sim.SetCapacity(ec2.Any, "us-west-2b", "on-demand", 0)
	e.pods("web", 12, "1500m", "2Gi", anti)
	e.bound("web", 12)
	e.settled(12)
	if n := e.launches(); n != 12 {
		t.Errorf("%d instances were launched for 12 pods", n)
	}
	if _, err := cluster.UntilNodes(e.wait(), e.api, 12, func(*corev1.Node) bool { return true }); err != nil {
		t.Error(err)
	}
}
