package day

import (
	"math"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/packing"
	"github.com/dovetail-scheduler/dovetail/test/consolidation/cluster"
	"github.com/dovetail-scheduler/dovetail/test/consolidation/emulation"
	"github.com/dovetail-scheduler/dovetail/test/consolidation/product"
)

const quick = packing.Quick

// commandsPerMinute: Karpenter waits 15 s before it carries a command out, and has one at a time.
const commandsPerMinute = 4

// Karpenter is the emulation of Karpenter, with kube-scheduler's default scores.
type Karpenter struct {
	balanced bool
	random   *rand.Rand
}

// NewKarpenter returns the emulation.
func NewKarpenter(balanced bool, seed uint64) func(*Day) Consolidator {
	return func(*Day) Consolidator {
		return &Karpenter{balanced: balanced, random: rand.New(rand.NewPCG(seed, 79))}
	}
}

// Pass makes the commands of a minute.
func (k *Karpenter) Pass(d *Day) error {
	for range commandsPerMinute {
		budget := d.Budget()
		if budget <= 0 {
			return nil
		}
		// Node names say nothing: Karpenter tries nodes in the order of their names.
		open := &cluster.Cluster{World: d.Cluster.World}
		for _, n := range d.Cluster.Nodes {
			if !d.Draining(n) {
				open.Nodes = append(open.Nodes, n)
			}
		}
		k.random.Shuffle(len(open.Nodes), func(i, j int) { open.Nodes[i], open.Nodes[j] = open.Nodes[j], open.Nodes[i] })
		e := emulation.New(open, k.balanced)
		c := e.Decide(e.Candidates(), budget)
		if c == nil {
			return nil
		}
		evicted := 0
		for _, n := range c.Candidates {
			evicted += n.Count
			for len(n.Pods) > 0 {
				d.Cluster.Put(n, n.Pods[0].Class, -n.Pods[0].Count)
			}
		}
		var receivers, launched []*cluster.Node
		for _, p := range c.Place {
			d.Cluster.Put(p.Node, p.Class, 1)
			receivers = append(receivers, p.Node)
		}
		if c.Launch >= 0 {
			launched = append(launched, d.Cluster.Add(c.Launch, c.Load))
		}
		d.Moved(c.Candidates, launched, receivers, evicted)
	}
	return nil
}

// Score is LeastAllocated, kube-scheduler's default.
func (*Karpenter) Score(d *Day, n *cluster.Node, _ int) float64 { return free(d, n) }

// free returns the mean part of a node's CPU and memory that is free.
func free(d *Day, n *cluster.Node) float64 {
	room := d.Cluster.World.Types[n.Type].Room
	return (float64(n.Free[0])/float64(room[0]) + float64(n.Free[1])/float64(room[1])) / 2
}

// used returns the parts of a node's CPU and memory that are requested, daemons included, once a pod with this need is there, too.
func used(d *Day, n *cluster.Node, need cluster.Vector) (cpu, memory float64) {
	size := d.Cluster.World.Types[n.Type].Capacity.Allocatable
	cpu = 1 - float64(n.Free[0]-need[0])/float64(size[corev1.ResourceCPU])
	memory = 1 - float64(n.Free[1]-need[1])/float64(size[corev1.ResourceMemory]>>20)
	return cpu, memory
}

// Repriced does nothing: the emulation reads prices from the world.
func (*Karpenter) Repriced() {}

// passEvery is how many minutes are between the product's passes.
const passEvery = 5

// Product is the product: its consolidation, and arriving pods that prefer full nodes.
type Product struct {
	c     *product.Consolidation
	lives map[*cluster.Node]*product.Life
}

// NewProduct returns the product with a policy.
func NewProduct(policy consolidation.Policy) func(*Day) Consolidator {
	return func(d *Day) Consolidator {
		p := &Product{lives: map[*cluster.Node]*product.Life{}}
		p.c = product.New(d.Cluster, func(n *cluster.Node) *product.Life { return p.life(d, n) }, policy, boot*time.Minute)
		return p
	}
}

func (p *Product) life(d *Day, n *cluster.Node) *product.Life {
	x := p.lives[n]
	if x == nil {
		x = &product.Life{CreatedAt: d.Born(n)}
		p.lives[n] = x
	}
	x.Draining = d.Draining(n)
	return x
}

// Pass proposes moves and carries them out.
func (p *Product) Pass(d *Day) error {
	if d.Now%passEvery != 0 {
		return nil
	}
	moves, err := p.c.Pass(Start.Add(time.Duration(d.Now)*time.Minute), d.Budget(), func(propose func()) { propose() })
	for _, m := range moves {
		d.Moved(m.Nodes, m.Launched, m.Receivers, m.Evicted)
	}
	for n := range p.lives {
		if n.Gone {
			delete(p.lives, n)
		}
	}
	return err
}

// Score is that of the shipped configuration: MostAllocated, and kube-scheduler's NodeResourcesBalancedAllocation. Scores
// for spread are left out on all sides: pods of these Deployments say nothing of it.
func (*Product) Score(d *Day, n *cluster.Node, class int) float64 {
	cpu, memory := used(d, n, d.Cluster.World.Classes[class].Need)
	return 100*(cpu+memory)/2 + balanced(d, n, class)
}

// balanced is higher the more a pod of a class improves the balance of a node's CPU and memory, from 50 to 100.
func balanced(d *Day, n *cluster.Node, class int) float64 {
	cpu, memory := used(d, n, d.Cluster.World.Classes[class].Need)
	cpuBefore, memoryBefore := used(d, n, cluster.Vector{})
	return 75 + 25*(math.Abs(cpuBefore-memoryBefore)-math.Abs(cpu-memory))
}

// Repriced passes the new prices on.
func (p *Product) Repriced() { p.c.SetPrices() }

// Others is a cluster in which another scheduler places the pods, by kube-scheduler's default scores. Capacity can't be reserved for them, so
// the product keeps their nodes until they are empty.
type Others struct{}

// NewOthers returns that side.
func NewOthers(*Day) Consolidator { return Others{} }

// Pass does nothing: nodes are only removed when they are empty, as on all sides.
func (Others) Pass(*Day) error { return nil }

// Score is LeastAllocated and NodeResourcesBalancedAllocation.
func (Others) Score(d *Day, n *cluster.Node, class int) float64 {
	cpu, memory := used(d, n, d.Cluster.World.Classes[class].Need)
	return 100*(2-cpu-memory)/2 + balanced(d, n, class)
}

// Repriced does nothing: no decision depends on prices.
func (Others) Repriced() {}
