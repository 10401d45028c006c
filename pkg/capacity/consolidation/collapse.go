package consolidation

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// draft is a move that is still being put together: the nodes that it empties together, and for each of their pods the node where it is after all
// steps of the plan, even if earlier steps put it on other nodes.
type draft struct {
	nodes []int32 // the nodes to be emptied, as indexes of cluster.nodes
	added []int32 // the new nodes, likewise
	Move
	launches []launch
	short    string // which minValues can't be met, or why a new node can't be bought for this move; empty: nothing is in the way
	made     bool   // it is proposed
}

// launch is a new node, and what may be launched for it: candidates of the catalog, the cheapest first.
type launch struct {
	at     int32
	offers []int
}

// collapse turns the plan's steps into moves, in order of their first nodes; of has, by index of an existing node, the move that empties it. finish
// sets the new nodes and placements later.
func (p *plan) collapse() (out, of []*draft) {
	c := p.c
	of = make([]*draft, c.existing)
	for at := range c.nodes[:c.existing] {
		n := &c.nodes[at]
		if !n.gone || n.c == nil || n.parent < 0 {
			continue
		}
		root := c.root(int32(at))
		d := of[root]
		if d == nil {
			d = &draft{}
			of[root] = d
			out = append(out, d)
		}
		of[at] = d
		d.nodes = append(d.nodes, int32(at))
		d.Nodes = append(d.Nodes, n.c.Node)
	}
	for at := c.existing; at < len(c.nodes); at++ {
		if n := &c.nodes[at]; !n.gone && len(n.from) > 0 {
			d := of[c.root(int32(at))]
			d.added = append(d.added, int32(at))
		}
	}
	for _, d := range out {
		slices.Sort(d.Nodes)
		p.price(d)
	}
	return out, of
}

// finish sets the new nodes of the moves that are made, and their placements, in order of the new places. of is what collapse returned.
func (p *plan) finish(made, of []*draft) {
	c := p.c
	for _, d := range made {
		for _, l := range d.launches {
			d.New = append(d.New, p.planned(l))
		}
	}
	queues := map[int32]map[int32][]*Pod{}
	for at := range c.nodes {
		n := &c.nodes[at]
		if n.gone || len(n.from) == 0 {
			continue
		}
		name := ""
		for _, a := range n.from {
			d := of[a.origin]
			if !d.made {
				continue
			}
			if name == "" {
				name = c.name(int32(at))
			}
			queue, known := queues[a.origin]
			if !known {
				queue = c.podsByKind(&c.nodes[a.origin])
				queues[a.origin] = queue
			}
			for _, pod := range queue[a.kind][:a.n] {
				d.Placements = append(d.Placements, capacity.Placement{Class: pod.Class, Pod: pod.Ref, Node: name})
			}
			queue[a.kind] = queue[a.kind][a.n:]
		}
	}
}

// name returns the name of a node, or the ID of a new one.
func (c *cluster) name(at int32) string {
	if n := &c.nodes[at]; n.view != nil {
		return n.view.Name
	}
	return fmt.Sprintf("new/%d", int(at)-c.existing)
}

// podsByKind returns a candidate's pods by kind, in their order.
func (c *cluster) podsByKind(n *node) map[int32][]*Pod {
	out := make(map[int32][]*Pod, len(n.own))
	for i := range n.c.Pods {
		pod := &n.c.Pods[i]
		k := c.kinds.of(pod, n.view, n.c)
		out[k] = append(out[k], pod)
	}
	return out
}

