package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// table prints the parts side by side.
func table(w io.Writer, parts []part) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(what string, cell func(part) string) {
		fmt.Fprint(t, what)
		for _, p := range parts {
			fmt.Fprint(t, "\t", cell(p))
		}
		fmt.Fprintln(t)
	}
	fromTo := func(a, b float64, show func(float64) string) string { return show(a) + " -> " + show(b) }
	row("", func(p part) string { return p.name })
	row("pods scheduled", func(p part) string {
		last := p.samples[len(p.samples)-1]
		return fmt.Sprintf("%.0f of %.0f", last.Scheduled-p.samples[0].Scheduled, last.created)
	})
	row("pods per second", func(p part) string {
		first, last := p.samples[0], p.samples[len(p.samples)-1]
		return fmt.Sprintf("%.1f", last.created/last.At.Sub(first.At).Seconds())
	})
	row("heap, second quarter -> last", func(p part) string {
		return fromTo(floor(quarter(p.samples, 1), heap), floor(quarter(p.samples, 3), heap), mib)
	})
	row("resident memory", func(p part) string {
		return fromTo(median(quarter(p.samples, 1), rss), median(quarter(p.samples, 3), rss), mib)
	})
	row("goroutines", func(p part) string {
		return fromTo(median(quarter(p.samples, 1), goroutines), median(quarter(p.samples, 3), goroutines), whole)
	})
	row("longest work queue, median", func(p part) string {
		longest, name := 0.0, "-"
		for _, n := range queueNames(p.samples) {
			if v := median(quarter(p.samples, 3), func(s sample) float64 { return s.Queues[n] }); v > longest && !strings.HasPrefix(n, "pods ") {
				longest, name = v, n
			}
		}
		return fmt.Sprintf("%.0f (%s)", longest, name)
	})
	row("requests per pod", func(p part) string { return fmt.Sprintf("%.2f", p.perPod()) })
	row("of these", func(p part) string { return byMethod(p) })
	row("CPU per pod", func(p part) string {
		a, b := p.samples[len(p.samples)/4], p.samples[len(p.samples)-1]
		return fmt.Sprintf("%.1f ms", 1000*(b.CPU-a.CPU)/max(1, b.Scheduled-a.Scheduled))
	})
	t.Flush()
}

// byMethod returns the requests per pod, by method.
func byMethod(p part) string {
	a, b := p.samples[len(p.samples)/4], p.samples[len(p.samples)-1]
	var out []string
	for _, method := range slices.Sorted(maps.Keys(b.Requests)) {
		if n := (b.Requests[method] - a.Requests[method]) / max(1, b.Scheduled-a.Scheduled); n >= 0.005 {
			out = append(out, fmt.Sprintf("%s %.2f", method, n))
		}
	}
	return strings.Join(out, ", ")
}
