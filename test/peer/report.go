package main

import (
	"fmt"
	"io"

	model "github.com/dovetail-scheduler/dovetail/test/consolidation/cluster"
)

// report is what has come out.
type report struct {
	before   *model.Cluster
	bound    float64
	emulated []usage // by order of the nodes
	// karpenter is what Karpenter has reached in the end, done: it found nothing more to do. cheapest is its lowest cost on the way.
	karpenter, cheapest usage
	done                bool
}

// print prints a table, and Karpenter's figures as ratios to the emulation's means.
func (r *report) print(out io.Writer) {
	k := r.karpenter
	cost := spreadOf(r.emulated, func(u usage) float64 { return u.cost })
	nodes := spreadOf(r.emulated, func(u usage) float64 { return float64(u.nodes) })
	evicted := spreadOf(r.emulated, func(u usage) float64 { return float64(u.evicted) })
	commands := spreadOf(r.emulated, func(u usage) float64 { return float64(u.commands) })
	fmt.Fprintln(out, "| | nodes | $/h | cost/bound | evictions | commands |")
	fmt.Fprintln(out, "| --- | --- | --- | --- | --- | --- |")
	fmt.Fprintf(out, "| before, %d pods | %d | %.2f | %.3f | | |\n", r.before.PodCount(), len(r.before.Nodes), r.before.Cost(), r.before.Cost()/r.bound)
	fmt.Fprintf(out, "| emulation, %d orders of the nodes: mean (least to most) | %s | %s | %.3f | %s | %s |\n", len(r.emulated), nodes.text(1), cost.text(2),
		cost.mean/r.bound, evicted.text(0), commands.text(1))
	for _, x := range []struct {
		name string
		usage
	}{{"Karpenter, at its lowest cost", r.cheapest}, {"Karpenter, in the end", k}} {
		fmt.Fprintf(out, "| %s | %d | %.2f | %.3f | %d | %d |\n", x.name, x.nodes, x.cost, x.cost/r.bound, x.evicted, x.commands)
	}
	end := "found nothing more to do"
	if !r.done {
		end = fmt.Sprintf("was stopped after %.0f minutes, before it was done", atMost.Minutes())
	}
	fmt.Fprintf(out, "\nKarpenter %s. Commands with a replacement: %d; commands for empty nodes, not counted above: %d; candidates that were dropped before their command "+
		"was carried out: %d. Nodes launched: %d, of them for evicted pods that fitted nowhere: %d.\n", end, k.replacing, k.empty, k.refused, k.launched, k.forPods)
	fmt.Fprintf(out, "peer: cost %.3f evictions %.3f commands %.3f\n", k.cost/cost.mean, float64(k.evicted)/evicted.mean, float64(k.commands)/commands.mean)
}

// spread is the mean of values, the least and the most.
type spread struct{ mean, least, most float64 }

func spreadOf(of []usage, value func(usage) float64) spread {
	s := spread{least: value(of[0]), most: value(of[0])}
	for _, u := range of {
		v := value(u)
		s.mean += v / float64(len(of))
		s.least, s.most = min(s.least, v), max(s.most, v)
	}
	return s
}

func (s spread) text(digits int) string {
	return fmt.Sprintf("%.*f (%.*f to %.*f)", digits, s.mean, digits, s.least, digits, s.most)
}
