package packing

// Values estimates what a piece of each item is worth, in the currency of prices: its share of the cheapest candidates if pieces could be
// cut. floors are values under which no candidate's pattern is worth more than the candidate costs: what they add up to over any pieces is a
// lower bound for the cost of packing these. nil: unknown, because there are scarce candidates. A piece that no candidate holds has no value.
func Values(p *Problem) (values, floors []float64) {
	values = make([]float64, len(p.Items))
	k := newKinds(p)
	if len(k.kinds) == 0 {
		return values, values
	}
	fluid, sure := k.prices()
	k.clip(fluid)
	if sure != nil {
		floors = make([]float64, len(p.Items))
	}
	for i := range k.kinds {
		for _, it := range k.kinds[i].items {
			values[it] = fluid[i]
			if sure != nil {
				floors[it] = sure[i]
			}
		}
	}
	return values, floors
}
