// Command quality measures how cheap plans are: each workload's cost relative to a lower bound, at several amounts of effort, and how
// many pods one core plans per second.
//
//	go run ./test/quality                                           # synthetic workloads, built-in catalogue
//	go run ./test/quality -worlds 200                               # random worlds, which are the same each time; fails beyond the design's bounds
//	go run ./test/quality -catalog FILE -bounds FILE WORKLOAD...    # workloads from files or folders
//
// It prints a table in Markdown. Costs are list prices; the scheduler's filters are not run (docs/performance.md has the figures).
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/dovetail-scheduler/dovetail/test/ec2/catalog"
	"github.com/dovetail-scheduler/dovetail/test/quality/workload"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("quality", flag.ContinueOnError)
	catalogFile := flags.String("catalog", os.Getenv("QUALITY_CATALOG"), "instance types, a file as in docs/catalog.md; empty: the built-in table (QUALITY_CATALOG)")
	boundsFile := flags.String("bounds", os.Getenv("QUALITY_BOUNDS"), "lower bounds, a line \"NAME ... lower=VALUE\" per workload; missing ones are computed by the planner (QUALITY_BOUNDS)")
	boundEffort := flags.Int("bound-effort", 10_000_000, "effort that goes into a bound which isn't given")
	seed := flags.Uint64("seed", 1, "seed of the synthetic workloads")
	seconds := flags.Float64("seconds", 1, "seconds of a core spent on measuring the speed of each plan, at least one plan")
	random := flags.Int("worlds", 0, "plan this many random worlds instead, at the default effort")
	best := flags.Int("best", 60, "seconds that are spent on the best plan of a random world, where that may matter")
	write := flags.String("write", "", "folder to write the workloads and the catalogue to, instead of planning")
	if err := flags.Parse(args); err != nil {
		return err
	}
	types, err := readCatalog(*catalogFile)
	if err != nil {
		return err
	}
	loads := workload.Synthetic(*seed)
	if flags.NArg() > 0 {
		if loads, err = readWorkloads(flags.Args()); err != nil {
			return err
		}
	}
	if *random > 0 {
		return worlds(out, types, *random, *best, settings{boundEffort: *boundEffort})
	}
	if *write != "" {
		return writeAll(*write, types, loads)
	}
	bounds, err := readBounds(*boundsFile)
	if err != nil {
		return err
	}
	return measure(out, types, loads, bounds, settings{boundEffort: *boundEffort, seconds: *seconds})
}

func readCatalog(file string) (*catalog.Catalog, error) {
	if file == "" {
		return catalog.Builtin(), nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c, err := catalog.Load(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return c, nil
}

func readWorkloads(paths []string) ([]*workload.Workload, error) {
	var out []*workload.Workload
	for _, path := range paths {
		files := []string{path}
		if info, err := os.Stat(path); err != nil {
			return nil, err
		} else if info.IsDir() {
			if files, err = filepath.Glob(filepath.Join(path, "*.json")); err != nil {
				return nil, err
			}
		}
		for _, file := range files {
			f, err := os.Open(file)
			if err != nil {
				return nil, err
			}
			w, err := workload.Read(f)
			f.Close()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			out = append(out, w)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no workloads in %v", paths)
	}
	return out, nil
}

var boundLine = regexp.MustCompile(`^(\S+)\s.*\blower=([0-9.]+)`)

// readBounds returns the highest lower bound of each workload.
func readBounds(file string) (map[string]float64, error) {
	out := map[string]float64{}
	if file == "" {
		return out, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		m := boundLine.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		v, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", file, m[1], err)
		}
		out[m[1]] = max(out[m[1]], v)
	}
	return out, lines.Err()
}

func writeAll(folder string, c *catalog.Catalog, loads []*workload.Workload) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	one := func(name string, write func(io.Writer) error) error {
		f, err := os.Create(filepath.Join(folder, name))
		if err != nil {
			return err
		}
		if err := write(f); err != nil {
			f.Close()
			return err
		}
		return f.Close()
	}
	for _, w := range loads {
		if err := one(w.Name+".json", w.Write); err != nil {
			return err
		}
	}
	return one("catalog.json_", c.Write) // a name that a search for workloads doesn't match
}
