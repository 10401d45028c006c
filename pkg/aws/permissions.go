package aws

import (
	"context"
	"fmt"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/permission"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// UsedBy registers the function that returns the pools that use a node class, in the order in which they are tried.
func (p *Provider) UsedBy(pools func(nodeClass string) []*capacity.Pool) { p.allowed.UsedBy(pools) }

// subjects returns the node classes that are ready, or would be if their permissions weren't missing.
func (p *Provider) subjects() []permission.Subject {
	if f := p.catalogue.Region(); f.Types == nil || f.Zones == nil || !f.Settled {
		return nil
	}
	p.classes.mu.Lock()
	defer p.classes.mu.Unlock()
	var out []permission.Subject
	for name, c := range p.classes.byName {
		r := c.resolved.Load()
		if r == nil || r.unready != nil && (r.denied == nil || len(r.images) == 0 || r.profile == "" && ownTemplate(r.class) == "") {
			continue
		}
		key := fmt.Sprint(r.class.UID, r.class.Generation, r.profile, r.launches().Subnets, r.launches().Groups, r.placement.ID)
		for i := range r.images {
			key += " " + r.images[i].id + r.images[i].own.version
		}
		out = append(out, permission.Subject{
			Name: name, Key: key, Tell: func(d *permission.Denial) { c.deny(r.class, d) },
			Tries: func(pools []*capacity.Pool) []permission.Try { return p.tries(r, pools) },
		})
	}
	return out
}

// deny stores why nothing may be launched from a version of the object; nil: it may.
func (c *class) deny(nc any, d *permission.Denial) {
	c.mu.Lock()
	defer c.mu.Unlock()
	have := c.denied.Load()
	if c.spec != nc || have == d || have != nil && d != nil && *have == *d {
		return
	}
	c.denied.Store(d)
	c.poke()
}

// tries returns a launch from the class for each of the pools that allows any.
func (p *Provider) tries(r *resolved, pools []*capacity.Pool) []permission.Try {
	if len(pools) == 0 {
		return nil
	}
	// What InstanceTypes returns for a class that is ready.
	n := &offered{from: r, regionData: p.catalogue.Region(), gone: p.State(), away: p.shifts.State(), left: p.counts.Left(), known: p.classes.reported.Now()}
	types := n.build(p.cfg.Region, nil)
	var out []permission.Try
	for _, pool := range pools {
		for _, capacityType := range []string{karpv1.CapacityTypeOnDemand, karpv1.CapacityTypeSpot} {
			if w := permission.Cheapest(pool, types, capacityType); len(w.Offers) > 0 {
				out = append(out, p.try(r, w))
				break
			}
		}
	}
	return out
}

// try returns what to ask EC2 about a launch.
func (p *Provider) try(r *resolved, w capacity.LaunchBatch) permission.Try {
	t := permission.Try{
		Tags: p.launcher.owner.LaunchTags(r.class, w.Pool), Groups: groupIDs(r), Spot: w.CapacityType == karpv1.CapacityTypeSpot,
		Fleet: func(ctx context.Context) (*ec2.CreateFleetInput, error) {
			in, err := p.launcher.request(ctx, r, &w)
			if err == nil {
				in.TargetCapacitySpecification.TotalTargetCapacity = awssdk.Int32(1)
			}
			return in, err
		},
	}
	if ownTemplate(r.class) == "" {
		t.Image = r.images[0].id
	}
	return t
}
