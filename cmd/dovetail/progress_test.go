package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/spf13/cobra"
	clocktesting "k8s.io/utils/clock/testing"
)

// What takes long is named once, and what is done soon isn't.
func TestProgress(t *testing.T) {
	var out bytes.Buffer
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	p := progress{&out, clock}
	p.doing("Planning")()
	done := p.doing("Reading the cluster")
	clock.Step(silence - time.Millisecond)
	if out.Len() > 0 {
		t.Errorf("it says %q at once", &out)
	}
	clock.Step(time.Minute)
	done()
	if got := out.String(); got != "Reading the cluster ...\n" {
		t.Errorf("it says %q", got)
	}
}

// Into a pipe nothing is written.
func TestProgressIsForTerminals(t *testing.T) {
	var out bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetErr(&out)
	p := progressOf(cmd)
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	p.clock = clock
	defer p.doing("Reading the cluster")()
	clock.Step(time.Minute)
	if out.Len() > 0 {
		t.Errorf("it says %q", &out)
	}
}
