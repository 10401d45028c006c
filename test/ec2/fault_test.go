package ec2

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/google/go-cmp/cmp"
)

func TestAFaultBeforeTheCallHasNoEffect(t *testing.T) {
	for name, tc := range map[string]struct {
		fault Fault
		want  string
	}{
		"an error":        {Fault{Code: "RequestLimitExceeded"}, "RequestLimitExceeded"},
		"a missing right": {Fault{Code: "UnauthorizedOperation", Status: 403}, "UnauthorizedOperation"},
		"a lost request":  {Fault{Drop: true}, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAccount(t)
			in := a.fleetOf(1, a.template("lt"), "on-demand", abc[:1], "m5.large")
			remove := a.Before("CreateFleet", Times(1, tc.fault))
			defer remove()
			_, err := a.ec2.CreateFleet(a.ctx, in)
			if got := code(err); !strings.Contains(got, tc.want) {
				t.Errorf("error %q, want %q", got, tc.want)
			}
			if n := len(a.Instances()); n != 0 {
				t.Errorf("%d instances", n)
			}
			if ids := a.launched(in); len(ids) != 1 {
				t.Errorf("the next call launched %v", ids)
			}
		})
	}
}

func TestAnAnswerCanBeLost(t *testing.T) {
	a := newAccount(t)
	in := a.fleetOf(50, a.template("lt"), "on-demand", abc[:1], "m5.large")
	in.ClientToken = aws.String("wave")
	killed := 0
	remove := a.After("CreateFleet", func(_ *Request, answer *Answer) *Fault {
		if len(answer.Results) != 50 {
			t.Errorf("the hook sees %d instances", len(answer.Results))
		}
		return &Fault{Call: func() { killed++ }, Drop: true}
	})
	if _, err := a.ec2.CreateFleet(a.ctx, in); err == nil {
		t.Error("an answer came")
	}
	remove()
	if n := len(a.Live()); n != 50 || killed != 1 {
		t.Errorf("%d live, hook called %d times", n, killed)
	}
	if ids := a.launched(in); len(ids) != 50 || len(a.Instances()) != 50 {
		t.Errorf("the same token again: %d ids, %d instances", len(ids), len(a.Instances()))
	}
	var got []string
	for _, c := range a.Calls("CreateFleet") {
		got = append(got, map[bool]string{true: "lost", false: "answered"}[c.Lost]+map[bool]string{true: " again"}[c.Repeated])
	}
	if diff := cmp.Diff([]string{"lost", "answered again"}, got); diff != "" {
		t.Errorf("journal: -want +got:\n%s", diff)
	}
}

func TestADelayWaitsOnTheSimulatorsClock(t *testing.T) {
	a := newAccount(t)
	a.Before("DescribeInstances", Times(1, Fault{Delay: 5 * time.Second}))
	done := make(chan error)
	go func() {
		_, err := a.ec2.DescribeInstances(a.ctx, &awsec2.DescribeInstancesInput{})
		done <- err
	}()
	for !a.clock.HasWaiters() {
		select {
		case err := <-done:
			t.Fatalf("answered at once: %v", err)
		default:
			runtime.Gosched()
		}
	}
	a.step(5 * time.Second)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// The same request, refused for the same reason, gets another request ID each time.
func TestRequestIDsAreNeverTheSame(t *testing.T) {
	a := newAccount(t)
	a.Before("DescribeInstances", Times(2, Fault{Code: "UnauthorizedOperation", Status: 403}))
	var got []string
	for range 2 {
		_, err := a.ec2.DescribeInstances(a.ctx, &awsec2.DescribeInstancesInput{})
		var answer *awshttp.ResponseError
		if !errors.As(err, &answer) || len(answer.RequestID) != 36 {
			t.Fatalf("no answer with a request id: %v", err)
		}
		got = append(got, answer.RequestID)
	}
	if got[0] == got[1] {
		t.Errorf("the id %s twice", got[0])
	}
}

func TestRequestBuckets(t *testing.T) {
	a := newAccount(t, func(c *Config) { c.Throttle = true })
	spend := func(do func() error) (n int, last error) {
		for n < 1000 {
			if last = do(); last != nil {
				return n, last
			}
			n++
		}
		return n, nil
	}
	unfiltered := func() error {
		_, err := a.ec2.DescribeInstances(a.ctx, &awsec2.DescribeInstancesInput{})
		return err
	}
	filtered := func() error {
		_, err := a.ec2.DescribeInstances(a.ctx, &awsec2.DescribeInstancesInput{Filters: filters("instance-type", "m5.large")})
		return err
	}
	tagged := func() error {
		_, err := a.ec2.CreateTags(a.ctx, &awsec2.CreateTagsInput{Resources: []string{"i-0123456789abcdef0"}, Tags: tags("a", "b")})
		if code(err) == "InvalidInstanceID.NotFound" {
			return nil
		}
		return err
	}
	for name, tc := range map[string]struct {
		do         func() error
		size, rate int
	}{"unfiltered": {unfiltered, 50, 10}, "filtered": {filtered, 100, 20}, "CreateTags": {tagged, 100, 10}} {
		n, err := spend(tc.do)
		if n != tc.size || code(err) != "RequestLimitExceeded" {
			t.Errorf("%s: %d calls, then %q; want %d", name, n, code(err), tc.size)
		}
		if err != nil && !strings.Contains(err.Error(), "StatusCode: 503") {
			t.Errorf("%s: %v", name, err)
		}
		a.step(2 * time.Second)
		if n, _ := spend(tc.do); n != 2*tc.rate {
			t.Errorf("%s: %d calls after 2 s, want %d", name, n, 2*tc.rate)
		}
	}
}
