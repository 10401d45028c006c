package worlds

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/dovetail-scheduler/dovetail/test/worlds/check"
	"github.com/dovetail-scheduler/dovetail/test/worlds/draw"
)

// Enough is the minimum share of planned pods that must be as planned, over all worlds of a run.
const Enough = 0.999

// Many is a run of several worlds.
type Many struct {
	Options
	Seeds []uint64
	Size  draw.Size
	// Side is how many worlds run in parallel, each on its own control plane; worlds spend most of their time waiting.
	Side int
	// Tell is called after each world, one call at a time.
	Tell func(*draw.World, *Result)
}

// Run runs all worlds and returns the sum of their reports.
func (m Many) Run(ctx context.Context) (*check.Report, error) {
	group, ctx := errgroup.WithContext(ctx)
	seeds := make(chan uint64, len(m.Seeds))
	for _, s := range m.Seeds {
		seeds <- s
	}
	close(seeds)
	var mu sync.Mutex
	total := &check.Report{}
	for i := range min(max(m.Side, 1), len(m.Seeds)) {
		group.Go(func() error {
			o := m.Options
			if o.Dir != "" {
				o.Dir = filepath.Join(o.Dir, strconv.Itoa(i))
			}
			r, err := Start(ctx, o)
			if err != nil {
				return err
			}
			defer r.Stop()
			for s := range seeds {
				w := draw.New(s, m.Size)
				result, err := r.Run(ctx, w)
				if err != nil {
					return err
				}
				mu.Lock()
				total.Add(&result.Report)
				m.Tell(w, result)
				mu.Unlock()
			}
			return nil
		})
	}
	return total, group.Wait()
}

// Verdict returns nil if a run has passed.
func Verdict(total *check.Report) error {
	if problems := total.Problems(); len(problems) > 0 {
		return fmt.Errorf("%d things are wrong, the first: %s", len(problems), problems[0])
	}
	if total.Planned == 0 {
		return fmt.Errorf("no pod was planned for: nothing has been shown")
	}
	if f := total.Fidelity(); f < Enough {
		return fmt.Errorf("%.3f%% of the planned pods are as planned, at least %.1f%% must be", 100*f, 100*Enough)
	}
	return nil
}
