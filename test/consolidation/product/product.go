package product

import (
	"fmt"
	"math"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/test/consolidation/cluster"
	"github.com/dovetail-scheduler/dovetail/test/quality/workload"
)

const (
	pool         = "default"
	capacityType = "karpenter.sh/capacity-type"
	nodePool     = "karpenter.sh/nodepool"
)

// Life is what the product knows of a node beside its pods.
type Life struct {
	CreatedAt time.Time
	// Draining: it is being drained.
	Draining bool
	// receivedUntil: it took pods of moves that haven't paid for themselves until then.
	receivedUntil time.Time
}

// Consolidation is the product's consolidation of one cluster.
type Consolidation struct {
	cluster *cluster.Cluster
	life    func(*cluster.Node) *Life
	policy  consolidation.Policy
	boot    time.Duration
	planner *consolidation.Planner
	accrual consolidation.Accrual
	pool    *capacity.Pool
	classes map[capacity.ClassKey]int
	types   map[string]int
	pass    int
	// Waste is what the last pass said of nodes: the part of the price that pods aren't worth, by ID, in $/h.
	Waste map[int]float64
}

// New returns the consolidation of a cluster whose nodes live as life says.
func New(c *cluster.Cluster, life func(*cluster.Node) *Life, policy consolidation.Policy, boot time.Duration) *Consolidation {
	out := &Consolidation{cluster: c, life: life, policy: policy, boot: boot, planner: consolidation.New(),
		classes: map[capacity.ClassKey]int{}, types: map[string]int{}, Waste: map[int]float64{}}
	for i := range c.World.Classes {
		out.classes[c.World.Classes[i].Capacity.Key] = i
	}
	for i := range c.World.Types {
		out.types[c.World.Types[i].Name] = i
	}
	out.SetPrices()
	return out
}

// SetPrices reads the world's prices, which have changed.
func (c *Consolidation) SetPrices() {
	w := c.cluster.World
	c.pool = &capacity.Pool{Name: pool, Labels: map[string]string{nodePool: pool}}
	for i := range w.Types {
		t := *w.Types[i].Capacity
		t.Offers = nil
		for _, zone := range workload.Zones {
			t.Offers = append(t.Offers, capacity.Offer{Zone: zone, CapacityType: c.capacityType(), Price: w.Price[i], Available: true})
		}
		c.pool.Types = append(c.pool.Types, &t)
	}
}

func (c *Consolidation) capacityType() string {
	if c.cluster.World.Spot {
		return "spot"
	}
	return "on-demand"
}

// Move is a move that has been carried out.
type Move struct {
	Nodes    []*cluster.Node
	Launched []*cluster.Node
	// Receivers are the nodes that were there before and got pods.
	Receivers []*cluster.Node
	// Evicted is how many pods were on Nodes.
	Evicted int
}

// Pass makes one pass: it proposes moves of at most so many nodes, and carries them out. Decided is called with the time that the proposal
// took. Nodes without pods are left to the caller.
func (c *Consolidation) Pass(now time.Time, budget int, decided func(propose func())) ([]Move, error) {
	c.pass++
	view, candidates, nodes := c.view()
	policy := c.policy
	policy.Budgets = map[consolidation.Reason]int{consolidation.Underutilized: max(0, budget)}
	var p *consolidation.Proposal
	decided(func() {
		p = c.planner.Propose(view, candidates, &consolidation.Options{Now: now, Pools: map[string]consolidation.Policy{pool: policy},
			Accrual: &c.accrual, Boot: c.boot, Pass: c.pass})
		c.accrual.Observe(p.Rates, candidates, now)
	})
	clear(c.Waste)
	for name, waste := range p.Waste {
		c.Waste[nodes[name].ID] = waste
	}
	var out []Move
	for i := range p.Moves {
		m := &p.Moves[i]
		c.accrual.Pay(m, now)
		done, err := c.carryOut(m, nodes)
		if err != nil {
			return nil, err
		}
		for _, name := range m.Receivers() {
			done.Receivers = append(done.Receivers, nodes[name])
			life := c.life(nodes[name])
			if until := now.Add(m.PaysBack()); until.After(life.receivedUntil) {
				life.receivedUntil = until
			}
		}
		out = append(out, done)
	}
	return out, nil
}

