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
	w.sources.Hold = func() error {
		if why := owner.Load().(string); why != "" {
			return errors.New(why)
		}
		return nil
	}
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

// A status that was kept while writes were paused doesn't overwrite one that the class was resolved to afterwards.
func TestAKeptStatusDoesNotOverwriteANewerOne(t *testing.T) {
	w := newWorld(t, newFakeAPI(testPool("default"), testClass("default")))
	var held atomic.Bool
	held.Store(true)
	w.sources.Hold = func() error {
		if held.Load() {
			return errors.New("Karpenter leads")
		}
		return nil
	}
	w.leading()
	<-w.events.Events // writes are known to be paused
	resolved := func(subnet string) {
		t.Helper()
		if err := w.SetNodeClassStatus(w.ctx, nodeclass.Resolved("default", 1, ec2nc.EC2NodeClassStatus{Subnets: []ec2nc.Subnet{{ID: subnet, Zone: "a"}}})); err != nil {
			t.Fatal(err)
		}
	}
	resolved("subnet-old")
	held.Store(false)
	resolved("subnet-new")
	w.eventually("nothing is kept any more", func() bool {
		w.clock.Step(time.Second)
		w.mu.RLock()
		defer w.mu.RUnlock()
		return len(w.delayed) == 0
	})
	if got := w.getClass("default").Status.Subnets; len(got) != 1 || got[0].ID != "subnet-new" {
		t.Errorf("the status has %v, want subnet-new", got)
	}
}
