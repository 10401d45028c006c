package main

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// settings are the flags.
type settings struct {
	parts, leaders       string
	nodes, memoryNodes   sizes
	podsPerNode          int
	perSec, memoryPerSec float64
	life, steady         time.Duration
	burst                int
	binary, logs         string
	patience             time.Duration
}

// sizes are numbers of nodes, in ascending order.
type sizes []int

func (s *sizes) String() string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(*s), " ", ","), "[]")
}

// Set implements flag.Value.
func (s *sizes) Set(text string) error {
	*s = nil
	for one := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(one)
		if err != nil || n < len(zones) || n > mostNodes {
			return fmt.Errorf("%q is not a number from %d to %d", one, len(zones), mostNodes)
		}
		*s = append(*s, n)
	}
	slices.Sort(*s)
	return nil
}

// mostNodes is how many addresses the simulator's subnets have, with some for bursts.
const mostNodes = 24000

func readFlags(flags *flag.FlagSet, args []string) (*settings, error) {
	s := &settings{nodes: sizes{1000, 5000}, memoryNodes: sizes{5000, 15000}}
	flags.StringVar(&s.parts, "parts", apiServer+","+memory, "which parts, separated by commas")
	flags.Var(&s.nodes, "nodes", "numbers of nodes of the part api-server, separated by commas")
	flags.Var(&s.memoryNodes, "memory-nodes", "those of the part memory")
	flags.IntVar(&s.podsPerNode, "pods-per-node", 10, "bound pods of a node, which fill it")
	flags.Float64Var(&s.perSec, "rate", 30, "pods created per second in the part api-server")
	flags.Float64Var(&s.memoryPerSec, "memory-rate", 100, "those in the part memory")
	flags.DurationVar(&s.life, "life", 20*time.Second, "how long each of these pods lives")
	flags.DurationVar(&s.steady, "steady", 45*time.Second, "how long they are measured before the burst")
	flags.IntVar(&s.burst, "burst", 5000, "pods of a burst")
	flags.StringVar(&s.leaders, "leaders", apiServer, "parts at whose largest size the leader changes, separated by commas")
	flags.StringVar(&s.binary, "binary", "", "the scheduler (default: built from this tree)")
	flags.StringVar(&s.logs, "logs", "", "folder for the schedulers' logs (default: they are kept only if something fails)")
	flags.DurationVar(&s.patience, "patience", 15*time.Minute, "bounds each wait")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if s.podsPerNode < 1 || s.podsPerNode > 15 {
		return nil, errors.New("-pods-per-node: want a number from 1 to 15")
	}
	if s.burst < 1 {
		return nil, errors.New("-burst: want a positive number")
	}
	if s.steady < s.life {
		return nil, errors.New("-steady is shorter than -life: the number of pods wouldn't be constant")
	}
	parts, err := s.chosen()
	if err != nil {
		return nil, err
	}
	for _, p := range parts {
		if most := float64(loadPerNode * p.sizes[0]); p.perSec*s.life.Seconds() > most {
			return nil, fmt.Errorf("-rate: %g pods per second that live for %s don't fit on %d nodes, which have room for %g", p.perSec, s.life, p.sizes[0], most)
		}
	}
	return s, nil
}

// loadPerNode is how many pods of the load are to be on a node at most. There is room for twice as many, because they don't end at once.
const loadPerNode = 2

// chosen returns the parts to run.
func (s *settings) chosen() (out []*part, err error) {
	changing := strings.Split(s.leaders, ",")
	for name := range strings.SplitSeq(s.parts, ",") {
		leaders := slices.Contains(changing, name)
		switch name {
		case apiServer:
			out = append(out, &part{name: name, sizes: s.nodes, perSec: s.perSec, leaders: leaders, begin: beginAPIServer})
		case memory:
			out = append(out, &part{name: name, sizes: s.memoryNodes, perSec: s.memoryPerSec, leaders: leaders, begin: beginMemory})
		default:
			return nil, fmt.Errorf("-parts: there is no part %q", name)
		}
	}
	return out, nil
}
