package ec2

import (
	"math"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"
)

func TestALifeFromPendingToForgotten(t *testing.T) {
	a := newAccount(t)
	id := a.launched(a.fleetOf(1, a.template("lt"), "on-demand", abc[:1], "m5.large"))[0]
	want := func(state string) {
		t.Helper()
		if got := a.states()[id]; got != state {
			t.Errorf("after %v: %q, want %q", a.clock.Since(epoch), got, state)
		}
	}
	want("pending")
	a.step(3 * time.Second)
	want("running")
	for range 2 { // terminating is idempotent
		must(a.ec2.TerminateInstances(a.ctx, &awsec2.TerminateInstancesInput{InstanceIds: []string{id}}))
		want("shutting-down")
	}
	a.step(40 * time.Second)
	want("terminated")
	a.step(59 * time.Minute)
	want("terminated")
	a.step(time.Minute)
	want("")
	_, err := a.ec2.DescribeInstances(a.ctx, &awsec2.DescribeInstancesInput{InstanceIds: []string{id}})
	if got := code(err); got != "InvalidInstanceID.NotFound" {
		t.Errorf("describing a forgotten instance: %q", got)
	}
	var moves []string
	for _, c := range a.Changes() {
		moves = append(moves, c.From+" to "+c.To)
	}
	if diff := cmp.Diff([]string{" to pending", "pending to running", "running to shutting-down", "shutting-down to terminated"}, moves); diff != "" {
		t.Errorf("journal: -want +got:\n%s", diff)
	}
}