// view returns the cluster as the product sees it, and its nodes by name.
func (c *Consolidation) view() (*capacity.View, []consolidation.Candidate, map[string]*cluster.Node) {
	w := c.cluster.World
	view := &capacity.View{Pools: []*capacity.Pool{c.pool}, DaemonSets: w.DaemonSets}
	nodes := make(map[string]*cluster.Node, len(c.cluster.Nodes))
	var candidates []consolidation.Candidate
	serial := 0
	for _, n := range c.cluster.Nodes {
		if n.Gone {
			continue
		}
		name, life := "node-"+strconv.Itoa(n.ID), c.life(n)
		nodes[name] = n
		view.Nodes = append(view.Nodes, &capacity.Node{Name: name, Labels: c.labels(name, n), Closed: life.Draining,
			Allocatable: w.Types[n.Type].Capacity.Allocatable,
			Free:        capacity.Resources{corev1.ResourceCPU: n.Free[0], corev1.ResourceMemory: n.Free[1] << 20, corev1.ResourcePods: n.Free[2]}})
		x := consolidation.Candidate{Node: name, Pool: pool, Price: c.cluster.Price(n), CapacityType: c.capacityType(), CreatedAt: life.CreatedAt,
			ReceivedUntil: life.receivedUntil}
		if life.Draining {
			x.Blocked = &consolidation.Kept{Kind: consolidation.Disrupting}
		}
		for _, s := range n.Pods {
			class := &w.Classes[s.Class]
			for range s.Count {
				serial++
				ref := capacity.PodRef{UID: types.UID(strconv.Itoa(serial)), Namespace: "default", Name: class.Name}
				x.Pods = append(x.Pods, consolidation.Pod{Ref: ref, Class: class.Capacity, Owner: types.UID(class.Name), Cost: 1})
			}
		}
		candidates = append(candidates, x)
	}
	return view, candidates, nodes
}

func (c *Consolidation) labels(name string, n *cluster.Node) map[string]string {
	out := map[string]string{corev1.LabelHostname: name, corev1.LabelTopologyZone: workload.Zones[n.ID%len(workload.Zones)],
		capacityType: c.capacityType(), nodePool: pool}
	for k, v := range c.cluster.World.Types[n.Type].Capacity.Labels {
		out[k] = v
	}
	return out
}

// carryOut moves the pods of a move to their new places. It fails if the move is impossible: that is what the benchmark checks of it.
func (c *Consolidation) carryOut(m *consolidation.Move, nodes map[string]*cluster.Node) (out Move, err error) {
	left := map[int]int{}
	for _, name := range m.Nodes {
		n := nodes[name]
		if n == nil || n.Gone {
			return out, fmt.Errorf("a move empties %s, which is gone", name)
		}
		out.Nodes = append(out.Nodes, n)
		out.Evicted += n.Count
		for len(n.Pods) > 0 {
			s := n.Pods[0]
			left[s.Class] += s.Count
			c.cluster.Put(n, s.Class, -s.Count)
		}
		n.Gone = true
	}
	targets := map[string]*cluster.Node{}
	cost := 0.0
	for _, planned := range m.New {
		n := c.cluster.Add(c.types[planned.Offers[0].Type.Name], nil)
		targets[planned.ID] = n
		out.Launched = append(out.Launched, n)
		cost += c.cluster.Price(n)
	}
	if cost > m.Ceiling || math.IsNaN(cost) {
		return out, fmt.Errorf("a move buys for $%.4f/h, more than its ceiling of $%.4f/h", cost, m.Ceiling)
	}
	for i := range m.Placements {
		p := &m.Placements[i]
		n := targets[p.Node]
		if n == nil {
			n = nodes[p.Node]
		}
		class := c.classes[p.Class.Key]
		if n == nil || n.Gone || !n.Free.Holds(c.cluster.World.Classes[class].Need) {
			return out, fmt.Errorf("a move puts a pod of %s on %s, which has no room for it", c.cluster.World.Classes[class].Name, p.Node)
		}
		c.cluster.Put(n, class, 1)
		left[class]--
	}
	for class, count := range left {
		if count != 0 {
			return out, fmt.Errorf("a move leaves %d pods of %s without a place", count, c.cluster.World.Classes[class].Name)
		}
	}
	return out, nil
}