// price sets what may be launched for the new nodes of a move, and what it saves and costs.
func (p *plan) price(d *draft) {
	c := p.c
	old, drain := 0.0, 0.0
	for _, at := range d.nodes {
		x := c.nodes[at].c
		old += c.nodes[at].price
		d.Disruption += 1 + c.nodes[at].podCost
		d.Accrued += c.o.Accrual.Of(x.Node, c.o.Now)
		d.Cost += c.restarts(x) + c.overlap(x, c.nodes[at].price*x.Drain.Hours())
		drain = math.Max(drain, x.Drain.Hours())
	}
	d.Ceiling = old
	spent := 0.0
	r, cheapest := c.ruleOf(d.nodes), 0.0
	for _, at := range d.added {
		cheapest += c.market.price(c.nodes[at].offer)
	}
	c.zones.leave(c, d.nodes)
	forced := slices.ContainsFunc(d.nodes, func(at int32) bool { return c.nodes[at].c.Forced != "" })
	for try := range 3 {
		tight, even := try > 0, try < 2
		c.zones.arrive(c.market, d.launches, -1)
		d.launches, spent, d.short = d.launches[:0], 0, ""
		for _, at := range d.added {
			ceiling := old
			if r.leaves { // so that all new nodes together cost no more than the rule allows
				own := c.market.price(c.nodes[at].offer)
				ceiling = math.Nextafter(max(own, r.most(old)*own/cheapest), math.Inf(1))
			}
			offers, short := p.launched(at, ceiling, tight, even, r)
			if len(offers) == 0 {
				d.short = cmp.Or(short, "the new node that was planned for it may not be bought in place of all of its nodes")
				continue
			}
			d.launches = append(d.launches, launch{at, offers})
			c.zones.arrive(c.market, d.launches[len(d.launches)-1:], 1)
			spent += c.market.catalog.Candidates[offers[len(offers)-1]].Price
		}
		if spent < old*(1-lowest) || r.leaves || tight && (forced || c.zones == nil) {
			break
		}
	}
	d.Saves = old - spent
	if len(d.nodes) > 0 {
		d.Cost += c.overlap(c.nodes[d.nodes[0]].c, spent*(c.o.Boot.Hours()+drain))
	}
}

// restarts returns what restarting a candidate's pods costs, in $.
func (c *cluster) restarts(x *Candidate) float64 {
	policy, _ := c.policy(x)
	hours := 0.0
	for i := range x.Pods {
		restart := policy.RestartCost
		if x.Pods[i].Restart != nil {
			restart = *x.Pods[i].Restart
		}
		hours += max(0, x.Pods[i].Cost) * restart.Hours()
	}
	return hours * c.mean[x.Pool]
}

// overlap returns what counts as cost of paying old and new nodes at the same time, which is dollars; in a pool where a restart costs nothing: 0.
func (c *cluster) overlap(x *Candidate, dollars float64) float64 {
	if policy, _ := c.policy(x); policy.RestartCost == 0 {
		return 0
	}
	return dollars
}

// launched returns what may be launched for a new node of the plan. tight: only what has the lowest price. even: in a pool that balances zones, only
// what is in the zone that is best for the balance.
func (p *plan) launched(at int32, ceiling float64, tight, even bool, r rule) (offers []int, short string) {
	m, n, most := p.c.market, &p.c.nodes[at], ceiling
	flexible := max(n.types, 1)
	if r.leaves { // the more offerings the cloud can choose from, the longer the capacity lasts
		flexible = DefaultSpotFlexibility
	} else if n.types > 0 {
		tight = false // it has to keep all offerings that were counted as flexibility
	} else if m.spot(n.offer) {
		flexible = DefaultSpotFlexibility
		if !n.closed { // it needn't be flexible, and the plan counted the price of one type
			ceiling = math.Nextafter(math.Max(n.price, m.price(n.offer)), math.Inf(1))
		}
	}
	if m.catalog.Candidates[m.offers[n.offer]].Price >= ceiling {
		ceiling, most = math.Inf(1), math.Inf(1)
	}
	if offers, short = m.alternatives(n.offer, n.pods, ceiling, flexible, r, ""); short != "" || len(offers) == 0 {
		return nil, short
	}
	if even {
		offers = p.balanced(at, offers, most, flexible, r)
	}
	if tight {
		lowest := m.catalog.Candidates[offers[0]].Price
		offers = slices.DeleteFunc(offers, func(b int) bool { return m.catalog.Candidates[b].Price > lowest })
	}
	return offers, ""
}

// planned returns a new node of the plan.
func (p *plan) planned(l launch) *capacity.PlannedNode {
	m := p.c.market
	node := *m.catalog.Template(l.offers, m.daemons)
	node.ID = p.c.name(l.at)
	node.Requests = capacity.Resources{}
	for _, d := range node.Daemons {
		node.Requests.Add(d.Class.Requests, 1)
	}
	for _, s := range p.c.nodes[l.at].pods {
		node.Requests.Add(m.kinds.all[s.kind].class.Requests, int64(s.n))
	}
	return &node
}
