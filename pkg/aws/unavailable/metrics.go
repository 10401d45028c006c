package unavailable

import (
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var exhaustedOffers = metrics.NewGaugeVec(&metrics.GaugeOpts{
	Namespace: "dovetail", Subsystem: "aws", Name: "exhausted",
	Help: "Number of pools and wider scopes that are treated as having no capacity for now, by kind (pool, type, capacity-type, subnet, placement-group).", StabilityLevel: metrics.ALPHA,
}, []string{"kind"})

func init() { legacyregistry.MustRegister(exhaustedOffers) }

// kind returns the kind of a scope, as metrics name it.
func (s Scope) kind() string {
	switch {
	case s.Subnet != "":
		return "subnet"
	case s.CapacityType == "":
		return "placement-group"
	case s.InstanceType == "":
		return "capacity-type"
	case s.Zone == "":
		return "type"
	}
	return "pool"
}

// count sets the gauge of what counts as without capacity now: pools, types, capacity types, subnets and placement groups.
func (x *State) count() {
	n := map[string]int{"subnet": 0, "placement-group": 0, "capacity-type": 0, "type": 0, "pool": 0}
	for s := range x.until {
		n[s.kind()]++
	}
	for kind, k := range n {
		exhaustedOffers.WithLabelValues(kind).Set(float64(k))
	}
}
