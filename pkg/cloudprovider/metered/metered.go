// Package metered counts the calls of a cloud provider that launch, find and terminate instances, in Karpenter's metrics. It changes nothing
// about them.
package metered

import (
	"context"
	"errors"
	"time"

	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
	"github.com/dovetail-scheduler/dovetail/pkg/karpentermetrics"
)

// Controllers of Karpenter that make such calls, as its metrics name them.
const (
	launching   = "nodeclaim.lifecycle"
	terminating = "nodeclaim.termination"
	collecting  = "nodeclaim.garbagecollection"
)

// Provider counts the calls of another one.
type Provider struct {
	cloudprovider.Provider
	clock                         clock.PassiveClock
	create, remove, get, list, of karpentermetrics.CloudCall
}

// New returns a provider that counts the calls of p. name is the value of the label provider.
func New(p cloudprovider.Provider, name string, c clock.PassiveClock) *Provider {
	call := func(controller, method string) karpentermetrics.CloudCall {
		out := karpentermetrics.CloudCall{Controller: controller, Method: method, Provider: name}
		out.Expect()
		return out
	}
	return &Provider{Provider: p, clock: c, create: call(launching, "Create"), remove: call(terminating, "Delete"), get: call(launching, "Get"),
		list: call(collecting, "List"), of: call(launching, "GetInstanceTypes")}
}

// Launch implements cloudprovider.Launcher.
func (p *Provider) Launch(ctx context.Context, w capacity.LaunchBatch) (capacity.LaunchResult, error) {
	start := p.clock.Now()
	out, err := p.Provider.Launch(ctx, w)
	p.count(p.create, start, err)
	return out, err
}

// Terminate implements cloudprovider.Instances.
func (p *Provider) Terminate(ctx context.Context, id string) error {
	start := p.clock.Now()
	err := p.Provider.Terminate(ctx, id)
	p.count(p.remove, start, err)
	return err
}

// Describe implements cloudprovider.Instances.
func (p *Provider) Describe(ctx context.Context, id string) (capacity.Instance, error) {
	start := p.clock.Now()
	out, err := p.Provider.Describe(ctx, id)
	p.count(p.get, start, err)
	return out, err
}

// List implements cloudprovider.Instances.
func (p *Provider) List(ctx context.Context) ([]capacity.Instance, error) {
	start := p.clock.Now()
	out, err := p.Provider.List(ctx)
	p.count(p.list, start, err)
	return out, err
}

// InstanceTypes implements cloudprovider.Offerings.
func (p *Provider) InstanceTypes(nodeClass string) ([]*capacity.InstanceType, error) {
	start := p.clock.Now()
	out, err := p.Provider.InstanceTypes(nodeClass)
	p.count(p.of, start, err)
	return out, err
}

// count counts a call, unless it was given up because the process ends.
func (p *Provider) count(call karpentermetrics.CloudCall, start time.Time, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	call.Observe(p.clock.Since(start), err != nil, kindOf(err))
}

// kindOf returns what Karpenter's metrics call an error; empty for the many that they don't tell apart.
func kindOf(err error) string {
	switch {
	case errors.Is(err, capacity.ErrInstanceNotFound):
		return "NodeClaimNotFoundError"
	case errors.Is(err, capacity.ErrInsufficientCapacity):
		return "InsufficientCapacityError"
	case errors.Is(err, capacity.ErrNodeClassNotReady):
		return "NodeClassNotReadyError"
	}
	return ""
}
