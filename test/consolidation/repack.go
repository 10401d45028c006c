package main

import (
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/test/consolidation/cluster"
	"github.com/dovetail-scheduler/dovetail/test/consolidation/day"
	"github.com/dovetail-scheduler/dovetail/test/consolidation/emulation"
	"github.com/dovetail-scheduler/dovetail/test/consolidation/product"
	"github.com/dovetail-scheduler/dovetail/test/ec2/catalog"
)

const (
	passEvery = 5 * time.Minute
	counted   = 30 * time.Minute
	long      = 4 * time.Hour
	// buildEffort goes into the cluster before pods are lost, boundEffort into the bound.
	buildEffort, boundEffort = 200_000, 1_000_000
)

// scene is a cluster that has lost a part of its pods.
type scene struct {
	cluster.Cut
	start *cluster.Cluster
	bound float64
}

func (s *scene) make(seed uint64) error {
	var err error
	if s.start, err = s.Cluster(catalog.Builtin(), buildEffort, seed); err != nil {
		return err
	}
	s.bound = s.start.World.Pack(s.start.Counts(), boundEffort).Bound
	return nil
}

// consolidated is a cluster's cost over the bound, and how many pods have been moved for it.
type consolidated struct {
	cost  float64
	moved int
}

func (c consolidated) String() string { return fmt.Sprintf("%.4f, %d", c.cost, c.moved) }

// result is what has become of a scene.
type result struct {
	now                 float64
	karpenter, balanced consolidated
	commands            int
	soon, later, free   consolidated
}

func repack(out io.Writer, small bool, seed uint64) error {
	var scenes []*scene
	for i, c := range cluster.Cuts {
		if small && i == 3 {
			break
		}
		scenes = append(scenes, &scene{Cut: c})
	}
	if err := parallel(len(scenes), func(i int) error { return scenes[i].make(seed) }); err != nil {
		return err
	}
	cold, warm, err := passMillis(scenes)
	if err != nil {
		return err
	}
	results := make([]result, len(scenes))
	if err := parallel(len(scenes), func(i int) (err error) {
		at := len(scenes) - 1 - i // the largest first
		results[at], err = scenes[at].run()
		return err
	}); err != nil {
		return err
	}
	fmt.Fprintf(out, "a pass over the largest of these clusters whose pods have changed on 1 %% of the nodes: %d ms\n\n", warm.Milliseconds())
	reportRepack(out, scenes, results, cold)
	return nil
}

// reportRepack prints a table with a row per cluster, and the geometric means.
func reportRepack(out io.Writer, scenes []*scene, results []result, pass time.Duration) {
	var cost, moves, free mean
	fmt.Fprintln(out, "| nodes, cut | now/bound | emulation: cost/bound, moved, commands | Balanced | 30 min: cost/bound, moved | cost, moves to the emulation's | 4 h | free moves |")
	fmt.Fprintln(out, "| --- | --- | --- | --- | --- | --- | --- | --- |")
	for i, r := range results {
		fmt.Fprintf(out, "| %d, %s | %.3f | %s, %d | %s | %s | %.3f, %.3f | %s | %s |\n", len(scenes[i].start.Nodes), scenes[i].Name(), r.now, r.karpenter, r.commands,
			r.balanced, r.soon, r.soon.cost/r.karpenter.cost, float64(r.soon.moved)/float64(r.karpenter.moved), r.later, r.free)
		cost.add(r.soon.cost / r.karpenter.cost)
		moves.add(float64(r.soon.moved) / float64(r.karpenter.moved))
		free.add(r.free.cost)
	}
	fmt.Fprintf(out, "repack: cost %.3f moves %.3f free %.3f passMillis %d\n", cost.value(), moves.value(), free.value(), pass.Milliseconds())
}

func (s *scene) run() (r result, err error) {
	r.now = s.start.Cost() / s.bound
	for _, balanced := range []bool{false, true} {
		k := emulation.New(s.start.Clone(), balanced)
		t := k.Run()
		c := consolidated{k.Cluster.Cost() / s.bound, t.Moved}
		if balanced {
			r.balanced = c
		} else {
			r.karpenter, r.commands = c, t.Commands
		}
	}
	if r.soon, r.later, err = s.product(consolidation.DefaultPolicy(), long); err != nil {
		return r, fmt.Errorf("%s: %w", s.Name(), err)
	}
	free := consolidation.DefaultPolicy()
	free.RestartCost = 0
	r.free, _, err = s.product(free, counted)
	return r, err
}

// product consolidates a copy of the scene's cluster. All its nodes are older than an hour, and all of them may be disrupted at a time.
func (s *scene) product(policy consolidation.Policy, until time.Duration) (soon, later consolidated, err error) {
	c := s.start.Clone()
	p := newProduct(c, policy)
	moved := 0
	for at := time.Duration(0); at <= until; at += passEvery {
		moves, err := p.Pass(day.Start.Add(at), len(c.Nodes), func(propose func()) { propose() })
		if err != nil {
			return soon, later, err
		}
		for _, m := range moves {
			moved += m.Evicted
		}
		c.Sweep()
		later = consolidated{c.Cost() / s.bound, moved}
		if at <= counted {
			soon = later
		}
	}
	return soon, later, nil
}

func newProduct(c *cluster.Cluster, policy consolidation.Policy) *product.Consolidation {
	lives := make(map[*cluster.Node]*product.Life, len(c.Nodes))
	for _, n := range c.Nodes {
		lives[n] = &product.Life{CreatedAt: day.Start.Add(-2 * policy.FirstHour)}
	}
	// What is launched later is young until the end of the benchmark.
	return product.New(c, func(n *cluster.Node) *product.Life {
		if lives[n] == nil {
			lives[n] = &product.Life{CreatedAt: day.Start.Add(long)}
		}
		return lives[n]
	}, policy, time.Minute)
}

// passMillis returns the CPU time of the slowest first pass over one of the largest clusters, and of a second pass over it when pods of 1 % of
// the nodes have gone.
func passMillis(scenes []*scene) (cold, warm time.Duration, err error) {
	largest := 0
	for _, s := range scenes {
		largest = max(largest, len(s.start.Nodes))
	}
	for _, s := range scenes {
		if len(s.start.Nodes) < largest*9/10 {
			continue
		}
		c := s.start.Clone()
		p := newProduct(c, consolidation.DefaultPolicy())
		for pass := range 2 {
			var took time.Duration
			runtime.GC()
			if _, err = p.Pass(day.Start.Add(time.Duration(pass)*time.Minute), len(c.Nodes), func(propose func()) {
				before := cpu()
				propose()
				took = cpu() - before
			}); err != nil {
				return 0, 0, err
			}
			if pass == 0 {
				cold = max(cold, took)
				c.Sweep()
				for i := 0; i < len(c.Nodes); i += 100 {
					if n := c.Nodes[i]; n.Count > 1 {
						c.Put(n, n.Pods[0].Class, -1)
					}
				}
			} else {
				warm = max(warm, took)
			}
		}
	}
	return cold, warm, nil
}
