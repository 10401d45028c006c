package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/standalone"
)

// settings are the program's flags.
type settings struct {
	pools, nodes int // nodes of each pool
	scaleIn      bool
	hold         time.Duration
	kills        int
}

func main() {
	var set settings
	flag.BoolVar(&set.scaleIn, "scalein", false, "scale pods in and have used nodes emptied, instead of a roll-out")
	flag.IntVar(&set.pools, "pools", 10, "pools of the roll-out; the first loses its capacity")
	flag.IntVar(&set.nodes, "nodes", 0, "nodes of each pool (default 50), or about so many in all for -scalein (default 200)")
	flag.DurationVar(&set.hold, "hold", 6*time.Minute, "for how long nothing may drift after the edits that must not drift; drift is looked for every few minutes")
	flag.IntVar(&set.kills, "kills", 5, "how often the scheduler is killed while used nodes are emptied")
	flag.Parse()
	if set.nodes == 0 {
		set.nodes = 50
		if set.scaleIn {
			set.nodes = 200
		}
	}
	name, run := "rollout", rollOut
	if set.scaleIn {
		name, run = "scalein", scaleIn
	}
	if set.pools < 2 || set.pools > 100 || set.nodes < 2 || set.nodes > 1000 || set.kills < 0 || flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "%s: want 2 to 100 -pools, 2 to 1000 -nodes, no negative -kills, and no other arguments\n", name)
		os.Exit(2)
	}
	standalone.Main(name, func(ctx context.Context, dir string) error { return inSystem(ctx, dir, set, run) })
}

// inSystem runs one of the two in a system of its own.
func inSystem(ctx context.Context, dir string, set settings, run func(context.Context, *system) error) error {
	standalone.Say("building what isn't built (the first time this compiles Kubernetes)")
	for _, b := range []cluster.Binary{cluster.ControlPlane, cluster.Scheduler} {
		if _, err := cluster.Build(ctx, b); err != nil {
			return err
		}
	}
	s, err := begin(ctx, filepath.Join(dir, "cluster"), set)
	if err != nil {
		return err
	}
	defer s.Stop()
	if err := run(ctx, s); err != nil {
		return err
	}
	return errors.Join(s.faults...)
}
