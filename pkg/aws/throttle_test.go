package aws

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	sim "github.com/dovetail-scheduler/dovetail/test/ec2"
)

func TestTurns(t *testing.T) {
	c := clocktesting.NewFakeClock(time.Unix(1000, 0))
	b := newThrottle(c)
	// delay returns how long a caller would have to wait now; it doesn't wait itself.
	delay := func(action string) time.Duration {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.wait(ctx, "EC2", action) }()
		for {
			select {
			case err := <-done:
				cancel()
				if err != nil {
					t.Fatal(err)
				}
				return 0
			default:
			}
			if c.HasWaiters() {
				break
			}
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		r := rates[action]
		d := b.free[action].Sub(c.Now()) - time.Duration(r.burst/r.perSecond*float64(time.Second))
		cancel()
		b.mu.Unlock()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("whoever gives up is told %v", err)
		}
		b.mu.Lock()
		return d
	}
	for i := range 40 {
		if d := delay("CreateFleet"); d != 0 {
			t.Fatalf("call %d of the burst waits %v", i, d)
		}
	}
	if d := delay("CreateFleet"); d != 250*time.Millisecond {
		t.Errorf("the next one waits %v, want a quarter of a second", d)
	}
	// That caller has given up; the next one doesn't wait for its token.
	if d := delay("CreateFleet"); d != 250*time.Millisecond {
		t.Errorf("after one who gave up, a caller waits %v", d)
	}
	if d := delay("CreateTags"); d != 0 {
		t.Errorf("another action waits %v", d)
	}
	c.Step(time.Second)
	for i := range 4 {
		if d := delay("CreateFleet"); d != 0 {
			t.Errorf("a second later call %d waits %v", i, d)
		}
	}
	if d := delay("CreateFleet"); d == 0 {
		t.Error("more than four calls a second")
	}
	ctx, cancel := context.WithDeadline(t.Context(), c.Now().Add(time.Millisecond))
	defer cancel()
	if err := b.wait(ctx, "EC2", "CreateFleet"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a turn after the deadline: %v", err)
	}
}

// The number of terminated instances is limited, too, however few calls they need.
func TestTurnsOfManyInstances(t *testing.T) {
	c := clocktesting.NewFakeClock(time.Unix(1000, 0))
	b := newThrottle(c)
	end := func(n int) chan error {
		done := make(chan error, 1)
		go func() {
			done <- b.turn(t.Context(), "EC2", "TerminateInstances", &awsec2.TerminateInstancesInput{InstanceIds: make([]string, n)})
		}()
		return done
	}
	for range 2 { // 800 at once
		if err := <-end(400); err != nil {
			t.Fatal(err)
		}
	}
	third := end(160)
	for !c.HasWaiters() {
		runtime.Gosched()
	}
	c.Step(9 * time.Second) // 144 of 160
	select {
	case err := <-third:
		t.Fatalf("let go too early: %v", err)
	default:
	}
	c.Step(time.Second)
	if err := <-third; err != nil {
		t.Error(err)
	}
}

// In an account with the documented limits, a burst of launches causes no throttling errors.
func TestManyLaunchesInAThrottledAccount(t *testing.T) {
	w := newWorld(t, func(_ *Config, s *sim.Config) { s.Throttle = true })
	w.SetNodeClass(nodeClass())
	w.types("default")
	var wg sync.WaitGroup
	for i := range 45 {
		wg.Go(func() {
			v := newBatch(fmt.Sprintf("t-%d", i), "on-demand", 12, offer("m5.large", "a", "on-demand"), offer("m5.large", "b", "on-demand"))
			req, err := w.Prepare(w.ctx, v)
			if err != nil {
				t.Error(err)
				return
			}
			v.Request = req
			res, err := w.Launch(w.ctx, v)
			if err != nil || len(res.Instances) != 12 {
				t.Errorf("%d instances, %v", len(res.Instances), err)
			}
			for _, in := range res.Instances {
				wg.Go(func() {
					if _, err := w.Describe(w.ctx, in.ID); err != nil {
						t.Error(err)
					}
				})
			}
		})
	}
	wg.Wait()
	if n := len(w.sim.Live()); n != 540 {
		t.Errorf("%d instances, want 540", n)
	}
	for _, c := range w.sim.Calls() {
		if c.Code == "RequestLimitExceeded" {
			t.Errorf("%s was throttled", c.Action)
		}
	}
}

// One throttled request must not fail all callers who share it, and other users who exhaust the account's limit only delay us.
func TestThrottledByOthers(t *testing.T) {
	w := newWorld(t)
	w.SetNodeClass(nodeClass())
	w.types("default")
	w.sim.Before("CreateFleet", sim.Times(3, sim.Fault{Code: "RequestLimitExceeded", Message: "Request limit exceeded."}))
	res, err := w.Launch(w.ctx, w.prepared(newBatch("t", "on-demand", 5, offer("m5.large", "a", "on-demand"))))
	if err != nil || len(res.Instances) != 5 {
		t.Errorf("%d instances, %v", len(res.Instances), err)
	}
}

