package devices

import (
	"fmt"
	"maps"
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
	shared  []*sharedSlice
	taken   map[pool]*taken // nil: that is not known
	classes string
}

// taken are the allocated devices of a pool of devices (as ResourceSlices name it).
type taken struct {
	devices  []structured.DeviceID
	shared   []structured.SharedDeviceID
	capacity []structured.DeviceID // of which a part is consumed
	from     *structured.AllocatedState
	key      string // equal if and only if the same is allocated
}

type pool struct{ driver, name string }

func poolOf(s *resourcev1.ResourceSlice) pool { return pool{s.Spec.Driver, s.Spec.Pool.Name} }

// Free returns what is free now; nil: no pod asks for devices.
func (s *Source) Free() *Free {
	if s == nil {
		return nil
	}
	shapes := s.known()
	if len(shapes) == 0 {
		return nil
	}
	f := &Free{source: s, shapes: shapes, classes: s.classVersion()}
	if state, err := s.state.Allocated(); err == nil {
		f.taken = byPool(state) // an error means that the state is changing; then it counts as if no device were free
	}
	s.mu.Lock()
	f.shared = s.seen.shared
	s.mu.Unlock()
	return f
}

// byPool returns what is allocated, by pool of devices.
func byPool(state *structured.AllocatedState) map[pool]*taken {
	out := map[pool]*taken{}
	of := func(id structured.DeviceID) *taken {
		p := pool{id.Driver.String(), id.Pool.String()}
		if out[p] == nil {
			out[p] = &taken{from: state}
		}
		return out[p]
	}
	for id := range state.AllocatedDevices {
		t := of(id)
		t.devices = append(t.devices, id)
	}
	for id := range state.AllocatedSharedDeviceIDs {
		t := of(structured.DeviceID{Driver: id.Driver, Pool: id.Pool, Device: id.Device})
		t.shared = append(t.shared, id)
	}
	for id := range state.AggregatedCapacity {
		t := of(id)
		t.capacity = append(t.capacity, id)
	}
	for _, t := range out {
		var parts []string
		for _, id := range t.devices {
			parts = append(parts, id.Device.String())
		}
		for _, id := range t.shared {
			parts = append(parts, id.String())
		}
		for _, id := range t.capacity {
			of := state.AggregatedCapacity[id]
			for _, name := range slices.Sorted(maps.Keys(of)) {
				parts = append(parts, fmt.Sprintf("%s %s=%s", id, name, of[name]))
			}
		}
		slices.Sort(parts)
		t.key = strings.Join(parts, ",")
	}
	return out
}

// On returns for each shape how many more of its pods get their devices on an existing node.
func (f *Free) On(node *corev1.Node) map[string]int64 {
	if f == nil {
		return nil
	}
	f.source.mu.Lock()
	published := f.source.slicesOf(node.Name)
	f.source.mu.Unlock()
	own := versions(published)
	shared, sharedKey := sharedOn(f.shared, node)
	published = append(published, shared...)
	out := make(map[string]int64, len(f.shapes))
	what := "free/" + own + "/" + sharedKey + f.key(published)
	for _, shape := range f.shapes {
		if len(published) == 0 || f.taken == nil {
			out[shape.Key] = 0
			continue
		}
		key := countKey{what, shape.Key, f.classes}
		n, known := f.source.counted(key)
		if !known {
			var exact bool
			n, exact = f.source.allocator.count(node, published, f.state(published), shape, maxCount)
			f.source.remember(key, n, exact)
		}
		out[shape.Key] = n
	}
	return out
}

// of returns what is allocated of the pools of these slices.
func (f *Free) of(published []*resourcev1.ResourceSlice) []*taken {
	out := make([]*taken, 0, len(published))
	seen := map[pool]bool{}
	for _, s := range published {
		if p := poolOf(s); !seen[p] {
			seen[p] = true
			if t := f.taken[p]; t != nil {
				out = append(out, t)
			} else {
				out = append(out, &taken{})
			}
		}
	}
	return out
}

// key returns a text that is equal as long as the same is allocated in the pools of these slices.
func (f *Free) key(published []*resourcev1.ResourceSlice) string {
	var b strings.Builder
	for _, t := range f.of(published) {
		b.WriteString("/" + t.key)
	}
	return b.String()
}

// state returns what is allocated of the pools of these slices, for a count to add to.
func (f *Free) state(published []*resourcev1.ResourceSlice) *structured.AllocatedState {
	out := Nothing()
	for _, t := range f.of(published) {
		out.AllocatedDevices.Insert(t.devices...)
		out.AllocatedSharedDeviceIDs.Insert(t.shared...)
		for _, id := range t.capacity {
			out.AggregatedCapacity[id] = t.from.AggregatedCapacity[id].Clone()
		}
	}
	return out
}
