package packing

// Values estimates what a piece of each item is worth, in the currency of prices: its share of the cheapest candidates if pieces could be
// cut. floors are lower values: by them no candidate can hold pieces worth more than the candidate costs, so their sum over any pieces is a lower
// bound for the cost of packing these. floors are nil if there are scarce candidates. A piece that no candidate holds has the value 0.
func Values(p *Problem) (values, floors []float64) {
	k := newKinds(p)
	if len(k.kinds) == 0 {
		none := make([]float64, len(p.Items))
		return none, none
	}
	fluid, sure := k.prices()
	k.clip(fluid)
	return k.byItem(fluid), k.byItem(sure)
}