func TestUnseenForAWhile(t *testing.T) {
	w := newWorld(t, func(_ *Config, s *sim.Config) { s.DescribeLag = 200 * time.Second }) // a fifth of a second here
	w.SetNodeClass(nodeClass())
	w.types("default")
	res, err := w.Launch(w.ctx, w.prepared(newBatch("t", "on-demand", 1, offer("m5.large", "a", "on-demand"))))
	if err != nil {
		t.Fatal(err)
	}
	var errs []error
	for {
		_, err := w.Describe(w.ctx, res.Instances[0].ID)
		if err == nil {
			break
		}
		if !errors.Is(err, capacity.ErrInstanceNotFound) {
			t.Fatal(err)
		}
		if errs = append(errs, err); len(errs) > 100 {
			t.Fatal("never seen")
		}
	}
}

// Connections that hang, and servers that fail.
func TestAttemptsThatFail(t *testing.T) {
	var mu sync.Mutex
	var served []string
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if err := r.ParseForm(); err != nil {
			t.Error(err)
		}
		served = append(served, r.Form.Get("Action"))
		if len(served) < 3 {
			rw.WriteHeader(http.StatusInternalServerError)
			return
		}
		rw.Header().Set("Content-Type", "text/xml")
		if _, err := fmt.Fprint(rw, `<DescribeInstancesResponse><reservationSet/></DescribeInstancesResponse>`); err != nil {
			t.Error(err)
		}
	}))
	defer srv.Close()
	cfg := awsConfigForTests()
	cfg.BaseEndpoint = &srv.URL
	p, err := New(Config{Region: "us-west-2", ClusterName: "films"}, NewClients(cfg, clock.RealClock{}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.List(t.Context()); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"DescribeInstances", "DescribeInstances", "DescribeInstances"}, served); diff != "" {
		t.Errorf("served (-want +got):\n%s", diff)
	}
}

func TestBatches(t *testing.T) {
	c := clocktesting.NewFakeClock(time.Unix(0, 0))
	var mu sync.Mutex
	var runs [][]string
	b := newBatcher(c, func(_ context.Context, keys []string) map[string]answer[string] {
		mu.Lock()
		defer mu.Unlock()
		sorted := slices.Sorted(slices.Values(keys))
		runs = append(runs, sorted)
		out := map[string]answer[string]{}
		for _, k := range keys {
			out[k] = answer[string]{value: strings.ToUpper(k)}
			if k == "bad" {
				out[k] = answer[string]{err: errors.New("no")}
			}
		}
		return out
	})
	type reply struct {
		value string
		err   error
	}
	ask := func(ctx context.Context, key string) chan reply {
		out := make(chan reply, 1)
		go func() {
			v, err := b.do(ctx, key)
			out <- reply{v, err}
		}()
		return out
	}
	joined := func(n int) {
		for {
			b.mu.Lock()
			ok := b.open != nil && b.open.waiting == n && len(b.open.joined) == 0
			b.mu.Unlock()
			if ok && c.HasWaiters() {
				return
			}
		}
	}
	ctx, giveUp := context.WithCancel(t.Context())
	first, same, bad, left := ask(t.Context(), "a"), ask(t.Context(), "a"), ask(t.Context(), "bad"), ask(ctx, "gone")
	joined(4)
	giveUp()
	if r := <-left; !errors.Is(r.err, context.Canceled) {
		t.Errorf("who gave up gets %v", r)
	}
	joined(3)
	for done := false; !done; {
		// The timer may be reset at this moment, for the last caller that joined: then one step is too early.
		c.Step(batchIdle)
		select {
		case r := <-first:
			if done = true; r != (reply{"A", nil}) {
				t.Errorf("a gets %v", r)
			}
		case <-time.After(time.Millisecond):
		}
	}
	if r := <-same; r != (reply{"A", nil}) {
		t.Errorf("the other a gets %v", r)
	}
	if r := <-bad; r.err == nil {
		t.Error("bad gets no error")
	}
	if diff := cmp.Diff([][]string{{"a", "bad", "gone"}}, runs); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
}

// If the clock is set back, calls don't wait until it has caught up.
func TestTurnsWhenTheClockIsSetBack(t *testing.T) {
	c := clocktesting.NewFakeClock(time.Unix(10_000, 0))
	b := newThrottle(c)
	if err := b.wait(t.Context(), "EC2", "DescribeInstances"); err != nil {
		t.Fatal(err)
	}
	c.SetTime(time.Unix(9_000, 0))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // by the real clock, in case the wait doesn't end
	defer cancel()
	if err := b.wait(ctx, "EC2", "DescribeInstances"); err != nil {
		t.Errorf("a call with all tokens there had to wait: %v", err)
	}
}
