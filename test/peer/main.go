package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	model "github.com/dovetail-scheduler/dovetail/test/consolidation/cluster"
	"github.com/dovetail-scheduler/dovetail/test/consolidation/emulation"
	"github.com/dovetail-scheduler/dovetail/test/standalone"
)

const (
	// deadline bounds everything but the builds, atMost Karpenter's consolidation: it may find something to do forever.
	deadline = 14 * time.Minute
	atMost   = 10 * time.Minute
	// quiet is after how long without a change Karpenter has done what it can: it looks again every ten seconds, waits another 15 before it
	// carries a command out, and drops some commands then.
	quiet = 90 * time.Second
	// rest is after how long without a change pods and nodes are where they belong.
	rest = 5 * time.Second
	// orders is in how many orders of the nodes the emulation consolidates: Karpenter fills nodes in the order of their names, which
	// are random.
	orders      = 20
	boundEffort = 200_000
)

func main() {
	binary := flag.String("karpenter", filepath.Join("bin", "karpenter"), "Karpenter's main for the kwok provider")
	seed := flag.Uint64("seed", 1, "which pods are deleted")
	var o options
	flag.BoolVar(&o.balanced, "balanced", false, "consolidation policy Balanced instead of WhenEmptyOrUnderutilized")
	flag.BoolVar(&o.mostAllocated, "most-allocated", false, "kube-scheduler prefers the nodes with the most allocated, not those with the least")
	flag.Parse()
	standalone.Main("peer", func(ctx context.Context, dir string) error { return run(ctx, dir, *binary, *seed, o) })
}

func run(ctx context.Context, dir, binary string, seed uint64, o options) error {
	world, err := newWorld()
	if err != nil {
		return err
	}
	standalone.Say("building what isn't built (the first time this compiles Kubernetes)")
	for _, b := range []cluster.Binary{cluster.ControlPlane, cluster.Scheduler} {
		if _, err := cluster.Build(ctx, b); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, deadline, fmt.Errorf("not done within %s", deadline))
	defer cancel()
	standalone.Say("starting etcd, kube-apiserver, kube-controller-manager, kube-scheduler and Karpenter")
	s, err := start(ctx, dir, binary, world, o)
	if err != nil {
		return err
	}
	defer s.Stop()
	return s.day(ctx, os.Stdout, seed)
}

// day lets the emulation and Karpenter consolidate the same cluster, and reports.
func (s *system) day(ctx context.Context, out io.Writer, seed uint64) error {
	full := make([]int, len(s.world.Classes))
	for i := range full {
		full[i] = s.world.Classes[i].Count
	}
	standalone.Say("%d pods of %d ReplicaSets arrive", sum(full), len(full))
	if err := s.create(ctx); err != nil {
		return err
	}
	if err := s.settle(ctx, sum(full)); err != nil {
		return err
	}
	left := lose(full, rand.New(rand.NewPCG(seed, 9)))
	standalone.Say("%d of the pods are deleted", sum(full)-sum(left))
	if err := s.scale(ctx, left); err != nil {
		return err
	}
	if err := s.settle(ctx, sum(left)); err != nil {
		return err
	}
	before, err := s.snapshot()
	if err != nil {
		return err
	}
	standalone.Say("Karpenter may disrupt a tenth of the nodes at a time")
	r := report{before: before, bound: s.world.Pack(left, boundEffort).Bound, emulated: emulate(before, s.options.balanced, seed)}
	if r.karpenter, r.cheapest, r.done, err = s.consolidate(ctx, sum(left)); err != nil {
		return err
	}
	fmt.Fprintln(out)
	r.print(out)
	return nil
}

// emulate lets the emulation consolidate the cluster, with its nodes in different orders.
func emulate(from *model.Cluster, balanced bool, seed uint64) (out []usage) {
	random := rand.New(rand.NewPCG(seed, 79))
	for range orders {
		c := from.Clone()
		for _, n := range c.Nodes {
			n.Gone = n.Count == 0 // empty nodes are removed first
		}
		c.Sweep()
		if len(out) > 0 { // the first time in the order of their names
			random.Shuffle(len(c.Nodes), func(i, j int) { c.Nodes[i], c.Nodes[j] = c.Nodes[j], c.Nodes[i] })
		}
		tally := emulation.New(c, balanced).Run()
		out = append(out, usage{cost: c.Cost(), nodes: c.Live(), evicted: tally.Moved, commands: tally.Commands})
	}
	return out
}

func sum(counts []int) (total int) {
	for _, n := range counts {
		total += n
	}
	return total
}

// newClient returns a client without limits of its own.
func newClient(c *cluster.Cluster) (kubernetes.Interface, error) {
	config := c.AdminConfig()
	config.ContentType, config.QPS, config.Burst = runtime.ContentTypeProtobuf, -1, -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return client, nil
}
