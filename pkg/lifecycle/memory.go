package lifecycle

import (
	"maps"
	"sync"
)

// memory is a map that several goroutines use. What it holds may be lost at any moment. The zero memory is empty.
type memory[K comparable, V any] struct {
	mu sync.Mutex
	of map[K]V
}

// get returns the value of a key, and whether there is one.
func (m *memory[K, V]) get(k K) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.of[k]
	return v, ok
}

func (m *memory[K, V]) put(k K, v V) { m.update(k, func(V, bool) V { return v }) }

// update sets a key's value to what f returns for the present value, and returns the new value. f must not block.
func (m *memory[K, V]) update(k K, f func(v V, ok bool) V) V {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.of == nil {
		m.of = map[K]V{}
	}
	v, ok := m.of[k]
	m.of[k] = f(v, ok)
	return m.of[k]
}

func (m *memory[K, V]) forget(k K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.of, k)
}

// prune forgets the keys for which drop returns true.
func (m *memory[K, V]) prune(drop func(K, V) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.of, drop)
}
