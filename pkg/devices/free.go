package devices

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/structured"
)

// Free is what is free of the devices of nodes at one moment.
type Free struct {
	source  *Source
	shapes  []*Shape
	shared  []*resourcev1.ResourceSlice
	taken   *structured.AllocatedState
	byPool  map[pool][]string // allocated devices
	classes string
}

type pool struct{ driver, name string }

// Free returns what is free now; nil: no pod asks for devices.
func (s *Source) Free() *Free {
	if s == nil {
		return nil
	}
	shapes := s.known()
	if len(shapes) == 0 {
		return nil
	}
	taken, err := s.state.Allocated()
	if err != nil {
		taken = nil // it is being changed: as if no devices were free
	}
	f := &Free{source: s, shapes: shapes, taken: taken, byPool: map[pool][]string{}, classes: s.classVersion()}
	s.mu.Lock()
	f.shared = s.slicesOf(everywhere)
	s.mu.Unlock()
	if taken != nil {
		for id := range taken.AllocatedDevices {
			p := pool{id.Driver.String(), id.Pool.String()}
			f.byPool[p] = append(f.byPool[p], id.Device.String())
		}
	}
	return f
}

// On returns for each shape how many more of its pods get their devices on an existing node.
func (f *Free) On(node *corev1.Node) map[string]int64 {
	if f == nil {
		return nil
	}
	f.source.mu.Lock()
	own := f.source.slicesOf(node.Name)
	f.source.mu.Unlock()
	out := make(map[string]int64, len(f.shapes))
	published := append(own, f.shared...)
	what := f.version(own)
	for _, shape := range f.shapes {
		if len(published) == 0 || f.taken == nil {
			out[shape.Key] = 0
			continue
		}
		key := countKey{what, shape.Key, f.classes}
		n, known := f.source.counted(key)
		if !known {
			var exact bool
			n, exact = f.source.allocator.count(node, published, f.copy(own), shape, maxCount)
			f.source.remember(key, n, exact)
		}
		out[shape.Key] = n
	}
	return out
}

// version names the free devices of a node in the cache; empty: they can't be named.
func (f *Free) version(own []*resourcev1.ResourceSlice) string {
	if len(f.shared) > 0 || f.taken == nil || len(f.taken.AllocatedSharedDeviceIDs) > 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("free/")
	b.WriteString(versions(own))
	seen := map[pool]bool{}
	for _, s := range own {
		p := pool{s.Spec.Driver, s.Spec.Pool.Name}
		if seen[p] {
			continue
		}
		seen[p] = true
		devices := slices.Clone(f.byPool[p])
		slices.Sort(devices)
		b.WriteString("/" + strings.Join(devices, ","))
	}
	return b.String()
}

// copy returns the allocated devices that matter for a node's own, for a count to add to.
func (f *Free) copy(own []*resourcev1.ResourceSlice) *structured.AllocatedState {
	if len(f.shared) > 0 || len(f.taken.AllocatedSharedDeviceIDs) > 0 {
		return &structured.AllocatedState{AllocatedDevices: f.taken.AllocatedDevices.Clone(), AllocatedSharedDeviceIDs: f.taken.AllocatedSharedDeviceIDs.Clone(),
			AggregatedCapacity: f.taken.AggregatedCapacity.Clone()}
	}
	out := Nothing()
	for _, s := range own {
		for _, device := range f.byPool[pool{s.Spec.Driver, s.Spec.Pool.Name}] {
			out.AllocatedDevices.Insert(structured.MakeDeviceID(s.Spec.Driver, s.Spec.Pool.Name, device))
		}
	}
	return out
}
