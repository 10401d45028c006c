package packing

// works keeps account of work: of numbers touched, more or less.
type works struct {
	knapsack *knapsack
	lps      []*cover
	// end is where work that may be left out ends.
	end int
}

// What the fast path may cost: so that 100,000 things a second are packed, and a few not in more than a few milliseconds.
const fastWork, fastWorkPerThing = 1.5e6, 2.5e3

// perEffort is how much work takes a microsecond, measured over workloads of many kinds.
const perEffort = 750

func newWorks(k *kinds, effort int) *works {
	w := &works{knapsack: newKnapsack(k)}
	if effort == Quick {
		return w
	}
	w.end = fastWork
	for i := range k.kinds {
		w.end += fastWorkPerThing * k.kinds[i].count
	}
	w.end = max(w.end, perEffort*effort)
	return w
}

func (w *works) spent() int {
	n := w.knapsack.work
	for _, lp := range w.lps {
		n += lp.work
	}
	return n
}

// left is how much work may still be done.
func (w *works) left() int { return w.end - w.spent() }
