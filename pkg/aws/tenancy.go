package aws

// dedicated is the tenancy of instances on single-tenant hardware.
const dedicated = "dedicated"

// dedicatedShare is the price of such an instance as a multiple of the shared price. The price list has a price for each, 2 % to 10 %
// above; the fee per region and hour is paid once and can't be attributed to an instance.
const dedicatedShare = 1.1

// OfferDedicated sets the node classes for which single-tenant instances are offered beside shared ones: those of pools that ask for
// them (karpenter.k8s.aws/instance-tenancy). For all others they would double the number of offerings without need.
func (p *Provider) OfferDedicated(nodeClasses map[string]bool) {
	p.mu.Lock()
	p.dedicated = nodeClasses
	changed := false
	for name, c := range p.classes {
		changed = c.offerDedicated(nodeClasses[name]) || changed
	}
	p.mu.Unlock()
	if changed {
		p.bump()
	}
}

// offerDedicated sets dedicated and reports whether it has changed. The rest of the resolution is kept.
func (c *class) offerDedicated(yes bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dedicated.Swap(yes) == yes {
		return false
	}
	if r := c.resolved.Load(); r != nil {
		next := *r
		next.dedicated = yes
		c.resolved.Store(&next)
	}
	return true
}
