package aws

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	sim "github.com/dovetail-scheduler/dovetail/test/ec2"
)

const (
	spotWarning = `{"source":"aws.ec2","detail-type":"EC2 Spot Instance Interruption Warning","time":"2026-11-21T22:00:00Z","detail":{"instance-id":"%s","instance-action":"terminate"}}`
	reservation = `{"source":"aws.ec2","detail-type":"EC2 Capacity Reservation Instance Interruption Warning","time":"2026-11-21T22:00:00Z","detail":{"instance-id":"%s","instance-action":"terminate"}}`
	stateChange = `{"source":"aws.ec2","detail-type":"EC2 Instance State-change Notification","time":"2026-11-21T22:00:00Z","detail":{"instance-id":"%s","state":"terminated"}}`
	maintenance = `{"source":"aws.health","detail-type":"AWS Health Event","time":"2026-11-21T22:00:00Z","detail":{"service":"EC2","eventTypeCategory":"scheduledChange","startTime":"Mon, 23 Nov 2026 10:00:00 GMT","affectedEntities":[{"entityValue":"%s"}]}}`
)

// run runs n instances of a cluster, as spot instances or on demand.
func (l *listener) run(n int, cluster string, spot bool) []string {
	l.t.Helper()
	images, err := l.user.EC2.DescribeImages(l.ctx, &awsec2.DescribeImagesInput{Filters: []ec2types.Filter{sdk.Filter("name", "amazon-eks-node-al2023-x86_64-standard-1.36-v20260915")}})
	if err != nil {
		l.t.Fatal(err)
	}
	in := &awsec2.RunInstancesInput{
		MinCount: awssdk.Int32(int32(n)), MaxCount: awssdk.Int32(int32(n)), ImageId: images.Images[0].ImageId, InstanceType: "m5.large",
		TagSpecifications: []ec2types.TagSpecification{{ResourceType: "instance", Tags: []ec2types.Tag{{Key: awssdk.String("kubernetes.io/cluster/" + cluster), Value: awssdk.String("owned")}}}},
	}
	if spot {
		in.InstanceMarketOptions = &ec2types.InstanceMarketOptionsRequest{MarketType: "spot"}
	}
	out, err := l.user.EC2.(*awsec2.Client).RunInstances(l.ctx, in)
	if err != nil {
		l.t.Fatal(err)
	}
	var ids []string
	for _, i := range out.Instances {
		ids = append(ids, *i.InstanceId)
	}
	return ids
}

