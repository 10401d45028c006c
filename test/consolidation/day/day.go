package day

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dovetail-scheduler/dovetail/test/consolidation/cluster"
)

const (
	boot      = 1   // minutes until a replacement is ready
	budget    = 0.1 // the part of the nodes that may be disrupted at a time
	firstHour = 60  // minutes
	effort    = 20_000
	flapTime  = 30 // minutes within which capacity that is launched again was ended too early
)

// Consolidator is a side of the benchmark.
type Consolidator interface {
	// Pass consolidates, at each minute.
	Pass(d *Day) error
	// Score ranks nodes for arriving pods of a class: they go to the node with the highest score that they fit.
	Score(d *Day, n *cluster.Node, class int) float64
	// Repriced is told that prices have changed.
	Repriced()
}

// Tally is what a day has cost.
type Tally struct {
	Cost, Bound       float64 // $ for the day; Bound is a lower bound for its pods
	Evictions         int
	Launches          int
	Ended, Young      int // nodes that moves ended, and those of them that were younger than an hour
	Bought, FlapVCPUs float64
	PeakNodes         int
	cpuBought         []float64 // by minute, for pending pods
	cpuEnded          []float64 // by minute, by moves
}

// life is a node's life, in minutes.
type life struct {
	born, lastChange int
	leaves           int // when a node that is being drained ends; 0: it stays
}

// Day is a simulated day.
type Day struct {
	Cluster *cluster.Cluster
	Now     int
	span    span
	Tally   Tally
	side    Consolidator
	demand  *demand
	prices  *spotPrices
	victims *rand.Rand
	lives   map[*cluster.Node]*life
	pending []cluster.Share
}

// span is the minute at which a simulation begins, those from which on what happens counts, and until when.
type span struct{ from, begin, end int }

// Start is the time of minute 0.
var Start = time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)

// Run simulates a day with a side, after half a day that doesn't count.
func Run(w *cluster.World, l Load, seed uint64, side func(*Day) Consolidator) (Tally, error) {
	return run(w, l, seed, side, span{0, 12 * 60, 36 * 60})
}

// RunHours simulates some hours with a side, from an hour of the day on, after half an hour that doesn't count.
func RunHours(w *cluster.World, l Load, seed uint64, side func(*Day) Consolidator, from, hours int) (Tally, error) {
	return run(w, l, seed, side, span{from*60 - 30, from * 60, (from + hours) * 60})
}

func run(w *cluster.World, l Load, seed uint64, side func(*Day) Consolidator, s span) (Tally, error) {
	peak := make([]float64, len(w.Classes))
	for i := range peak {
		peak[i] = float64(w.Classes[i].Count)
	}
	d := &Day{Cluster: &cluster.Cluster{World: w}, demand: newDemand(l, peak, seed), victims: rand.New(rand.NewPCG(seed, 78)),
		span: s, lives: map[*cluster.Node]*life{}, Tally: Tally{cpuBought: make([]float64, s.end+1), cpuEnded: make([]float64, s.end+1)}}
	if l.Spot {
		onDemand := make([]float64, len(w.Types))
		for i := range onDemand {
			onDemand[i] = w.Types[i].OnDemand
		}
		d.prices = newSpotPrices(onDemand, seed)
		w.SetPrices(d.prices.next())
	}
	d.side = side(d)
	for d.Now = s.from + 1; d.Now <= s.end; d.Now++ {
		if d.prices != nil && d.Now%60 == 0 {
			w.SetPrices(d.prices.next())
			d.side.Repriced()
		}
		d.endNodes()
		d.demand.retarget(d.Now)
		d.scale()
		if err := d.schedule(); err != nil {
			return d.Tally, err
		}
		if err := d.side.Pass(d); err != nil {
			return d.Tally, err
		}
		d.count()
	}
	d.flaps()
	return d.Tally, nil
}

func (d *Day) life(n *cluster.Node) *life {
	x := d.lives[n]
	if x == nil {
		x = &life{born: d.Now, lastChange: d.Now}
		d.lives[n] = x
	}
	return x
}

// Born returns the time of a node's creation; Draining reports whether it is being drained.
func (d *Day) Born(n *cluster.Node) time.Time {
	return Start.Add(time.Duration(d.life(n).born) * time.Minute)
}

// Draining reports whether a node is being drained.
func (d *Day) Draining(n *cluster.Node) bool { return d.life(n).leaves > 0 }

// Budget returns how many more nodes may be disrupted now.
func (d *Day) Budget() int {
	leaving := 0
	for _, n := range d.Cluster.Nodes {
		if d.Draining(n) {
			leaving++
		}
	}
	return int(math.Ceil(budget*float64(len(d.Cluster.Nodes)))) - leaving
}

func (d *Day) counts() bool { return d.Now >= d.span.begin }

// endNodes ends the nodes that have been drained, and those without pods for a minute.
func (d *Day) endNodes() {
	for _, n := range d.Cluster.Nodes {
		x := d.life(n)
		if n.Gone = x.leaves > 0 && d.Now >= x.leaves || x.leaves == 0 && n.Count == 0 && d.Now > x.lastChange; n.Gone {
			delete(d.lives, n)
		}
	}
	d.Cluster.Sweep()
}

