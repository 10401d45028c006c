package consolidation

import (
	"maps"
	"slices"
	"time"
)

// maxGap is the longest time between passes that counts: for longer it isn't known what would have been saved.
const maxGap = 15 * time.Minute

// Accrual is how much would have been saved on each node so far if it had been emptied when that was first possible, less what moves have
// cost. A move is due when that covers its cost, so that, per node and in total, what moves cost never exceeds what waiting has cost. It is
// forgotten at a restart of the process, which only means to wait longer. The zero value is ready for use; it is not safe for concurrent use.
type Accrual struct {
	accounts map[string]account
	totals   map[string]Totals
}

// Totals are the sums over a pool's nodes since the beginning, in $: what waiting has cost, and what moves have cost that were made to save
// money. Unless moving pods of the pool costs nothing, Paid is never more than Accrued.
type Totals struct{ Accrued, Paid float64 }

// Totals returns the totals of each pool.
func (a *Accrual) Totals() map[string]Totals { return maps.Clone(a.totals) }

func (a *Accrual) count(pool string, accrued, paid float64) {
	if a.totals == nil {
		a.totals = map[string]Totals{}
	}
	t := a.totals[pool]
	a.totals[pool] = Totals{t.Accrued + accrued, t.Paid + paid}
}

// account is what has accrued on a node until a time, and what accrues per hour from then on.
type account struct {
	pool        string
	saved, rate float64
	at          time.Time
}

func (a account) now(now time.Time) float64 {
	return a.saved + a.rate*min(max(0, now.Sub(a.at)), maxGap).Hours()
}

// Of returns what has accrued on a node, in $.
func (a *Accrual) Of(node string, now time.Time) float64 {
	if a == nil {
		return 0
	}
	return a.accounts[node].now(now)
}

// Observe records what accrues on each node from now on, until the next pass: Proposal.Rates. nodes are the candidates that still exist;
// all others are forgotten.
func (a *Accrual) Observe(rates map[string]float64, candidates []Candidate, now time.Time) {
	next := make(map[string]account, len(a.accounts))
	for i := range candidates {
		node := candidates[i].Node
		old, known := a.accounts[node]
		rate := rates[node]
		if !known && rate == 0 {
			continue
		}
		saved := old.now(now)
		a.count(candidates[i].Pool, saved-old.saved, 0)
		next[node] = account{pool: candidates[i].Pool, saved: saved, rate: rate, at: now}
	}
	a.accounts = next
}

// Pay takes a move's cost from what has accrued on its nodes, from each node in proportion to its part. Callers pay when a move begins, and
// only for moves that are made to save money.
func (a *Accrual) Pay(m *Move, now time.Time) {
	total := 0.0
	for _, node := range m.Nodes {
		total += a.Of(node, now)
	}
	for _, node := range m.Nodes {
		x, known := a.accounts[node]
		if !known {
			continue
		}
		saved := x.now(now)
		part := 0.0
		if total > 0 {
			part = m.Cost * saved / total
		}
		a.count(x.pool, saved-x.saved, part)
		x.saved = saved - part
		x.at = now
		a.accounts[node] = x
	}
}

// Nodes returns the nodes on which something has accrued, sorted.
func (a *Accrual) Nodes() []string { return slices.Sorted(maps.Keys(a.accounts)) }
