package consolidation

import (
	"math"
	"time"
)

// longest is the longest time in which a restart may pay back. Where the load changes over a day, moves that need longer are undone before
// they have paid: with an hour, evictions are a tenth more and the day costs no less (test/consolidation day).
const longest = 40 * time.Minute

// attempt is a node to be emptied, with the score that emptying it may have: an upper bound or, with a trial, the score of the trial.
type attempt struct {
	at    int32
	score float64
	t     *trial
	step  int // plan.steps when the trial was made
}

// attempts are a heap, the highest score first; among equals the order is that of the nodes.
type attempts []attempt

func (a attempts) before(i, j int) bool {
	if a[i].score != a[j].score {
		return a[i].score > a[j].score
	}
	return a[i].at < a[j].at
}

// down moves an attempt down to its place.
func (a attempts) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(a) {
			return
		}
		if right := child + 1; right < len(a) && a.before(right, child) {
			child = right
		}
		if !a.before(child, i) {
			return
		}
		a[i], a[child] = a[child], a[i]
		i = child
	}
}

// second returns the highest score but for the first attempt's; -Inf: there is no other.
func (a attempts) second() float64 {
	score := math.Inf(-1)
	for i := 1; i < min(3, len(a)); i++ {
		score = max(score, a[i].score)
	}
	return score
}

// order makes a heap of the attempts.
func (a attempts) order() {
	for i := len(a)/2 - 1; i >= 0; i-- {
		a.down(i)
	}
}

// pop removes the first attempt.
func (a *attempts) pop() {
	last := len(*a) - 1
	(*a)[0] = (*a)[last]
	(*a)[last] = attempt{}
	*a = (*a)[:last]
	a.down(0)
}

// singles empties the nodes one at a time, always the one that saves most per disruption, as long as that is worth it. p.kept gets the
// reason for each node that is not emptied. Scores only fall while a plan is made, because capacity is used up; so a score found earlier is an upper
// bound, and a node is tried again only when it has the highest.
func (p *plan) singles(nodes []int32) {
	queue := make(attempts, 0, len(nodes))
	for _, at := range nodes {
		n := &p.c.nodes[at]
		queue = append(queue, attempt{at: at, score: n.price / n.disruption})
	}
	queue.order()
	for len(queue) > 0 {
		x := &queue[0]
		n := &p.c.nodes[x.at]
		if top := n.price / n.disruption; x.t == nil && top < x.score*(1-1e-12) { // the node has got pods since it was queued
			x.score = top
			queue.down(0)
			continue
		}
		least, threshold := p.least(n)
		if x.score < least {
			p.kept[x.at] = p.tooLittle(n, x, least, threshold)
			queue.pop()
			continue
		}
		next := queue.second() * (1 - 1e-12)
		if x.t == nil || x.step != p.steps {
			x.t, x.step = p.try([]int32{x.at}, max(least, next), false), p.steps
			if x.t.kept.Kind != "" {
				p.kept[x.at] = x.t.kept
				queue.pop()
				continue
			}
			x.score = x.t.score()
			if x.t.rough {
				x.t = nil
			}
		}
		if x.score < least || x.score < next {
			queue.down(0)
			continue
		}
		t := x.t
		queue.pop()
		p.commit(t)
	}
}

// least returns what emptying the node must save per disruption, in $/h, to be worth it at all; threshold is what the policy Balanced alone asks
// for, 0 with other policies.
func (p *plan) least(n *node) (least, threshold float64) {
	policy, _ := p.c.policy(n.c)
	if policy.Consolidate == Balanced {
		threshold = balancedThreshold * p.totals[n.c.Pool].perDisruption() * (1 - 1e-9)
	}
	return math.Max(threshold, p.c.mean[n.c.Pool]*policy.RestartCost.Hours()/longest.Hours()), threshold
}

// tooLittle says why a node isn't emptied although that would save something.
func (p *plan) tooLittle(n *node, x *attempt, least, threshold float64) Kept {
	if threshold > 0 && x.score < threshold {
		return Kept{Kind: Unbalanced, Score: x.score / p.totals[n.c.Pool].perDisruption(), Threshold: balancedThreshold}
	}
	policy, _ := p.c.policy(n.c)
	return Kept{Kind: NotWorth, Saves: x.score * n.disruption, Cost: p.c.mean[n.c.Pool] * policy.RestartCost.Hours() * (n.disruption - 1)}
}
