package main

import (
	"errors"
	"testing"

	"k8s.io/dynamic-resource-allocation/structured"
	fwk "k8s.io/kube-scheduler/framework"
)

// changingClaims can't tell what is allocated while err is set.
type changingClaims struct {
	fwk.SharedDRAManager
	fwk.ResourceClaimTracker
	state *structured.AllocatedState
	err   error
}

func (c *changingClaims) ResourceClaims() fwk.ResourceClaimTracker { return c }
func (c *changingClaims) GatherAllocatedState() (*structured.AllocatedState, error) {
	return c.state, c.err
}

// While allocations change all the time, the last state is used: without any, no device would count as free anywhere.
func TestAllocatedDevicesThatChange(t *testing.T) {
	c := &changingClaims{err: errors.New("it has changed meanwhile")}
	s := draState{c, &lastAllocated{}}
	if _, err := s.Allocated(); err == nil {
		t.Error("nothing has been read yet")
	}
	want := &structured.AllocatedState{}
	c.state, c.err = want, nil
	if got, err := s.Allocated(); got != want || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	c.state, c.err = nil, errors.New("it has changed meanwhile")
	if got, err := s.Allocated(); got != want || err != nil {
		t.Errorf("while it changes: %v, %v", got, err)
	}
}
