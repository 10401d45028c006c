package packing

// Values estimates what a piece of each item is worth, in the currency of prices: its share of the cheapest candidates if pieces could be
// cut. floors are lower values: by them no candidate can hold pieces worth more than the candidate costs, so their sum over any pieces is a lower
// bound for the cost of packing these. floors are nil if there are scarce candidates. A piece that no candidate holds has the value 0.
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
