package firstday

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Name is the name of the namespace, the NodePool and the Deployments that a rehearsal makes.
const Name = "dovetail-first-day"

// Rehearsal is what the steps need.
type Rehearsal struct {
	Kube client.Client
	// EC2 is only read from.
	EC2 *ec2.Client
	// NodeClass is the EC2NodeClass from which nodes are launched, Scheduler the name of Dovetail's profile.
	NodeClass, Scheduler string
	// Lease is the Lease that the leader holds, namespace and name. KillLeader ends it without a warning.
	Lease      client.ObjectKey
	KillLeader func(ctx context.Context) error
	// Image is run by all pods. It has to run on nodes of the class without any argument.
	Image string
	// Patience is how long each step may take.
	Patience time.Duration
	// Out is where the steps are told.
	Out io.Writer

	report Report
}

// Report is what has been found, to be sent to Dovetail's developers.
type Report struct {
	Server string `json:"server"` // version of the API server
	Steps  []Step `json:"steps"`
	Nodes  []Node `json:"nodes"`
}

// Step is one step with its result.
type Step struct {
	Title    string  `json:"title"`
	Expected string  `json:"expected"`
	Seconds  float64 `json:"seconds"`
	Found    string  `json:"found"`
	Differs  bool    `json:"differs"`
}

// step is a step to do. It returns what was found, and an error if that differs from what is expected.
type step struct {
	title, expected string
	do              func(ctx context.Context) (found string, err error)
	// vital: without it the next ones make no sense.
	vital bool
}

// Run does all steps, and removes what they have made, also after a failure. The error names the steps whose result differs.
func (r *Rehearsal) Run(ctx context.Context) (report *Report, err error) {
	defer func() {
		// What was made is removed also after ctrl-C.
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 2*r.Patience)
		defer stop()
		err = errors.Join(err, r.one(ctx, step{title: "Clean up", expected: "all Nodes and instances of the rehearsal end, and nothing of it is left", do: r.cleanUp}))
		report = &r.report
	}()
	var differ []error
	for _, s := range r.steps() {
		if err := r.one(ctx, s); err != nil {
			differ = append(differ, err)
			if s.vital || ctx.Err() != nil {
				break
			}
		}
	}
	return nil, errors.Join(differ...)
}

// one does one step within its time, and tells of it.
func (r *Rehearsal) one(ctx context.Context, s step) error {
	ctx, stop := context.WithTimeout(ctx, 2*r.Patience)
	defer stop()
	fmt.Fprintf(r.Out, "\n%d. %s\n   expected: %s\n", len(r.report.Steps)+1, s.title, s.expected)
	began := time.Now()
	found, err := s.do(ctx)
	done := Step{Title: s.title, Expected: s.expected, Seconds: time.Since(began).Seconds(), Found: found, Differs: err != nil}
	if err != nil {
		done.Found = err.Error()
		err = fmt.Errorf("%s: %w", s.title, err)
	}
	r.report.Steps = append(r.report.Steps, done)
	verdict := "as expected"
	if err != nil {
		verdict = "DIFFERS"
	}
	fmt.Fprintf(r.Out, "   %s after %.0f s: %s\n", verdict, done.Seconds, done.Found)
	return err
}

// until asks again and again until what it asks for is so, or the time of a step is over. waiting is why it isn't so yet; empty: it is.
func (r *Rehearsal) until(ctx context.Context, ask func() (waiting string, err error)) error {
	ctx, stop := context.WithTimeout(ctx, r.Patience)
	defer stop()
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for {
		waiting, err := ask()
		if err == nil && waiting == "" {
			return nil
		}
		if err != nil && ctx.Err() == nil {
			waiting = err.Error() // an API server that is busy is asked again
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %s", r.Patience, waiting)
		case <-every.C:
		}
	}
}