// scale removes and adds pods.
func (d *Day) scale() {
	for class, have := range d.Cluster.Counts() {
		gone, arrive := d.demand.change(class, have, d.Now)
		d.remove(class, gone)
		if arrive > 0 {
			d.pending = append(d.pending, cluster.Share{Class: class, Count: arrive})
		}
	}
}

// remove removes pods of a class at random.
func (d *Day) remove(class, count int) {
	if count == 0 {
		return
	}
	var on []*cluster.Node
	total := 0
	for _, n := range d.Cluster.Nodes {
		if pods := n.Of(class); pods > 0 {
			on = append(on, n)
			total += pods
		}
	}
	for ; count > 0 && total > 0; count, total = count-1, total-1 {
		i := d.victims.IntN(total)
		for _, n := range on {
			if i -= n.Of(class); i < 0 {
				d.Cluster.Put(n, class, -1)
				d.life(n).lastChange = d.Now
				break
			}
		}
	}
}

// schedule places the pending pods, those that request most CPU first, and launches nodes for those that fit nowhere.
func (d *Day) schedule() error {
	if len(d.pending) == 0 {
		return nil
	}
	w := d.Cluster.World
	slices.SortStableFunc(d.pending, func(a, b cluster.Share) int {
		return cmp.Compare(w.Classes[b.Class].Need[0], w.Classes[a.Class].Need[0])
	})
	left, err := d.place()
	if err != nil {
		return err
	}
	d.pending = d.pending[:0]
	for _, n := range d.Cluster.Buy(w.Pack(left, effort)) {
		d.Tally.cpuBought[d.Now] += w.Types[n.Type].VCPUs
		d.launched(n)
	}
	return nil
}

// place places pending pods on nodes by the side's scores, and returns how many of each class fit nowhere.
func (d *Day) place() (left []int, err error) {
	if p, ok := d.side.(placing); ok {
		return p.place(d, d.pending)
	}
	w := d.Cluster.World
	var open []*cluster.Node
	for _, n := range d.Cluster.Nodes {
		if !d.Draining(n) {
			open = append(open, n)
		}
	}
	scores := make([]float64, len(open))
	left = make([]int, len(w.Classes))
	for _, p := range d.pending {
		need := w.Classes[p.Class].Need
		for i, n := range open {
			if n.Free.Holds(need) {
				scores[i] = d.side.Score(d, n, p.Class)
			}
		}
		for range p.Count {
			best := -1
			for i, n := range open {
				if n.Free.Holds(need) && (best < 0 || scores[i] > scores[best]) {
					best = i
				}
			}
			if best < 0 {
				left[p.Class]++
				continue
			}
			d.put(open[best], p.Class)
			scores[best] = d.side.Score(d, open[best], p.Class)
		}
	}
	return left, nil
}

// put puts an arriving pod on a node.
func (d *Day) put(n *cluster.Node, class int) {
	d.Cluster.Put(n, class, 1)
	d.life(n).lastChange = d.Now
}

func (d *Day) launched(n *cluster.Node) {
	d.life(n)
	if d.counts() {
		d.Tally.Launches++
	}
}

// Moved records a move whose pods have been moved already: the nodes it has emptied end once what was launched for it is ready.
func (d *Day) Moved(from, launched []*cluster.Node, receivers []*cluster.Node, evicted int) {
	wait := 1
	if len(launched) > 0 {
		wait += boot
	}
	for _, n := range from {
		n.Gone = false
		x := d.life(n)
		x.leaves = d.Now + wait
		d.Tally.cpuEnded[d.Now] += d.Cluster.World.Types[n.Type].VCPUs
		if d.counts() {
			d.Tally.Ended++
			if d.Now-x.born < firstHour {
				d.Tally.Young++
			}
		}
	}
	for _, n := range launched {
		d.launched(n)
	}
	for _, n := range receivers {
		d.life(n).lastChange = d.Now
	}
	if d.counts() {
		d.Tally.Evictions += evicted
	}
}

// count adds a minute to the bill.
func (d *Day) count() {
	if !d.counts() {
		return
	}
	d.Tally.Cost += d.Cluster.Cost() / 60
	d.Tally.PeakNodes = max(d.Tally.PeakNodes, len(d.Cluster.Nodes))
	if d.Now%10 == 0 {
		d.Tally.Bound += d.Cluster.World.Pack(d.Cluster.Counts(), quick).Bound / 6
	}
}

// flaps counts the vCPUs that were launched for pending pods within half an hour after moves had ended as many.
func (d *Day) flaps() {
	t := &d.Tally
	owed := slices.Clone(t.cpuEnded)
	for now := d.span.begin; now <= d.span.end; now++ {
		b := t.cpuBought[now]
		t.Bought += b
		for then := max(0, now-flapTime); then <= now && b > 0; then++ {
			x := math.Min(owed[then], b)
			owed[then] -= x
			b -= x
			t.FlapVCPUs += x
		}
	}
}
