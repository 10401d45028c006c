package aws

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	sim "github.com/dovetail-scheduler/dovetail/test/ec2"
)

// Tests of the texts about AWS's errors. Calls take their half minute in virtual time.

// direct connects to the simulator without a network. If instead returns an answer, that is used.
type direct struct {
	sim     http.Handler
	instead func(*http.Request) *http.Response
}

func (d *direct) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	if d.instead != nil {
		if resp := d.instead(r); resp != nil {
			resp.Request = r
			return resp, nil
		}
	}
	defer func() { // how a server cuts a connection
		if p := recover(); p == http.ErrAbortHandler {
			resp, err = nil, io.ErrUnexpectedEOF
		} else if p != nil {
			panic(p)
		}
	}()
	rec := httptest.NewRecorder()
	in := r.Clone(r.Context())
	if in.RequestURI, in.Host = r.URL.RequestURI(), r.URL.Host; in.Body == nil {
		in.Body = http.NoBody
	}
	d.sim.ServeHTTP(rec, in)
	return rec.Result(), nil
}

// quiet is a provider in a synctest bubble. The account answers normally until the test changes that.
type quiet struct {
	*Provider
	sim  *sim.Sim
	wire *direct
	mu   sync.Mutex // guards told
	told map[string]ec2nc.EC2NodeClassStatus
}

func inBubble(t *testing.T, instead func(*http.Request) *http.Response, do func(t *testing.T, q *quiet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, err := sim.NewUnserved(sim.Config{Seed: 1, Cluster: "films", ClusterCA: []byte("a certificate"), Catalog: fewTypes})
		if err != nil {
			t.Fatal(err)
		}
		q := &quiet{sim: s, wire: &direct{s.Handler(), instead}, told: map[string]ec2nc.EC2NodeClassStatus{}}
		cfg := s.AWSConfig()
		cfg.HTTPClient = &http.Client{Transport: q.wire}
		if q.Provider, err = New(Config{Region: "us-west-2", ClusterName: "films", KubernetesVersion: "1.36"}, sdk.NewClients(cfg, clock.RealClock{})); err != nil {
			t.Fatal(err)
		}
		q.OnNodeClass(func(o status.Object) {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.told[o.GetName()] = o.(*ec2nc.EC2NodeClass).Status
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			q.Run(ctx)
			close(done)
		}()
		do(t, q)
		stop()
		<-done
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// pass lets virtual time pass.
func pass(d time.Duration) { <-time.After(d) }

// fails makes all calls of the action fail.
func (q *quiet) fails(action string, f sim.Fault) {
	q.sim.Before(action, func(*sim.Request) *sim.Fault { return &f })
}

// launched returns the result of a launch of one instance.
func (q *quiet) launched(t *testing.T) (capacity.LaunchResult, error) {
	t.Helper()
	v := newBatch("t", "on-demand", 1, offer("m5.large", "a", "on-demand"))
	req, err := q.Prepare(t.Context(), v)
	if err != nil {
		return capacity.LaunchResult{}, err
	}
	v.Request = req
	return q.Launch(t.Context(), v)
}

func TestWordsOfCalls(t *testing.T) {
	throttled := sim.Fault{Code: "RequestLimitExceeded", Message: "Request limit exceeded."}
	internal := sim.Fault{Code: "InternalError", Message: "An internal error has occurred", Status: http.StatusInternalServerError}
	denied := sim.Fault{Code: "UnauthorizedOperation", Status: http.StatusForbidden,
		Message: "You are not authorized to perform this operation. Encoded authorization failure message: " + strings.Repeat("xY1", 400)}
	launch := func(t *testing.T, q *quiet) error { _, err := q.launched(t); return err }
	list := func(t *testing.T, q *quiet) error { _, err := q.List(t.Context()); return err }
	describe := func(t *testing.T, q *quiet) error {
		_, err := q.Describe(t.Context(), "i-0123456789abcdef0")
		return err
	}
	for _, tt := range []struct {
		name   string
		action string
		fault  sim.Fault
		call   func(*testing.T, *quiet) error
		want   string
		kind   error // nil: none of the launcher's
	}{
		{"a launch, throttled until its deadline", "CreateFleet", throttled, launch, "RequestLimitExceeded: Request limit exceeded.", capacity.ErrThrottled},
		{"a launch, 500 until its deadline", "CreateFleet", internal, launch, "InternalError: An internal error has occurred", nil},
		{"a launch that isn't allowed", "CreateFleet", denied, launch, "UnauthorizedOperation: You are not authorized to perform this operation.", capacity.ErrRefused},
		{"a launch whose connections break", "CreateFleet", sim.Fault{Drop: true}, launch, "the connection to AWS failed: unexpected EOF", nil},
		{"a launch without an answer", "CreateFleet", sim.Fault{Delay: time.Hour}, launch, "no answer within the deadline", nil},
		{"a launch template, throttled", "CreateLaunchTemplate", throttled, launch, "creating launch template karpenter.k8s.aws/*: RequestLimitExceeded: Request limit exceeded.", capacity.ErrThrottled},
		{"a list, 500 until its deadline", "DescribeInstances", internal, list, "describing instances: InternalError: An internal error has occurred", nil},
		{"a list that isn't answered", "DescribeInstances", sim.Fault{Delay: time.Hour}, list, "describing instances: DescribeInstances: no answer within 12s", nil},
		{"one instance, throttled", "DescribeInstances", throttled, describe, "describing instance i-0123456789abcdef0: RequestLimitExceeded: Request limit exceeded.", capacity.ErrThrottled},
		{"an end that isn't allowed", "TerminateInstances", denied, func(t *testing.T, q *quiet) error { return q.Terminate(t.Context(), "i-0123456789abcdef0") },
			"terminating instance i-0123456789abcdef0: UnauthorizedOperation: You are not authorized to perform this operation.", capacity.ErrRefused},
		{"tags that aren't allowed", "CreateTags", denied, func(t *testing.T, q *quiet) error { return q.TagClaim(t.Context(), "i-0123456789abcdef0", "c", "n") },
			"tagging instance i-0123456789abcdef0: UnauthorizedOperation: You are not authorized to perform this operation.", capacity.ErrRefused},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, q *quiet) {
				q.SetNodeClass(nodeClass())
				pass(15 * time.Second)
				q.fails(tt.action, tt.fault)
				began := time.Now()
				err := tt.call(t, q)
				if took := time.Since(began); took > sdk.CallDeadline+time.Second {
					t.Errorf("it took %s", took)
				}
				if err == nil {
					t.Fatal("no error")
				}
				got := err.Error()
				if before, after, any := strings.Cut(tt.want, "*"); any && strings.HasPrefix(got, before) && strings.HasSuffix(got, after) {
					got = tt.want
				}
				if got != tt.want {
					t.Errorf("said: %s\nwant: %s", got, tt.want)
				}
				for _, kind := range []error{capacity.ErrThrottled, capacity.ErrRefused, capacity.ErrInsufficientCapacity, capacity.ErrRequestStale} {
					if errors.Is(err, kind) != (kind == tt.kind) {
						t.Errorf("is it %q? %t", kind, errors.Is(err, kind))
					}
				}
			})
		})
	}
}