// EC2 accepts the launch and terminates the instance before it starts, for example because of a KMS key without permission or a volume
// quota. Only DescribeInstances returns the reason.
func TestInstancesThatEC2CannotStart(t *testing.T) {
	rec := &recorder{booted: map[string]Machine{}}
	a := newAccount(t, func(c *Config) { c.Machines = rec })
	const why = "Client.VolumeLimitExceeded: Volume limit exceeded"
	a.EndNew(2, why)
	ids := a.launched(a.fleetOf(3, a.template("lt"), "on-demand", abc[:1], "m5.large"))
	a.step(3 * time.Second)
	var got []string
	for _, id := range ids {
		d := a.described(id)
		if d.StateReason == nil {
			got = append(got, string(d.State.Name))
			continue
		}
		got = append(got, string(d.State.Name)+" "+*d.StateReason.Code+", "+*d.StateReason.Message)
	}
	slices.Sort(got)
	dead := "terminated Client.VolumeLimitExceeded, " + why
	if diff := cmp.Diff([]string{"running", dead, dead}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if len(a.Live()) != 1 {
		t.Errorf("%d live", len(a.Live()))
	}
	rec.mu.Lock()
	defer rec.mu.Unlock()
	if len(rec.booted) != 1 {
		t.Errorf("%d booted", len(rec.booted))
	}
}

func TestOneBadIDFailsTheWholeTerminate(t *testing.T) {
	a := newAccount(t)
	ids := a.launched(a.fleetOf(2, a.template("lt"), "on-demand", abc[:1], "m5.large"))
	for bad, want := range map[string]string{"i-0123456789abcdef0": "InvalidInstanceID.NotFound", "i-nonsense": "InvalidInstanceID.Malformed"} {
		_, err := a.ec2.TerminateInstances(a.ctx, &awsec2.TerminateInstancesInput{InstanceIds: append([]string{bad}, ids...)})
		if got := code(err); got != want {
			t.Errorf("with %s: %q, want %q", bad, got, want)
		}
	}
	if n := len(a.Live()); n != 2 {
		t.Errorf("%d live, want both", n)
	}
}

func TestANewInstanceMayNotBeSeenYet(t *testing.T) {
	a := newAccount(t, func(c *Config) { c.DescribeLag = 10 * time.Second })
	id := a.launched(a.fleetOf(1, a.template("lt"), "on-demand", abc[:1], "m5.large"))[0]
	calls := func() []string {
		_, describe := a.ec2.DescribeInstances(a.ctx, &awsec2.DescribeInstancesInput{InstanceIds: []string{id}})
		_, tag := a.ec2.CreateTags(a.ctx, &awsec2.CreateTagsInput{Resources: []string{id}, Tags: tags("a", "b")})
		_, end := a.ec2.TerminateInstances(a.ctx, &awsec2.TerminateInstancesInput{InstanceIds: []string{id}})
		return []string{code(describe), code(tag), code(end)}
	}
	const nf = "InvalidInstanceID.NotFound"
	a.step(4 * time.Second)
	if diff := cmp.Diff([]string{nf, nf, nf}, calls()); diff != "" {
		t.Errorf("before: -want +got:\n%s", diff)
	}
	if len(a.states()) != 0 {
		t.Error("the list shows it")
	}
	a.step(6 * time.Second)
	if diff := cmp.Diff([]string{"", "", ""}, calls()); diff != "" {
		t.Errorf("after: -want +got:\n%s", diff)
	}
}

func TestNamesAndAddressesAreTheSubnets(t *testing.T) {
	for name, hide := range map[string]bool{"at once": false, "when it runs": true} {
		t.Run(name, func(t *testing.T) {
			a := newAccount(t, func(c *Config) { c.HideNetworkWhilePending = hide })
			ids := a.launched(a.fleetOf(20, a.template("lt"), "spot", abc[1:2], "m5.large"))
			if hide {
				out := must(a.ec2.DescribeInstances(a.ctx, &awsec2.DescribeInstancesInput{InstanceIds: ids[:1]}))
				if i := out.Reservations[0].Instances[0]; i.PrivateIpAddress != nil || aws.ToString(i.PrivateDnsName) != "" {
					t.Errorf("pending instance shows %s, %s", *i.PrivateIpAddress, *i.PrivateDnsName)
				}
				a.step(3 * time.Second)
			}
			out := must(a.ec2.DescribeInstances(a.ctx, &awsec2.DescribeInstancesInput{Filters: filters("instance-state-name", "*", "availability-zone", "us-west-2b")}))
			seen := map[string]bool{}
			subnet := netip.MustParsePrefix("10.0.32.0/19")
			for _, r := range out.Reservations {
				for _, i := range r.Instances {
					ip := netip.MustParseAddr(*i.PrivateIpAddress)
					if !subnet.Contains(ip) || seen[ip.String()] {
						t.Errorf("address %s is foreign or used twice", ip)
					}
					seen[ip.String()] = true
					if want := "ip-" + strings.ReplaceAll(ip.String(), ".", "-") + ".us-west-2.compute.internal"; *i.PrivateDnsName != want {
						t.Errorf("name %s, want %s", *i.PrivateDnsName, want)
					}
					if i.InstanceLifecycle != types.InstanceLifecycleTypeSpot || *i.Placement.AvailabilityZone != "us-west-2b" || *i.IamInstanceProfile.Arn == "" {
						t.Errorf("instance %+v", i)
					}
				}
			}
			if len(seen) != 20 {
				t.Errorf("%d instances", len(seen))
			}
		})
	}
}

func TestAnAddressComesBackWhenItsInstanceIsGone(t *testing.T) {
	a := newAccount(t, func(c *Config) { c.ReuseAddresses = true })
	lt := a.template("lt")
	one := func() Instance {
		a.launched(a.fleetOf(1, lt, "on-demand", abc[:1], "m5.large"))
		all := a.Instances()
		return all[len(all)-1]
	}
	first := one()
	must(a.ec2.TerminateInstances(a.ctx, &awsec2.TerminateInstancesInput{InstanceIds: []string{first.ID}}))
	if second := one(); second.PrivateIP == first.PrivateIP {
		t.Error("the address was used again before its instance was gone")
	}
	a.step(40 * time.Second)
	if third := one(); third.PrivateDNSName != first.PrivateDNSName {
		t.Errorf("%s, want the name of the first again: %s", third.PrivateDNSName, first.PrivateDNSName)
	}
}

func TestInstancesAreFilteredByTag(t *testing.T) {
	a := newAccount(t)
	lt := a.template("lt")
	in := a.fleetOf(2, lt, "on-demand", abc[:1], "m5.large")
	in.TagSpecifications[0].Tags = tags("dovetail.sh/launch-batch", "w1", "kubernetes.io/cluster/blue", "owned")
	w1 := a.launched(in)
	in.TagSpecifications[0].Tags = tags("dovetail.sh/launch-batch", "w2", "kubernetes.io/cluster/blue", "owned")
	w2 := a.launched(in)
	must(a.ec2.CreateTags(a.ctx, &awsec2.CreateTagsInput{Resources: w2[:1], Tags: tags("karpenter.sh/nodeclaim", "c1")}))
	a.step(3 * time.Second)
	must(a.ec2.TerminateInstances(a.ctx, &awsec2.TerminateInstancesInput{InstanceIds: w1[:1]}))
	for name, tc := range map[string]struct {
		filter []types.Filter
		want   int
	}{
		"one wave":             {filters("tag:dovetail.sh/launch-batch", "w1"), 2},
		"what lives of it":     {append(filters("tag:dovetail.sh/launch-batch", "w1"), types.Filter{Name: aws.String("instance-state-name"), Values: []string{"pending", "running"}}), 1},
		"all of the cluster":   {filters("tag:kubernetes.io/cluster/blue", "owned"), 4},
		"those with a claim":   {filters("tag-key", "karpenter.sh/nodeclaim"), 1},
		"any wave by wildcard": {filters("tag:dovetail.sh/launch-batch", "w?"), 4},
		"nobody's":             {filters("tag:dovetail.sh/launch-batch", "w3"), 0},
	} {
		out := must(a.ec2.DescribeInstances(a.ctx, &awsec2.DescribeInstancesInput{Filters: tc.filter}))
		n := 0
		for _, r := range out.Reservations {
			n += len(r.Instances)
		}
		if n != tc.want {
			t.Errorf("%s: %d instances, want %d", name, n, tc.want)
		}
	}
	must(a.ec2.DeleteTags(a.ctx, &awsec2.DeleteTagsInput{Resources: w2[:1], Tags: []types.Tag{{Key: aws.String("karpenter.sh/nodeclaim")}}}))
	for _, in := range a.Instances() {
		if in.Tags["karpenter.sh/nodeclaim"] != "" {
			t.Error("the tag is still there")
		}
	}
}

func TestRunInstancesLaunchesIntoOnePool(t *testing.T) {
	a := newAccount(t)
	in := &awsec2.RunInstancesInput{
		LaunchTemplate: &types.LaunchTemplateSpecification{LaunchTemplateName: aws.String(a.template("lt"))}, InstanceType: "m5.large",
		MinCount: aws.Int32(1), MaxCount: aws.Int32(2), ClientToken: aws.String("t"),
		Placement: &types.Placement{AvailabilityZone: aws.String("us-west-2c")},
	}
	out := must(a.ec2.RunInstances(a.ctx, in))
	if len(out.Instances) != 2 || *out.Instances[0].Placement.AvailabilityZone != "us-west-2c" || out.Instances[0].State.Name != "pending" {
		t.Errorf("answer %+v", out.Instances)
	}
	must(a.ec2.RunInstances(a.ctx, in))
	if n := len(a.Live()); n != 2 {
		t.Errorf("%d live after the same request again", n)
	}
	a.SetCapacity("m5.large", "us-west-2c", "on-demand", 0)
	in.ClientToken = aws.String("t2")
	_, err := a.ec2.RunInstances(a.ctx, in)
	if got := code(err); got != "InsufficientInstanceCapacity" {
		t.Errorf("without capacity: %q", got)
	}
}

func TestTheBillCountsRunningTime(t *testing.T) {
	a := newAccount(t, func(c *Config) { c.Speed = 3 }) // delays of at most a second each
	a.SetPrice("m5.large", "us-west-2a", "on-demand", 0.10)
	ids := a.launched(a.fleetOf(2, a.template("lt"), "on-demand", abc[:1], "m5.large"))
	if b := a.Bill(); b.PerHour != 0 || b.Accrued != 0 {
		t.Errorf("pending instances are billed: %+v", b)
	}
	a.step(2 * time.Hour)
	must(a.ec2.TerminateInstances(a.ctx, &awsec2.TerminateInstancesInput{InstanceIds: ids[:1]}))
	a.step(time.Hour)
	b := a.Bill()
	if b.Running != 1 || b.PerHour != 0.10 || math.Abs(b.Hours-5) > 0.01 || math.Abs(b.Accrued-0.50) > 0.001 {
		t.Errorf("bill %+v, want 5 hours for $0.50", b)
	}
}

func TestDoublesFindsTwoInstancesOfOneClaim(t *testing.T) {
	a := newAccount(t)
	lt := a.template("lt")
	in := a.fleetOf(1, lt, "on-demand", abc[:1], "m5.large")
	in.TagSpecifications[0].Tags = tags("karpenter.sh/nodeclaim", "c1")
	first := a.launched(in)
	a.step(time.Minute)
	must(a.ec2.TerminateInstances(a.ctx, &awsec2.TerminateInstancesInput{InstanceIds: first}))
	a.step(time.Second)
	second := a.launched(in)
	if d := a.Doubles("karpenter.sh/nodeclaim"); len(d) != 0 {
		t.Errorf("one after the other is no double: %v", d)
	}
	third := a.launched(in)
	if diff := cmp.Diff(map[string][]string{"c1": append(second, third...)}, a.Doubles("karpenter.sh/nodeclaim"), cmp.Transformer("sort", sorted)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// recorder implements Machines and records the calls.
type recorder struct {
	mu     sync.Mutex
	booted map[string]Machine
	halted []string
}

func (r *recorder) Boot(m Machine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.booted[m.ID] = m
}

func (r *recorder) Halt(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.halted = append(r.halted, id)
}

func TestMachinesBootWhenInstancesRun(t *testing.T) {
	rec := &recorder{booted: map[string]Machine{}}
	a := newAccount(t, func(c *Config) { c.Machines = rec })
	ids := a.launched(a.fleetOf(2, a.template("lt"), "on-demand", abc[:1], "m5.large"))
	must(a.ec2.TerminateInstances(a.ctx, &awsec2.TerminateInstancesInput{InstanceIds: ids[:1]})) // while pending
	a.step(3 * time.Second)
	a.Live()
	must(a.ec2.TerminateInstances(a.ctx, &awsec2.TerminateInstancesInput{InstanceIds: ids[1:]}))
	rec.mu.Lock()
	defer rec.mu.Unlock()
	m, ok := rec.booted[ids[1]]
	if len(rec.booted) != 1 || !ok {
		t.Fatalf("booted %v, want %s only", rec.booted, ids[1])
	}
	if string(m.UserData) != "hello" || m.ProviderID() != "aws:///us-west-2a/"+ids[1] || m.Type.VCPUs != 2 || m.RootGiB != 20 {
		t.Errorf("machine %+v", m)
	}
	if diff := cmp.Diff(ids[1:], rec.halted); diff != "" {
		t.Errorf("halted: -want +got:\n%s", diff)
	}
}
