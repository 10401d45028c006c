package main

import (
	"fmt"
)

// What may change between the second quarter of a part and its last: a share, and an amount by which the numbers vary anyway.
const (
	heapGrowth, heapScatter           = 0.10, 16 << 20
	rssGrowth, rssScatter             = 0.15, 48 << 20
	goroutineGrowth, goroutineScatter = 0.05, 50
	// queueScatter is by how many keys or pods the queues' median may grow: a second's worth.
	queueScatter = 50
)

const (
	// podRequests is the maximum number of the scheduler's API requests per pod if nothing is launched: its binding and its event, as
	// with kube-scheduler, two records on its node's NodeClaim, that the pod was placed and that it began to terminate (fewer with
	// many nodes), and a small margin.
	podRequests = 4.5
	// nodeRequests is the maximum per pod that has its own node, from the creation of the NodeClaim to its deletion.
	nodeRequests = 80.0
	// served is the minimum share of the pods that must be scheduled by the end. The last tenth is not counted: they are new, and may
	// be waiting for a booting node.
	served = 0.98
)

// part is one of the three parts, with its samples.
type part struct {
	name    string
	samples []sample
	// limit is the maximum number of requests per pod; 0: not judged.
	limit float64
	// yardstick: this part runs without our plugins, so only whether it scheduled its pods is judged. Growth of kube-scheduler's own
	// caches is not a fault of ours.
	yardstick bool
}

// perPod returns the requests per pod scheduled between the beginning of the second quarter and the end.
func (p part) perPod() float64 {
	a, b := p.samples[len(p.samples)/4], p.samples[len(p.samples)-1]
	return (b.AllRequests() - a.AllRequests()) / max(1, b.Scheduled-a.Scheduled)
}

// judge returns the problems of a part; none if it passes.
func (p part) judge() (problems []string) {
	if len(p.samples) < 8 {
		return []string{fmt.Sprintf("only %d samples", len(p.samples))}
	}
	before, after := quarter(p.samples, 1), quarter(p.samples, 3)
	grown := func(what string, a, b, share, scatter float64, show func(float64) string) {
		if !p.yardstick && b > a*(1+share)+scatter {
			problems = append(problems, fmt.Sprintf("%s went from %s to %s", what, show(a), show(b)))
		}
	}
	grown("the heap", floor(before, heap), floor(after, heap), heapGrowth, heapScatter, mib)
	grown("resident memory", median(before, rss), median(after, rss), rssGrowth, rssScatter, mib)
	grown("the number of goroutines", median(before, goroutines), median(after, goroutines), goroutineGrowth, goroutineScatter, whole)
	for _, name := range queueNames(p.samples) {
		of := func(s sample) float64 { return s.Queues[name] }
		grown("queue "+name, median(before, of), median(after, of), 0, queueScatter, whole)
	}
	first, last := p.samples[0], p.samples[len(p.samples)-1]
	if done, due := last.Scheduled-first.Scheduled, p.samples[len(p.samples)*9/10].created; done < served*due {
		problems = append(problems, fmt.Sprintf("%.0f pods were scheduled in the end, long after %.0f had been created", done, due))
	}
	if p.limit > 0 && p.perPod() > p.limit {
		problems = append(problems, fmt.Sprintf("a pod cost %.2f requests, at most %g are allowed", p.perPod(), p.limit))
	}
	return problems
}

func heap(s sample) float64       { return s.Heap }
func rss(s sample) float64        { return s.RSS }
func goroutines(s sample) float64 { return s.Goroutines }

func mib(v float64) string   { return fmt.Sprintf("%.0f MiB", v/(1<<20)) }
func whole(v float64) string { return fmt.Sprintf("%.0f", v) }
