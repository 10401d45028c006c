package main

import (
	"fmt"
)

// What may change between the second quarter of a part and its last, beside what the numbers scatter anyway.
const (
	heapGrowth, heapScatter           = 0.10, 16 << 20
	rssGrowth, rssScatter             = 0.15, 48 << 20
	goroutineGrowth, goroutineScatter = 0.05, 50
	// queueScatter is how many more keys or pods than before may wait, in the middle of the quarter: a second's worth.
	queueScatter = 50
)

const (
	// podRequests is the most that a pod may cost, in requests of the scheduler to the API server, when nothing is launched: its
	// binding and its event, as with kube-scheduler, the record that it came and the record that it began to end on its node's
	// claim (fewer with many nodes), and a little beside.
	podRequests = 4.5
	// nodeRequests is the most that a pod may cost with a machine of its own, from NodeClaim to the end of it.
	nodeRequests = 80.0
	// served is the least share of the pods that has to be scheduled by the end. Of the last tenth nothing is demanded: they have
	// come just now, and may wait for a machine that boots.
	served = 0.98
)

// part is one of the three, when it is over.
type part struct {
	name    string
	samples []sample
	// limit is the most requests that a pod may cost; 0: that is not judged.
	limit float64
	// yardstick: not ours, so only whether it served its pods is judged. That kube-scheduler's own caches grow is its business.
	yardstick bool
}

// perPod are the requests for each pod scheduled between the second quarter's begin and the end.
func (p part) perPod() float64 {
	a, b := p.samples[len(p.samples)/4], p.samples[len(p.samples)-1]
	return (b.allRequests() - a.allRequests()) / max(1, b.scheduled-a.scheduled)
}

// judge is what is wrong with a part; nothing: it holds.
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
		of := func(s sample) float64 { return s.queues[name] }
		grown("queue "+name, median(before, of), median(after, of), 0, queueScatter, whole)
	}
	first, last := p.samples[0], p.samples[len(p.samples)-1]
	if done, due := last.scheduled-first.scheduled, p.samples[len(p.samples)*9/10].created; done < served*due {
		problems = append(problems, fmt.Sprintf("%.0f pods were scheduled in the end, long after %.0f had been created", done, due))
	}
	if p.limit > 0 && p.perPod() > p.limit {
		problems = append(problems, fmt.Sprintf("a pod cost %.2f requests, at most %g are allowed", p.perPod(), p.limit))
	}
	return problems
}

func heap(s sample) float64       { return s.heap }
func rss(s sample) float64        { return s.rss }
func goroutines(s sample) float64 { return s.goroutines }

func mib(v float64) string   { return fmt.Sprintf("%.0f MiB", v/(1<<20)) }
func whole(v float64) string { return fmt.Sprintf("%.0f", v) }
