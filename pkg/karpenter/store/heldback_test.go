package store

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
)

// While another controller owns the objects nothing is written; pools get an event with the reason, and afterwards the delayed writes
// are made.
func TestNothingIsWrittenBesideAnotherOwner(t *testing.T) {
	w := newWorld(t, newFakeAPI(testPool("default"), testClass("default")))
	var owner atomic.Value
	owner.Store("Karpenter leads")
	w.SetHold(func() error {
		if why := owner.Load().(string); why != "" {
			return errors.New(why)
		}
		return nil
	})
	w.leading()
	if err := w.SetNodeClassStatus(w.ctx, nodeclass.Resolved("default", 1, ec2nc.EC2NodeClassStatus{Subnets: []ec2nc.Subnet{{ID: "subnet-1", Zone: "a"}}})); err != nil {
		t.Fatal(err)
	}
	if got := <-w.events.Events; !strings.Contains(got, "Warning HeldBack Karpenter leads") {
		t.Errorf("event %q", got)
	}
	for range 3 { // queued again, without another event
		w.eventually("it is looked at later", w.clock.HasWaiters)
		w.clock.Step(holdRetry)
	}
	if len(w.getPool("default").Status.Conditions) > 0 || len(w.getClass("default").Status.Subnets) > 0 {
		t.Error("a status was written although somebody else has the objects in hand")
	}
	owner.Store("")
	w.eventually("the statuses are written", func() bool {
		w.clock.Step(time.Second)
		return len(w.getPool("default").Status.Conditions) > 0 && len(w.getClass("default").Status.Subnets) > 0
	})
	var said []string
	for len(w.events.Events) > 0 {
		said = append(said, <-w.events.Events)
	}
	if n := strings.Count(strings.Join(said, "\n"), "HeldBack"); n > 0 {
		t.Errorf("told %d times more", n)
	}
	if !strings.Contains(strings.Join(said, "\n"), "Normal Resumed") {
		t.Errorf("nobody is told that it is over: %q", said)
	}
}
