package aws

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	sim "github.com/dovetail-scheduler/dovetail/test/ec2"
)

// listener is a provider that only runs the queue's loop, and the interruptions that were delivered.
type listener struct {
	*Provider
	clients sdk.Clients
	user    sdk.Clients // of an administrator
	t       *testing.T
	ctx     context.Context
	sim     *sim.Sim

	mu    sync.Mutex
	heard []capacity.Interruption
	// fail is called for each interruption; its error is the handler's.
	fail func(capacity.Interruption) error
}

func newListener(t *testing.T, change ...func(*Config, *sim.Config)) *listener {
	t.Helper()
	simCfg := sim.Config{Seed: 1, Cluster: "films", Queue: "interruptions", Catalog: fewTypes, Policy: shippedPolicy(t)}
	cfg := Config{Region: "us-west-2", ClusterName: "films", InterruptionQueue: "interruptions"}
	for _, f := range change {
		f(&cfg, &simCfg)
	}
	s, err := sim.New(simCfg)
	if err != nil {
		t.Fatal(err)
	}
	conf, client := s.AWSConfig(), &http1{}
	conf.HTTPClient = client.make()
	clients := sdk.NewClients(conf, clock.RealClock{})
	p, err := New(cfg, clients)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	_, ctx := ktesting.NewTestContext(t)
	return &listener{Provider: p, clients: clients, user: sdk.NewClients(asUser(s, client), clock.RealClock{}), t: t, ctx: ctx, sim: s, fail: func(capacity.Interruption) error { return nil }}
}

// listens runs the loop until the test ends.
func (l *listener) listens() {
	l.OnInterruption(func(_ context.Context, all []capacity.Interruption) []error {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.heard = append(l.heard, all...)
		errs := make([]error, len(all))
		for i, x := range all {
			errs[i] = l.fail(x)
		}
		return errs
	})
	ctx, stop := context.WithCancel(l.ctx)
	var wg sync.WaitGroup
	wg.Go(func() { l.Listen(ctx) })
	l.t.Cleanup(func() { stop(); wg.Wait() })
}

func (l *listener) times(id string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, x := range l.heard {
		if x.InstanceID == id {
			n++
		}
	}
	return n
}

func (l *listener) send(body string) {
	l.t.Helper()
	if _, err := l.user.SQS.(*sqs.Client).SendMessage(l.ctx, &sqs.SendMessageInput{QueueUrl: awssdk.String(l.sim.QueueURL()), MessageBody: &body}); err != nil {
		l.t.Fatal(err)
	}
}

// until waits for something that happens by itself.
func (l *listener) until(what string, ok func() bool) {
	l.t.Helper()
	if err := wait.PollUntilContextTimeout(l.ctx, 5*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) { return ok(), nil }); err != nil {
		l.t.Fatalf("waited in vain: %s; calls %v", what, l.sim.Calls("ReceiveMessage", "DeleteMessageBatch"))
	}
}

// deleted returns how many messages were deleted.
func (l *listener) deleted() int {
	n := 0
	for _, c := range l.sim.Calls("DeleteMessageBatch") {
		n += len(c.Results)
	}
	return n
}

const rebalance = `{"source":"aws.ec2","detail-type":"EC2 Instance Rebalance Recommendation","detail":{"instance-id":"%s"}}`

// Messages are read in batches and deleted together, whatever they are about.
func TestQueueIsReadAndEmptied(t *testing.T) {
	l := newListener(t)
	for i := range 10 {
		l.send(fmt.Sprintf(rebalance, fmt.Sprintf("i-%d", i)))
	}
	l.send("no event at all")
	l.send(`{"source":"aws.ec2","detail-type":"EC2 Moon Landing"}`)
	l.listens()
	l.until("everything is deleted", func() bool { return l.deleted() == 12 })
	for i := range 10 {
		if n := l.times(fmt.Sprintf("i-%d", i)); n != 1 {
			t.Errorf("instance %d was told of %d times", i, n)
		}
	}
	if n := len(l.sim.Calls("DeleteMessageBatch")); n != 2 {
		t.Errorf("12 messages were deleted by %d calls", n)
	}
	// The request for the next message waits at the queue: 20 s, ten messages.
	l.send(fmt.Sprintf(rebalance, "i-late"))
	l.until("the late one", func() bool { return l.deleted() == 13 })
	if got := l.sim.Calls("ReceiveMessage")[0].Params; got != `{"MaxNumberOfMessages":10,"MessageSystemAttributeNames":["ApproximateReceiveCount","SentTimestamp"],"QueueUrl":"`+l.sim.QueueURL()+`","VisibilityTimeout":20,"WaitTimeSeconds":20}` {
		t.Errorf("asked with %s", got)
	}
}

// A message that could not be handled stays on the queue and is delivered again, and delays no other.
func TestMessagesComeAgain(t *testing.T) {
	l := newListener(t, func(_ *Config, s *sim.Config) { s.Speed = 50 })
	first := true
	l.fail = func(x capacity.Interruption) error {
		if x.InstanceID == "i-bad" && first {
			first = false
			return errors.New("the API server is away")
		}
		return nil
	}
	l.send(fmt.Sprintf(rebalance, "i-bad"))
	l.send(fmt.Sprintf(rebalance, "i-good"))
	l.listens()
	l.until("both are deleted", func() bool { return l.deleted() == 2 })
	if bad, good := l.times("i-bad"), l.times("i-good"); bad != 2 || good != 1 {
		t.Errorf("the one that failed was told %d times, the other %d times", bad, good)
	}
}

// A queue that doesn't exist is looked up until it does, and an error of SQS is retried.
func TestQueueThatIsAway(t *testing.T) {
	l := newListener(t)
	l.sim.Before("GetQueueUrl", sim.Times(1, sim.Fault{Code: "com.amazonaws.sqs#QueueDoesNotExist", Message: "The specified queue does not exist."}))
	l.sim.Before("ReceiveMessage", sim.Times(1, sim.Fault{Code: "AccessDenied", Message: "no"}))
	l.send(fmt.Sprintf(rebalance, "i-1"))
	l.listens()
	l.until("the message is deleted", func() bool { return l.deleted() == 1 })
	if n := len(l.sim.Calls("GetQueueUrl")); n != 3 {
		t.Errorf("the queue was looked up %d times: once in vain, once before and once after the failure", n)
	}
}

// As long as another controller owns the cluster, the messages are its own.
func TestQueueOfAnother(t *testing.T) {
	var mu sync.Mutex
	why := errors.New("Karpenter holds its lease")
	asked := 0
	l := newListener(t, func(c *Config, _ *sim.Config) {
		c.Hold = func() error {
			mu.Lock()
			defer mu.Unlock()
			asked++
			return why
		}
	})
	l.send(fmt.Sprintf(rebalance, "i-1"))
	l.listens()
	l.until("it was asked twice", func() bool { mu.Lock(); defer mu.Unlock(); return asked > 1 })
	if calls := l.sim.Calls("ReceiveMessage"); len(calls) > 0 {
		t.Errorf("messages of another were read: %v", calls)
	}
	mu.Lock()
	why = nil
	mu.Unlock()
	l.until("it has gone", func() bool { return l.deleted() == 1 })
}
