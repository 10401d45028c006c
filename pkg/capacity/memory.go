package capacity

import (
	"maps"
	"slices"
	"strconv"
)

// memory is the catalog of the last plan. The next plan uses it if nothing that it depends on has changed: in a burst plans are made
// every second, while prices change every few minutes.
type memory struct {
	last *catalog
	id   string
	// types are the slices that the catalog was made from; holding them keeps their addresses from being reused.
	types [][]*InstanceType
}

// maxMatched limits the number of different asks for which a catalog caches the result.
const maxMatched = 4096

func (m *memory) catalog(pools []*Pool, opts *Options, mentioned map[string]map[string]bool) *catalog {
	id := catalogID(pools, opts, mentioned)
	if m.last != nil && m.id == id && len(m.last.matched) < maxMatched && slices.EqualFunc(m.types, pools, sameTypes) {
		for i, p := range m.last.pools {
			p.Pool = pools[i] // the use of its limits may have changed
		}
		return m.last
	}
	m.last, m.id, m.types = newCatalog(pools, opts, mentioned), id, nil
	for _, p := range pools {
		m.types = append(m.types, p.Types)
	}
	return m.last
}

func sameTypes(types []*InstanceType, p *Pool) bool {
	return len(types) == len(p.Types) && (len(types) == 0 || &types[0] == &p.Types[0])
}

// catalogID returns everything that a catalog depends on, except the types.
func catalogID(pools []*Pool, opts *Options, mentioned map[string]map[string]bool) string {
	k := make(keyBytes, 0, 1024)
	k.text(strconv.FormatFloat(opts.NodeSurcharge, 'g', -1, 64))
	k.count(len(opts.PriceFactor))
	for _, family := range slices.Sorted(maps.Keys(opts.PriceFactor)) {
		k.text(family, strconv.FormatFloat(opts.PriceFactor[family], 'g', -1, 64))
	}
	k.count(len(pools))
	for _, p := range pools {
		k.text(p.Name, strconv.Itoa(int(p.Weight)), strconv.FormatBool(p.Unready == ""), strconv.FormatBool(p.Replicas == nil))
		k.texts(p.Labels)
		k.requirements(p.Requirements)
		for _, r := range p.Requirements.sorted() {
			k.count(r.MinValues)
			named, is := mentioned[r.Key] // asked for without values differs from not asked for
			k.text(strconv.FormatBool(is))
			k.count(len(named))
			k.text(slices.Sorted(maps.Keys(named))...)
		}
		k.count(len(p.Schedulers))
		k.text(p.Schedulers...)
		k.count(len(p.Taints))
		for i := range p.Taints {
			k.text(p.Taints[i].Key, p.Taints[i].Value, string(p.Taints[i].Effect))
		}
		k.count(len(p.Limits))
		for _, name := range slices.Sorted(maps.Keys(p.Limits)) {
			k.text(string(name))
		}
	}
	return string(k)
}
