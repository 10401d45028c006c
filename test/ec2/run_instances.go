package ec2

import "fmt"

// runInstances launches into one pool. The idempotency token is regional here; EC2 makes it zonal if a zone is given.
func (w *world) runInstances(r *Request) (any, error) {
	p := r.params
	lowest, err := p.number("MinCount", 0)
	if err != nil {
		return nil, err
	}
	most, err := p.number("MaxCount", 0)
	if err != nil {
		return nil, err
	}
	if lowest < 1 || most < lowest {
		return nil, invalidValue("MinCount", fmt.Sprint(lowest), "MinCount must be at least 1 and at most MaxCount.")
	}
	data, err := w.parseLaunchData(p)
	if err != nil {
		return nil, err
	}
	var from templateRef
	if spec := p.sub("LaunchTemplate"); spec != nil {
		t, err := w.template(spec.str("LaunchTemplateId"), spec.str("LaunchTemplateName"), spec.str("Version"))
		if err != nil {
			return nil, err
		}
		data, from.ID = data.over(t.data), t.id
	}
	f := &fleet{asker: w.asker(r), capacityType: onDemand, total: most, min: lowest}
	switch data.market {
	case "":
	case spot:
		f.capacityType = spot
	default:
		f.market = data.market
	}
	c := &choice{config: from, data: data, override: overrideItem{Type: data.typ, Subnet: data.subnet, Zone: p.str("Placement.AvailabilityZone")}}
	f.choices = []*choice{c}
	return w.once(r, func() (any, error) {
		if c.failure = w.resolve(c, f); c.failure != nil {
			return nil, c.failure
		}
		if p.bool("DryRun") {
			return nil, dryRun()
		}
		if got := w.allocate(f); got < lowest {
			w.release(c)
			return nil, c.failure
		}
		made := w.launchChoice(r, f, c, templateAndOverrides{})
		out := reservationItem{Owner: w.cfg.Account}
		for _, id := range made.IDs {
			out.ID = w.byID[id].fleetRsv
			out.Instances = append(out.Instances, w.instanceItem(w.byID[id]))
		}
		return out, nil
	})
}
