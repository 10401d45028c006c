// Package filterrefusals remembers between rounds of planning what the filters of the scheduler have refused. It asks no filter itself.
package filterrefusals

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

const (
	// Life is how long a refusal counts. Filters depend on objects that this package doesn't watch: volumes, claims, quotas.
	Life = 5 * time.Minute
	// maxRefusals bounds how many refusals are remembered, those of all classes together.
	maxRefusals = 20_000
)

// Memory remembers between rounds what the profile's filters have refused on new nodes. A class that had to try many pools to find
// one that works doesn't try them all again for its next pod, and a search that was cut short continues where it stopped. Only the
// planner's goroutine uses it.
//
// A refusal expires after Life, and when anything about its pool changes that a filter might see. The key of a class is made from
// its content, so a changed class has no refusals.
type Memory struct {
	clock   clock.PassiveClock
	classes map[capacity.ClassKey][]refusal
	size    int // number of refusals of all classes together
}

type refusal struct {
	capacity.Forbidden
	pool  uint64 // version of the pool at the time
	until time.Time
}

// New returns a Memory of nothing yet.
func New(c clock.PassiveClock) *Memory {
	return &Memory{clock: c, classes: map[capacity.ClassKey][]refusal{}}
}

// Recall returns the refusals that still count for the classes.
func (m *Memory) Recall(pools []*capacity.Pool, classes []capacity.ClassKey) []capacity.Forbidden {
	if m == nil || m.size == 0 {
		return nil
	}
	versions := poolVersions(pools)
	now := m.clock.Now()
	var out []capacity.Forbidden
	for _, key := range classes {
		for _, r := range m.classes[key] {
			if v, ok := versions(r.Pool); ok && v == r.pool && now.Before(r.until) {
				out = append(out, r.Forbidden)
			}
		}
	}
	return out
}

// Keep remembers what was refused to a class. Refusals that were known before keep their expiry.
func (m *Memory) Keep(pools []*capacity.Pool, class capacity.ClassKey, found []capacity.Forbidden) {
	versions := poolVersions(pools)
	now := m.clock.Now()
	before := map[capacity.Forbidden]refusal{}
	for _, r := range m.classes[class] {
		before[r.Forbidden] = r
	}
	m.Forget(class)
	var all []refusal
	for _, f := range found {
		v, ok := versions(f.Pool)
		if !ok {
			continue
		}
		r := refusal{f, v, now.Add(Life)}
		if b, known := before[f]; known && b.pool == v && now.Before(b.until) {
			r.until = b.until
		}
		all = append(all, r)
	}
	m.classes[class] = all
	m.size += len(all)
	if m.size > maxRefusals {
		m.shrink(now)
	}
}

// Forget forgets what was refused to a class.
func (m *Memory) Forget(class capacity.ClassKey) {
	m.size -= len(m.classes[class])
	delete(m.classes, class)
}

// shrink forgets expired refusals, and then the classes that were refused longest ago, until a quarter of maxRefusals is free.
func (m *Memory) shrink(now time.Time) {
	latest := map[capacity.ClassKey]time.Time{}
	for key, all := range m.classes {
		for _, r := range all {
			if r.until.After(latest[key]) {
				latest[key] = r.until
			}
		}
	}
	keys := slices.SortedFunc(maps.Keys(latest), func(a, b capacity.ClassKey) int {
		if c := latest[a].Compare(latest[b]); c != 0 {
			return c
		}
		return cmp.Compare(a, b)
	})
	for _, key := range keys {
		if m.size <= maxRefusals*3/4 && now.Before(latest[key]) {
			return
		}
		m.Forget(key)
	}
}

// poolVersions returns a func that hashes what filters can see of a pool on one of its nodes: equal pools have equal hashes. Prices and
// unavailable offerings don't count.
func poolVersions(pools []*capacity.Pool) func(name string) (uint64, bool) {
	byName := map[string]*capacity.Pool{}
	for _, p := range pools {
		byName[p.Name] = p
	}
	known := map[string]uint64{}
	shared := map[**capacity.InstanceType]uint64{} // pools of one node class share one slice of types
	return func(name string) (uint64, bool) {
		p := byName[name]
		if p == nil {
			return 0, false
		}
		if v, ok := known[name]; ok {
			return v, true
		}
		h := fnv.New64a()
		// fmt prints maps in order of their keys.
		fmt.Fprint(h, p.NodeClass, p.Labels, p.Requirements, p.Taints, p.StartupTaints, p.Schedulers)
		if len(p.Types) > 0 {
			if _, ok := shared[&p.Types[0]]; !ok {
				shared[&p.Types[0]] = typesVersion(p.Types)
			}
			fmt.Fprint(h, shared[&p.Types[0]])
		}
		known[name] = h.Sum64()
		return known[name], true
	}
}

// typesVersion hashes what changes with a node class: its instance types, their allocatable resources, devices and room for volumes.
func typesVersion(all []*capacity.InstanceType) uint64 {
	h := fnv.New64a()
	for _, t := range all {
		_, _ = h.Write([]byte(t.Name))
		for _, r := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods, corev1.ResourceEphemeralStorage} {
			_, _ = h.Write(binary.AppendVarint(nil, t.Allocatable[r]))
		}
		_, _ = h.Write([]byte(t.Devices))
		for _, name := range slices.Sorted(maps.Keys(t.VolumeLimits)) {
			_, _ = h.Write([]byte(name))
			_, _ = h.Write(binary.AppendVarint(nil, t.VolumeLimits[name]))
		}
	}
	return h.Sum64()
}
