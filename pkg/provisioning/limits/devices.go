package limits

import (
	"maps"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/devices"
)

// Devices adds to instance types the devices that their nodes will have. It belongs to the planner goroutine.
type Devices struct {
	of   *devices.Source
	last map[string]typesWithDevices // by pool
}

// typesWithDevices are a pool's instance types without (from) and with (types) their devices. They are kept as long as nothing changes, because
// planners recognize types by their slice.
type typesWithDevices struct {
	from, types []*capacity.InstanceType
	known       map[string]devicesOfType // by type
}

type devicesOfType struct {
	key    string           // identifies the set of devices that a node of the type will have
	counts map[string]int64 // for how many pods these devices are enough, by the key of what the pods ask for
}

// NewDevices returns a Devices that adds what of knows; nil: nothing.
func NewDevices(of *devices.Source) *Devices { return &Devices{of: of} }

// On returns the pools with the devices added to their instance types, as a planner has to see them. A type of which no devices are known
// has none.
func (d *Devices) On(pools []*capacity.Pool) []*capacity.Pool {
	if d == nil || d.of == nil || d.of.Idle() {
		return pools
	}
	last := d.last
	d.last = map[string]typesWithDevices{}
	out := make([]*capacity.Pool, 0, len(pools))
	for _, p := range pools {
		known := make(map[string]devicesOfType, len(p.Types))
		for _, t := range p.Types {
			key := d.of.Template(p.NodeClass, t.Name, t.Image)
			known[t.Name] = devicesOfType{key, d.of.Counts(key, t.Labels)}
		}
		types := last[p.Name]
		if !types.are(p.Types, known) {
			types = typesWithDevices{p.Types, withDevices(p.Types, known), known}
		}
		d.last[p.Name] = types
		limited := *p
		limited.Types = types.types
		out = append(out, &limited)
	}
	return out
}

// Of returns how many pods a node's devices are enough for, by the key of what they ask for.
func (d *Devices) Of(n *capacity.Node) map[string]int64 {
	if d == nil {
		return nil
	}
	return d.of.Counts(n.Kind.Devices, n.Labels)
}

// OfClaim returns the key of the devices that a claim's node will have; empty: its instance type isn't known yet, or no devices of it are. ok is
// false in the former case, and where the setting is off.
func (d *Devices) OfClaim(c *capacity.Claim) (key string, ok bool) {
	if d == nil || d.of == nil || c == nil || c.InstanceType == "" {
		return "", false
	}
	return d.of.OfClaim(c), true
}

func (t typesWithDevices) are(from []*capacity.InstanceType, known map[string]devicesOfType) bool {
	return len(from) == len(t.from) && (len(from) == 0 || &from[0] == &t.from[0]) &&
		maps.EqualFunc(known, t.known, func(a, b devicesOfType) bool { return a.key == b.key && maps.Equal(a.counts, b.counts) })
}

func withDevices(types []*capacity.InstanceType, known map[string]devicesOfType) []*capacity.InstanceType {
	out := make([]*capacity.InstanceType, 0, len(types))
	for _, t := range types {
		limited := *t
		limited.Devices = known[t.Name].key
		limited.VolumeLimits = maps.Clone(t.VolumeLimits)
		if limited.VolumeLimits == nil {
			limited.VolumeLimits = map[string]int64{}
		}
		maps.Copy(limited.VolumeLimits, known[t.Name].counts)
		out = append(out, &limited)
	}
	return out
}