// The conditions of a class contain AWS's answer for each kind of resource.
func TestWordsOfClasses(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, q *quiet) {
		q.fails("DescribeSubnets", sim.Fault{Code: "RequestLimitExceeded", Message: "Request limit exceeded."})
		q.fails("GetInstanceProfile", sim.Fault{Drop: true})
		q.fails("DescribeSecurityGroups", sim.Fault{Code: "InternalError", Status: http.StatusInternalServerError, Message: "An internal error has occurred"})
		q.fails("GetParameters", sim.Fault{Code: "AccessDeniedException", Message: "User: x is not authorized to perform: ssm:GetParameters (Service: Ssm, Status Code: 400, Request ID: 1-2-3)"})
		q.SetNodeClass(nodeClass())
		pass(sdk.CallDeadline + 10*time.Second)
		q.mu.Lock()
		st := q.told["default"]
		q.mu.Unlock()
		for kind, want := range map[string]string{
			ec2nc.ConditionTypeSubnetsReady:         "RequestLimitExceeded: Request limit exceeded.",
			ec2nc.ConditionTypeSecurityGroupsReady:  "InternalError: An internal error has occurred",
			ec2nc.ConditionTypeInstanceProfileReady: "the connection to AWS failed: unexpected EOF",
			ec2nc.ConditionTypeAMIsReady:            "AccessDeniedException: User: x is not authorized to perform: ssm:GetParameters",
		} {
			if c := condition(st, kind); c.Status != metav1.ConditionUnknown || c.Reason != "NotAnswered" || c.Message != want {
				t.Errorf("%s is %s, %s: %q; want Unknown, NotAnswered: %q", kind, c.Status, c.Reason, c.Message, want)
			}
		}
	})
}

// For an answer that isn't in AWS's format, the text has at least the HTTP status.
func TestWordsOfAnAnswerInHTML(t *testing.T) {
	html := func(r *http.Request) *http.Response {
		if !strings.HasPrefix(r.Header.Get("X-Amz-Target"), "AWSPriceListService") {
			return nil
		}
		return &http.Response{StatusCode: http.StatusInternalServerError, Header: http.Header{"Content-Type": {"text/html"}},
			Body: io.NopCloser(strings.NewReader("<!doctype html><title>500 Internal Server Error</title>"))}
	}
	inBubble(t, html, func(t *testing.T, q *quiet) {
		pass(sdk.CallDeadline + 10*time.Second)
		const want = "on-demand prices: unknown: HTTP 500 Internal Server Error; instance types are ordered by prices estimated from their sizes"
		if err := q.Status(); err == nil || err.Error() != want {
			t.Errorf("status: %v\nwant:   %s", err, want)
		}
	})
}