// handled returns what was handled about instances, sorted: ID, kind, and whether it was unconfirmed.
func (l *listener) handled() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, x := range l.heard {
		out = append(out, fmt.Sprintf("%s %s %t", x.InstanceID, x.Kind, x.Unconfirmed))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// fast makes messages return after 20 ms, and instances run on all the same.
func fast(_ *Config, s *sim.Config) { s.Speed = 1000 }

// What somebody writes to the queue drains no node as long as EC2 can tell that it isn't true.
func TestForgedMessages(t *testing.T) {
	l := newListener(t, fast)
	var want []string
	ids := l.run(4, "films", false)
	for i, body := range []string{stateChange, spotWarning, reservation, maintenance} {
		l.send(fmt.Sprintf(body, ids[i]))
		want = append(want, fmt.Sprintf("%s %s false", ids[i], capacity.InterruptionRefuted))
	}
	slices.Sort(want)
	l.send(fmt.Sprintf(stateChange, l.run(1, "others", false)[0]))
	l.listens()
	l.until("all five messages are deleted", func() bool { return l.deleted() == 5 })
	if got := l.handled(); !slices.Equal(got, want) {
		t.Errorf("handled %v, want %v", got, want)
	}
	if n := len(l.sim.Calls("ReceiveMessage")); n < 4 {
		t.Errorf("EC2 was asked %d times only before its denial counted", n)
	}
}

// What EC2 confirms is handled at once, however much it is.
func TestTrueMessages(t *testing.T) {
	l := newListener(t, func(_ *Config, s *sim.Config) { s.StateEvents = true })
	spot, other := l.run(30, "films", true), l.run(2, "films", false)
	var want []string
	for _, id := range spot {
		if err := l.sim.Interrupt(id); err != nil {
			t.Fatal(err)
		}
		want = append(want, fmt.Sprintf("%s %s false", id, capacity.SpotInterrupted))
	}
	l.sim.Kill(other[0])
	if err := l.sim.Maintain(other[1], time.Now().Add(24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	want = append(want, fmt.Sprintf("%s %s false", other[0], capacity.MachineTerminating), fmt.Sprintf("%s %s false", other[1], capacity.MaintenanceScheduled))
	slices.Sort(want)
	l.listens()
	l.until("all are handled", func() bool { return len(l.handled()) == len(want) })
	if got := l.handled(); !slices.Equal(got, want) {
		t.Errorf("handled %v, want %v", got, want)
	}
}

// One message may name more instances than DescribeInstanceStatus takes in a call.
func TestMaintenanceOfManyInstances(t *testing.T) {
	l := newListener(t, fast)
	ids := l.run(120, "films", false)
	for _, id := range ids {
		if err := l.sim.Schedule(id, "instance-stop", "The host fails", time.Now().Add(24*time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	l.until("all run", func() bool {
		return !slices.ContainsFunc(l.sim.Live(), func(i sim.Instance) bool { return i.State != "running" })
	})
	l.send(fmt.Sprintf(maintenance, strings.Join(ids, `"},{"entityValue":"`)))
	l.listens()
	l.until("all are handled", func() bool { return len(l.handled()) == len(ids) })
	want := make([]string, 0, len(ids))
	for _, id := range ids {
		want = append(want, fmt.Sprintf("%s %s false", id, capacity.MaintenanceScheduled))
	}
	slices.Sort(want)
	if got := l.handled(); !slices.Equal(got, want) {
		t.Errorf("handled %v, want %v", got, want)
	}
}

// Of messages that EC2 can neither confirm nor deny, only so many are believed at once: ten, and then five each minute.
func TestUnconfirmedMessages(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Now())
	l := newListener(t, func(c *Config, s *sim.Config) { fast(c, s); c.Clock = clk })
	for _, id := range l.run(30, "films", true) {
		l.send(fmt.Sprintf(spotWarning, id))
	}
	l.listens()
	for _, want := range []int{10, 15, 20} {
		l.until(fmt.Sprintf("%d are handled", want), func() bool { return len(l.handled()) == want })
		seen := len(l.sim.Calls("ReceiveMessage"))
		l.until("the others have been received again", func() bool { return len(l.sim.Calls("ReceiveMessage")) > seen+6 })
		if got := l.handled(); len(got) != want {
			t.Fatalf("%d are handled, want %d", len(got), want)
		}
		clk.Step(time.Minute)
	}
	for _, s := range l.handled() {
		if s[len(s)-4:] != "true" {
			t.Errorf("handled as if it were confirmed: %s", s)
		}
	}
}

// While EC2 can't be asked, warnings of ends that are near are believed, within the bound; what has happened already can wait.
func TestMessagesWhileEC2IsAway(t *testing.T) {
	l := newListener(t, fast)
	id := l.run(2, "films", true)
	back := l.sim.Before("DescribeInstances", func(*sim.Request) *sim.Fault { return &sim.Fault{Code: "UnauthorizedOperation", Status: 403} })
	l.send(fmt.Sprintf(spotWarning, id[0]))
	l.send(fmt.Sprintf(stateChange, id[1]))
	l.listens()
	warned := fmt.Sprintf("%s %s true", id[0], capacity.SpotInterrupted)
	l.until("the warning is handled", func() bool { return slices.Equal(l.handled(), []string{warned}) })
	l.sim.Kill(id[1])
	back()
	l.until("the end is handled", func() bool {
		return slices.Contains(l.handled(), fmt.Sprintf("%s %s false", id[1], capacity.MachineTerminating))
	})
}
