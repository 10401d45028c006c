package main

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

// settings come from the environment.
type settings struct {
	nodes   int
	lasts   time.Duration // of a part
	perSec  int           // pods created and deleted per second
	verbose int           // of the scheduler's log
}

func readSettings() (settings, error) {
	minutes := 10.0
	s := settings{nodes: 2000, perSec: 50, verbose: 2}
	if v := os.Getenv("SOAK_MINUTES"); v != "" {
		var err error
		if minutes, err = strconv.ParseFloat(v, 64); err != nil || minutes < 0.5 || minutes > 10000 {
			return s, fmt.Errorf("SOAK_MINUTES=%s: want a number from 0.5 to 10000", v)
		}
	}
	s.lasts = time.Duration(minutes * float64(time.Minute))
	for _, x := range []struct {
		name     string
		to       *int
		min, max int
	}{{"SOAK_NODES", &s.nodes, 1, 5000}, {"SOAK_PODS_PER_SECOND", &s.perSec, 1, 1000}, {"SOAK_V", &s.verbose, 1, 10}} {
		v := os.Getenv(x.name)
		if v == "" {
			continue
		}
		n, err := strconv.Atoi(v)
		if err != nil || n < x.min || n > x.max {
			return s, fmt.Errorf("%s=%s: want a number from %d to %d", x.name, v, x.min, x.max)
		}
		*x.to = n
	}
	return s, nil
}

// podLife is how long a pod lives: a minute, or less if parts are short, so that the number of pods is constant well before the second
// quarter.
func (s settings) podLife() time.Duration { return min(time.Minute, s.lasts/8) }

// sampleEvery is how often the scheduler is sampled.
func (s settings) sampleEvery() time.Duration {
	return max(time.Second, min(5*time.Second, s.lasts/60))
}
