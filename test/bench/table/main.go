// Command table turns the output of go test -bench, read from standard input, into one table per benchmark. Lines that are not results
// (logs, failures) are passed on unchanged.
//
// It does no statistics: it prints what was reported.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// result is one line of output: a benchmark, its part, and a value per unit.
type result struct {
	benchmark, part string
	values          map[string]float64
}

// run prints each benchmark's table after its last result.
func run(in io.Reader, out io.Writer) error {
	var open []result
	flush := func() error {
		err := write(out, open)
		open = nil
		return err
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		r, ok := parse(lines.Text())
		if !ok {
			if noise(lines.Text()) {
				continue
			}
			if err := flush(); err != nil {
				return err
			}
			if _, err := fmt.Fprintln(out, lines.Text()); err != nil {
				return err
			}
			continue
		}
		if len(open) > 0 && open[0].benchmark != r.benchmark {
			if err := flush(); err != nil {
				return err
			}
		}
		open = append(open, r)
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading results: %w", err)
	}
	return flush()
}

// noise reports whether a line adds nothing to a table.
func noise(line string) bool {
	for _, prefix := range []string{"goos:", "goarch:", "pkg:", "PASS", "testing: "} {
		if strings.HasPrefix(line, prefix) {
			return true
		}
	}
	return strings.HasPrefix(line, "Benchmark") && len(strings.Fields(line)) == 1
}

// parse reads "BenchmarkName/part-2 100 1.5 some-unit 7 ns/op".
func parse(line string) (result, bool) {
	fields := strings.Fields(line)
	if len(fields) < 4 || len(fields)%2 != 0 || !strings.HasPrefix(fields[0], "Benchmark") {
		return result{}, false
	}
	if _, err := strconv.Atoi(fields[1]); err != nil {
		return result{}, false
	}
	name := strings.TrimPrefix(fields[0], "Benchmark")
	if i := strings.LastIndexByte(name, '-'); i > 0 { // GOMAXPROCS
		if _, err := strconv.Atoi(name[i+1:]); err == nil {
			name = name[:i]
		}
	}
	r := result{values: map[string]float64{}}
	r.benchmark, r.part, _ = strings.Cut(name, "/")
	for i := 2; i < len(fields); i += 2 {
		v, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return result{}, false
		}
		r.values[fields[i+1]] = v
	}
	return r, true
}

// write prints one table: a row per part, a column per unit.
func write(out io.Writer, results []result) error {
	if len(results) == 0 {
		return nil
	}
	var units []string
	for _, r := range results {
		for unit := range r.values {
			if !slices.Contains(units, unit) {
				units = append(units, unit)
			}
		}
	}
	slices.Sort(units)
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\n%s\t%s\t\n", results[0].benchmark, strings.Join(units, "\t"))
	for _, r := range results {
		fmt.Fprintf(w, "%s\t", r.part)
		for _, unit := range units {
			if v, ok := r.values[unit]; ok {
				fmt.Fprint(w, readable(v))
			}
			fmt.Fprint(w, "\t")
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

// readable returns a value with three significant digits.
func readable(v float64) string {
	if v >= 100 || v == float64(int(v)) {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
