package packing

// workBudget counts work, and says how much is left. Work is, roughly, how many numbers were touched.
type workBudget struct {
	knapsack *knapsack
	lps      []*coveringLP
	// end is the amount of work after which optional work stops.
	end int
}

// The work of the fast path, as a fixed part and a part for each piece: it packs 100,000 pieces a second, and a few pieces in a few milliseconds.
const fastWork, fastWorkPerThing = 1.5e6, 2.5e3

// perEffort is the work that takes a microsecond, measured over many kinds of workloads. An effort of 1 is that much work.
const perEffort = 750

func newWorkBudget(k *kinds, effort int) *workBudget {
	w := &workBudget{knapsack: newKnapsack(k)}
	if effort == Quick {
		return w
	}
	w.end = fastWork
	for i := range k.kinds {
		w.end += fastWorkPerThing * k.kinds[i].count
	}
	w.end += perEffort * effort
	return w
}

func (w *workBudget) spent() int {
	n := w.knapsack.work
	for _, lp := range w.lps {
		n += lp.work
	}
	return n
}

// left returns how much work may still be done.
func (w *workBudget) left() int { return w.end - w.spent() }
