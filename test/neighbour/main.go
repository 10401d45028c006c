package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"time"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/standalone"
)

const (
	// patience bounds everything but the builds and the holds, atMost each wait until nodes and pods are at rest.
	patience = 20 * time.Minute
	atMost   = 4 * time.Minute
)

func main() {
	binary := flag.String("karpenter", filepath.Join("bin", "karpenter-aws"), "karpenter-provider-aws's main")
	hold := flag.Duration("hold", 30*time.Minute, "for how long Karpenter has the nodes, and must leave them as they are")
	flag.Parse()
	standalone.Main("neighbour", func(ctx context.Context, dir string) error { return run(ctx, dir, *binary, *hold) })
}

func run(ctx context.Context, dir, binary string, hold time.Duration) error {
	standalone.Say("building what isn't built (the first time this compiles Kubernetes)")
	for _, b := range []cluster.Binary{cluster.ControlPlane, cluster.Scheduler} {
		if _, err := cluster.Build(ctx, b); err != nil {
			return err
		}
	}
	limit := patience + 2*hold
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %s", limit))
	defer cancel()
	s, err := start(ctx, filepath.Join(dir, "cluster"), binary)
	if err != nil {
		return err
	}
	defer s.Stop()
	if err := s.story(ctx, hold); err != nil {
		return err
	}
	return errors.Join(s.faults...)
}
