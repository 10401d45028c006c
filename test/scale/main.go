package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/standalone"
)

// The parts.
const apiServer, memory = "api-server", "memory"

// part is one of the two parts, with what was measured in it.
type part struct {
	name   string
	sizes  sizes
	perSec float64
	// leaders: at the largest size the leader changes.
	leaders bool
	begin   func(ctx context.Context, dir string, set *settings) (*system, error)

	weights weights
	points  []*point
	changes []leaderChange
}

func main() {
	set, err := readFlags(flag.CommandLine, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(2)
	}
	standalone.Main("scale", func(ctx context.Context, dir string) error { return run(ctx, dir, set) })
}

// run runs the parts and prints the table, also of what was measured before something failed.
func run(ctx context.Context, dir string, set *settings) error {
	parts, err := set.chosen()
	if err != nil {
		return err
	}
	standalone.Say("building what isn't built (the first time this compiles Kubernetes)")
	if set.binary == "" {
		if set.binary, err = cluster.Build(ctx, cluster.Scheduler); err != nil {
			return err
		}
	}
	var problems []error
	for _, p := range parts {
		if err := p.run(ctx, filepath.Join(dir, p.name), set); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", p.name, err))
		}
		for _, at := range p.points {
			for _, problem := range at.problems {
				problems = append(problems, fmt.Errorf("%s, %d nodes: %s", p.name, at.nodes, problem))
			}
		}
		if ctx.Err() != nil {
			break
		}
	}
	fmt.Println()
	report(os.Stdout, parts, len(problems))
	return errors.Join(problems...)
}

// run measures at each size, and changes the leader at the last.
func (p *part) run(ctx context.Context, dir string, set *settings) error {
	s, err := p.begin(ctx, dir, set)
	if err != nil {
		return err
	}
	defer s.Stop()
	if err := s.launchModels(ctx, &p.weights); err != nil {
		return fmt.Errorf("launching the nodes that are copied: %w", err)
	}
	for i, nodes := range p.sizes {
		if err := s.addNodes(ctx, nodes); err != nil {
			return fmt.Errorf("adding nodes: %w", err)
		}
		if i == 0 {
			if err := s.weighNodes(ctx, &p.weights); err != nil {
				return err
			}
		}
		if err := s.addPods(ctx); err != nil {
			return fmt.Errorf("adding pods: %w", err)
		}
		at := &point{nodes: nodes, pods: nodes * set.podsPerNode}
		p.points = append(p.points, at)
		scheduler, err := s.measure(ctx, p, at)
		if err != nil {
			return fmt.Errorf("%d nodes: %w", nodes, err)
		}
		if err := s.end(ctx, scheduler); err != nil {
			return err
		}
		if i == 0 {
			p.weights.weighPods(at)
			if err := s.weighMetrics(ctx, &p.weights); err != nil {
				return err
			}
		}
	}
	if !p.leaders {
		return nil
	}
	if p.changes, err = s.changeLeaders(ctx, p); err != nil {
		return fmt.Errorf("changing the leader: %w", err)
	}
	return nil
}
