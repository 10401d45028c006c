package capacity

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// nearly is by how much prices may exceed the tolerance of a zone balance, as a fraction: rounding must not decide.
const nearly = 1e-9

// steadySpotTypes is how many instance types a spot node needs in a zone to be put there for the sake of even zones. It is Karpenter's number for
// replacing a spot node by a spot node: with fewer to choose from, the cloud interrupts nodes more often.
const steadySpotTypes = 15

// Balances reports whether new nodes of the pool are spread evenly over zones.
func (p *Pool) Balances() bool { return p.ZoneBalance != nil }

// Tolerates reports whether a node at this price may be bought for the sake of even zones, if the cheapest costs so much ($/h each).
func (p *Pool) Tolerates(price, cheapest float64) bool {
	return p.ZoneBalance != nil && price <= cheapest*(1+*p.ZoneBalance)*(1+nearly)
}

// Untolerated returns the price, in $/h, that the replacement of a node at this price must be below. If the cheapest replacement costs more than
// that, the node may have been bought at its price for the sake of even zones, and a plan would buy it again. If zones aren't balanced, it is
// price itself.
func (p *Pool) Untolerated(price float64) float64 {
	if p.ZoneBalance == nil {
		return price
	}
	return price / (1 + *p.ZoneBalance)
}

// Percent returns a fraction in words, such as "10 %".
func Percent(fraction float64) string {
	return strconv.FormatFloat(math.Round(fraction*1e6)/1e4, 'f', -1, 64) + " %"
}

// SteadySpot reports whether a zone has enough instance types for a spot node: steadySpotTypes, or half of the number that all zones have together.
func SteadySpot(inZone, all int) bool { return inZone >= min(steadySpotTypes, (all+1)/2) }

// ZoneCounts is how many nodes of a pool there are in each zone.
type ZoneCounts map[string]int

// ZonesOf counts the nodes of pools that balance zones, by pool. Nodes that are leaving don't count, nor do nodes in flight whose zone isn't known.
func ZonesOf(nodes []*Node, pools []*Pool) map[string]ZoneCounts {
	out := map[string]ZoneCounts{}
	for _, p := range pools {
		if p.Balances() {
			out[p.Name] = ZoneCounts{}
		}
	}
	if len(out) == 0 {
		return nil
	}
	for _, n := range nodes {
		counts, zone := out[n.Labels[LabelNodePool]], n.Labels[LabelZone]
		if counts != nil && zone != "" && !n.BeingRemoved() {
			counts[zone]++
		}
	}
	return out
}

// BeingRemoved reports whether the node is about to be removed. That a node in flight is closed doesn't mean that: moves close it, and it stays.
func (n *Node) BeingRemoved() bool {
	return n.Closed && !n.InFlight || slices.ContainsFunc(n.Taints, func(t corev1.Taint) bool { return t.Key == TaintDisrupted })
}

// ZoneOption is a zone that a new node may be in, and the least that it costs there, in $/h as prices are compared.
type ZoneOption struct {
	Zone  string
	Price float64
}

// Emptiest returns the zone with the fewest nodes; of several the cheapest, then the first by name. There must be an option.
func (c ZoneCounts) Emptiest(options []ZoneOption) string {
	return slices.MinFunc(options, func(a, b ZoneOption) int {
		return cmp.Or(cmp.Compare(c[a.Zone], c[b.Zone]), cmp.Compare(a.Price, b.Price), cmp.Compare(a.Zone, b.Zone))
	}).Zone
}

// Text returns the counts for people, such as "us-east-1a 3, us-east-1b 2". Nodes counted under "" come last, as those whose zone isn't known.
func (c ZoneCounts) Text() string {
	var out []string
	for _, zone := range slices.Sorted(maps.Keys(c)) {
		if zone != "" && c[zone] > 0 {
			out = append(out, zone+" "+strconv.Itoa(c[zone]))
		}
	}
	if n := c[""]; n > 0 {
		out = append(out, "not known yet "+strconv.Itoa(n))
	}
	if len(out) == 0 {
		return "none has a node"
	}
	return strings.Join(out, ", ")
}

// BalancedText returns in words that nodes may cost this fraction more for the sake of even zones.
func BalancedText(fraction float64) string {
	if fraction == 0 {
		return "balanced among those that cost the same"
	}
	return "balanced, nodes may cost " + Percent(fraction) + " more for it"
}
