package aws

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	sim "github.com/dovetail-scheduler/dovetail/test/ec2"
)

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
	p, err := New(Config{Region: "us-west-2", ClusterName: "films"}, sdk.NewClients(cfg, clock.RealClock{}))
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
