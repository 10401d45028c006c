package consolidation

import (
	"container/heap"
	"math"
	"time"
)

// longest is the longest time in which a restart may pay back. Where the load changes over a day, moves that need longer are undone before
// they have paid: with an hour, evictions are a tenth more and the day costs no less (test/consolidation day).
const longest = 40 * time.Minute

// attempt is a node to be emptied, with the score that emptying it may have: an upper bound or, with a trial, that of the trial.
type attempt struct {
	at    int32
	score float64
	t     *trial
	step  int // at which the trial was made
}

// attempts are a heap, the highest score first; among equals the order is that of the nodes.
type attempts []attempt

func (a attempts) Len() int { return len(a) }
func (a attempts) Less(i, j int) bool {
	if a[i].score != a[j].score {
		return a[i].score > a[j].score
	}
	return a[i].at < a[j].at
}
func (a attempts) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *attempts) Push(x any)   { *a = append(*a, x.(attempt)) }
func (a *attempts) Pop() any {
	old := *a
	x := old[len(old)-1]
	*a = old[:len(old)-1]
	return x
}

// singles empties the nodes one at a time, always the one that saves most per disruption, as long as that is worth it. p.kept gets the
// reason for each node that is not emptied. Scores only fall while a plan is made, because capacity is used up; so a score found earlier is an upper
// bound, and a node is tried again only when it has the highest.
func (p *plan) singles(nodes []int32) {
	var queue attempts
	for _, at := range nodes {
		n := &p.c.nodes[at]
		queue = append(queue, attempt{at: at, score: n.price / n.disruption})
	}
	heap.Init(&queue)
	for queue.Len() > 0 {
		x := heap.Pop(&queue).(attempt)
		n := &p.c.nodes[x.at]
		if top := n.price / n.disruption; x.t == nil && top < x.score*(1-1e-12) { // it has got pods since
			x.score = top
			heap.Push(&queue, x)
			continue
		}
		least, threshold := p.least(n)
		if x.score < least {
			p.kept[x.at] = p.tooLittle(n, x, least, threshold)
			continue
		}
		if x.t == nil || x.step != p.steps {
			enough := least
			if queue.Len() > 0 {
				enough = max(least, queue[0].score*(1-1e-12))
			}
			x.t, x.step = p.try([]int32{x.at}, enough, false), p.steps
			if x.t.kept.Kind != "" {
				p.kept[x.at] = x.t.kept
				continue
			}
			x.score = x.t.score()
			if x.t.rough {
				x.t = nil
			}
		}
		if x.score < least || queue.Len() > 0 && x.score < queue[0].score*(1-1e-12) {
			heap.Push(&queue, x)
			continue
		}
		p.commit(x.t)
	}
}

// least returns what emptying the node must save per disruption to be worth it at all; threshold is the part of it that is the policy
// Balanced's.
func (p *plan) least(n *node) (least, threshold float64) {
	policy, _ := p.c.policy(n.c)
	if policy.Consolidate == Balanced {
		threshold = balancedThreshold * p.totals[n.c.Pool].perDisruption() * (1 - 1e-9)
	}
	return math.Max(threshold, p.c.mean[n.c.Pool]*policy.RestartCost.Hours()/longest.Hours()), threshold
}

// tooLittle says why a node isn't emptied although that would save something.
func (p *plan) tooLittle(n *node, x attempt, least, threshold float64) Kept {
	if threshold > 0 && x.score < threshold {
		return Kept{Kind: Unbalanced, Score: x.score / p.totals[n.c.Pool].perDisruption(), Threshold: balancedThreshold}
	}
	policy, _ := p.c.policy(n.c)
	return Kept{Kind: NotWorth, Saves: x.score * n.disruption, Cost: p.c.mean[n.c.Pool] * policy.RestartCost.Hours() * (n.disruption - 1)}
}
