package catalog

import (
	"maps"
	"slices"
	"strconv"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Memory is the catalog of the last plan. The next plan uses it if nothing that it depends on has changed: in a burst plans are made
// every second, while prices change every few minutes.
type Memory struct {
	last *Catalog
	id   string // of last (catalogID)
	// types are the slices that the catalog was made from; holding them keeps their addresses from being reused.
	types [][]*capacity.InstanceType
}

// maxMatched limits the number of different asks for which a catalog caches the result.
const maxMatched = 4096

// Catalog returns what can be bought within the pools' own limits and what holds for all of them.
func (m *Memory) Catalog(pools []*capacity.Pool, within Within, opts *capacity.Options, mentioned *Mentions) *Catalog {
	id := catalogID(pools, within, opts, mentioned)
	if m.last != nil && m.id == id && len(m.last.matched) < maxMatched && slices.EqualFunc(m.types, pools, sameTypes) {
		for i, p := range m.last.Pools {
			p.Pool = pools[i] // the use of its limits may have changed
		}
		m.last.Budgets.Total = within.Total
		if m.last.Budgets.coverage != nil {
			m.last.Budgets.coverage = within.Coverage // more or less may be left
		}
		return m.last
	}
	m.last, m.id, m.types = newCatalog(pools, within, opts, mentioned), id, nil
	for _, p := range pools {
		m.types = append(m.types, p.Types)
	}
	return m.last
}

func sameTypes(types []*capacity.InstanceType, p *capacity.Pool) bool {
	return len(types) == len(p.Types) && (len(types) == 0 || &types[0] == &p.Types[0])
}

// catalogID returns everything that a catalog depends on, except the types.
func catalogID(pools []*capacity.Pool, within Within, opts *capacity.Options, mentioned *Mentions) string {
	k := make(capacity.KeyBytes, 0, 1024)
	k.Text(strconv.FormatFloat(opts.NodeSurcharge, 'g', -1, 64))
	k.Count(len(opts.PriceFactor))
	for _, family := range slices.Sorted(maps.Keys(opts.PriceFactor)) {
		k.Text(family, strconv.FormatFloat(opts.PriceFactor[family], 'g', -1, 64))
	}
	if coverage := within.Coverage; coverage.Room() {
		k.Count(len(coverage.Commitments))
		for i := range coverage.Commitments {
			m := &coverage.Commitments[i]
			k.Text(m.Name, strconv.FormatFloat(m.RateFactor, 'g', -1, 64), strconv.FormatBool(coverage.Left(i) > 0))
			k.Count(len(m.Families))
			k.Text(m.Families...)
		}
	} else {
		k.Count(0)
	}
	if within.Total == nil {
		k.Count(0)
	} else {
		k.Count(len(within.Total.Limits))
		for _, name := range slices.Sorted(maps.Keys(within.Total.Limits)) {
			k.Text(string(name))
		}
	}
	k.Count(len(pools))
	for _, p := range pools {
		k.Text(p.Name, strconv.Itoa(int(p.Weight)), strconv.FormatBool(p.Unready == ""), strconv.FormatBool(p.Replicas == nil))
		k.Texts(p.Labels)
		k.Requirements(p.Requirements)
		for _, r := range p.Requirements.Sorted() {
			k.Count(r.MinValues)
			k.Text(strconv.FormatBool(mentioned.counted[r.Key]))
		}
		asked := mentioned.among(openKeys(p))
		k.Count(len(asked))
		for _, term := range asked {
			k.Requirements(term)
		}
		k.Count(len(p.Schedulers))
		k.Text(p.Schedulers...)
		k.Count(len(p.Taints))
		for i := range p.Taints {
			k.Text(p.Taints[i].Key, p.Taints[i].Value, string(p.Taints[i].Effect))
		}
		k.Count(len(p.Limits))
		for _, name := range slices.Sorted(maps.Keys(p.Limits)) {
			k.Text(string(name))
		}
	}
	return string(k)
}
