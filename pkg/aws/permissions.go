package aws

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/permission"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// UsedBy registers the function that returns the pools that use a node class, in the order in which they are tried. Only classes that a pool
// uses are checked for missing permissions. Register it before Run.
func (p *Provider) UsedBy(pools func(nodeClass string) []*capacity.Pool) { p.pools = pools }

// subjects returns the node classes that are ready, or would be if their permissions weren't missing.
func (p *Provider) subjects() []permission.Subject {
	if f := p.catalogue.Region(); p.pools == nil || f.Types == nil || f.Zones == nil || !f.Settled {
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
			Tries: func() []permission.Try { return p.tries(r) },
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

// tries returns a launch from the class for each pool that uses it.
func (p *Provider) tries(r *resolved) []permission.Try {
	pools := p.pools(r.class.Name)
	if len(pools) == 0 {
		return nil
	}
	// What InstanceTypes returns for a class that is ready.
	n := &offered{from: r, regionData: p.catalogue.Region(), gone: p.State(), left: p.counts.Left(), known: p.classes.reported.Now()}
	types := n.build(p.cfg.Region, nil)
	var out []permission.Try
	for _, pool := range pools {
		for _, capacityType := range []string{karpv1.CapacityTypeOnDemand, karpv1.CapacityTypeSpot} {
			if w := cheapest(pool, types, capacityType); len(w.Offers) > 0 {
				out = append(out, p.try(r, w))
				break
			}
		}
	}
	return out
}

// cheapest returns a launch of the cheapest type that the pool allows, in each zone.
func cheapest(pool *capacity.Pool, types []*capacity.InstanceType, capacityType string) capacity.LaunchBatch {
	w := capacity.LaunchBatch{
		Token: "dry-run", Pool: pool.Name, NodeClass: pool.NodeClass, CapacityType: capacityType,
		Labels: pool.Labels, Taints: pool.Taints, StartupTaints: pool.StartupTaints,
	}
	var best capacity.NodeOffer
	bought := func(t *capacity.InstanceType) (out []capacity.NodeOffer) {
		for _, o := range t.Offers {
			if o.CapacityType == capacityType && o.Available && allows(pool, t, &o) {
				out = append(out, capacity.NodeOffer{Type: t, Offer: o})
			}
		}
		return out
	}
	special := func(t *capacity.InstanceType) int {
		if t.Special {
			return 1
		}
		return 0
	}
	for _, t := range types {
		for _, o := range bought(t) {
			if best.Type == nil || cmp.Or(cmp.Compare(special(t), special(best.Type)), cmp.Compare(o.Offer.Price, best.Offer.Price)) < 0 {
				best = o
			}
		}
	}
	if best.Type == nil {
		return w
	}
	w.Offers = append(w.Offers, best.Key())
	for _, o := range bought(best.Type) {
		if !slices.ContainsFunc(w.Offers, func(k capacity.OfferKey) bool { return k.Zone == o.Offer.Zone }) {
			w.Offers = append(w.Offers, o.Key())
		}
	}
	return w
}

// allows reports whether a pool allows an offering. A requirement on a label that no instance type has is about the pool's own labels.
func allows(pool *capacity.Pool, t *capacity.InstanceType, o *capacity.Offer) bool {
	for key, r := range pool.Requirements {
		v, ok := o.Label(key)
		if !ok {
			v, ok = t.Labels[key]
		}
		if ok && !r.Has(v) || !ok && !r.AllowsAbsent() && pool.Labels[key] == "" && karpv1.WellKnownLabels.Has(key) {
			return false
		}
	}
	return true
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
