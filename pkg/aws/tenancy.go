package aws

// dedicated is the tenancy of machines that nobody else shares.
const dedicated = "dedicated"

// dedicatedShare is what such a machine costs of a shared one's price. The price list has a price for each, between 2 % and
// 10 % above; the fee per region and hour comes once and is nobody's in particular.
const dedicatedShare = 1.1

// OfferDedicated says for which node classes machines of one's own are offered beside shared ones: those of pools that ask for
// them (karpenter.k8s.aws/instance-tenancy). For all others they would double the offers for nothing.
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

// offerDedicated says whether something changed. What is resolved stays so, but for this.
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
