package consolidation

import (
	"fmt"
	"math"
	"slices"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// draft is a move that is still being put together: the nodes that it empties together, and for each of their pods the node where the plan's
// steps leave it in the end, whatever nodes they take it over.
type draft struct {
	nodes []int32 // to be emptied
	added []int32 // new
	Move
	short string // minValues that can't be met
	made  bool   // it is proposed
}

// collapse turns the plan's steps into moves, in order of their first nodes. Their placements are left to place.
func (p *plan) collapse() []*draft {
	c := p.c
	p.drafts = make([]*draft, c.existing)
	var out []*draft
	for at := range c.nodes[:c.existing] {
		n := &c.nodes[at]
		if !n.gone || n.c == nil || n.parent < 0 {
			continue
		}
		root := c.root(int32(at))
		d := p.drafts[root]
		if d == nil {
			d = &draft{}
			p.drafts[root] = d
			out = append(out, d)
		}
		p.drafts[at] = d
		d.nodes = append(d.nodes, int32(at))
		d.Nodes = append(d.Nodes, n.c.Node)
	}
	for at := c.existing; at < len(c.nodes); at++ {
		if n := &c.nodes[at]; !n.gone && len(n.from) > 0 {
			d := p.drafts[c.root(int32(at))]
			d.added = append(d.added, int32(at))
		}
	}
	for _, d := range out {
		slices.Sort(d.Nodes)
		p.price(d)
	}
	return out
}

// place sets the placements of the moves that are made, in order of the new places.
func (p *plan) place() {
	c := p.c
	queues := map[int32]map[int32][]*Pod{}
	for at := range c.nodes {
		n := &c.nodes[at]
		if n.gone || len(n.from) == 0 {
			continue
		}
		name := ""
		for _, a := range n.from {
			d := p.drafts[a.origin]
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

// price sets the new nodes of a move, and what it saves and costs.
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
	for tight := range 2 {
		d.New, spent, d.short = d.New[:0], 0, ""
		for _, at := range d.added {
			n, dearest, short := p.planned(at, old, tight > 0)
			if short != "" {
				d.short = short
				continue
			}
			d.New = append(d.New, n)
			spent += dearest
		}
		if spent < old*(1-lowest) {
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

// overlap returns what it costs that old and new nodes are paid at the same time; where a restart costs nothing, that doesn't either.
func (c *cluster) overlap(x *Candidate, dollars float64) float64 {
	if policy, _ := c.policy(x); policy.RestartCost == 0 {
		return 0
	}
	return dollars
}

// planned returns a new node of the plan, with the price of its dearest offering. tight: only those of the lowest price.
func (p *plan) planned(at int32, ceiling float64, tight bool) (out *capacity.PlannedNode, dearest float64, short string) {
	m, n := p.c.market, &p.c.nodes[at]
	flexible := max(n.types, 1)
	if n.types > 0 {
		tight = false // the offerings are those that were counted
	} else if m.spot(n.offer) {
		flexible = DefaultSpotFlexibility
		if !n.closed { // it needn't have so many, and its price was that of one
			ceiling = math.Nextafter(math.Max(n.price, m.price(n.offer)), math.Inf(1))
		}
	}
	if m.catalog.Candidates[m.offers[n.offer]].Price >= ceiling {
		ceiling = math.Inf(1)
	}
	offers, short := m.alternatives(n.offer, n.pods, ceiling, flexible)
	if short != "" || len(offers) == 0 {
		return nil, 0, short
	}
	price := func(i int) float64 { return m.catalog.Candidates[offers[i]].Price }
	if tight {
		offers = slices.DeleteFunc(slices.Clone(offers), func(b int) bool { return m.catalog.Candidates[b].Price > price(0) })
	}
	node := *m.catalog.Template(offers, m.daemons)
	node.ID = p.c.name(at)
	node.Requests = capacity.Resources{}
	for _, d := range node.Daemons {
		node.Requests.Add(d.Class.Requests, 1)
	}
	for _, s := range n.pods {
		node.Requests.Add(m.kinds.all[s.kind].class.Requests, int64(s.n))
	}
	return &node, price(len(offers) - 1), ""
}
