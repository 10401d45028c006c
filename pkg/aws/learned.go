package aws

import (
	"maps"
	"sync"
	"sync/atomic"
)

// learned is how much memory nodes of a type and image really have, once one has said so. Nobody publishes what hypervisor
// and kernel keep for themselves; until then a share is taken off that fits almost all types.
type learned struct {
	changed func()
	mu      sync.Mutex // serializes writers of now
	now     atomic.Pointer[map[typeAndImage]int64]
}

type typeAndImage struct{ instanceType, image string }

func newLearned(changed func()) *learned {
	l := &learned{changed: changed}
	l.now.Store(&map[typeAndImage]int64{})
	return l
}

// ObserveMemory takes note of the memory, in bytes, that the kubelet of a registered node reports as capacity. The
// smallest value counts: nodes of a type differ by a few pages. The Nodes themselves are the record: after a restart each
// is to be reported again.
func (p *Provider) ObserveMemory(instanceType, imageID string, bytes int64) {
	l, key := p.learned, typeAndImage{instanceType, imageID}
	if instanceType == "" || imageID == "" || bytes <= 0 {
		return
	}
	l.mu.Lock()
	old := *l.now.Load()
	have, ok := old[key]
	change := !ok || bytes < have
	if change {
		next := maps.Clone(old)
		next[key] = bytes
		l.now.Store(&next)
	}
	l.mu.Unlock()
	if change {
		l.changed()
	}
}
