package antiaffinity

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// world makes classes of few namespaces and labels, so that many conflict, from bytes.
type world struct {
	testing.TB
	bytes []byte
}

// pick returns a number below n.
func (w *world) pick(n int) int {
	if len(w.bytes) == 0 {
		return 0
	}
	b := w.bytes[0]
	w.bytes = w.bytes[1:]
	return int(b) % n
}

func (w *world) namespace() string { return []string{"d", "e", "f"}[w.pick(3)] }

func (w *world) selector() labels.Selector {
	switch w.pick(8) {
	case 0:
		return labels.Everything()
	case 1:
		return labels.Nothing()
	case 2:
		return nil
	}
	text := ""
	for i := range 1 + w.pick(3) {
		if i > 0 {
			text += ","
		}
		fill := strings.NewReplacer("KEY", []string{"app", "tier", "rev"}[w.pick(3)], "A", fmt.Sprint(w.pick(3)), "B", fmt.Sprint(w.pick(3)))
		text += fill.Replace([]string{"KEY=A", "KEY in (A,B)", "KEY", "!KEY", "KEY!=A", "KEY notin (A,B)", "KEY>A", "KEY<A"}[w.pick(8)])
	}
	return selector(w, text)
}

func (w *world) term() capacity.PodTerm {
	t := capacity.PodTerm{TopologyKey: capacity.LabelHostname, Selector: w.selector()}
	if w.pick(5) == 0 {
		t.TopologyKey = capacity.LabelZone
	}
	for range w.pick(3) {
		t.Namespaces = append(t.Namespaces, w.namespace())
	}
	switch w.pick(5) {
	case 0:
		t.NamespaceSelector = labels.Everything()
	case 1:
		t.NamespaceSelector = selector(w, "team=a")
	}
	return t
}

func (w *world) class(key string) *capacity.Class {
	c := &capacity.Class{Key: capacity.ClassKey(key), Namespace: w.namespace(), Labels: map[string]string{}}
	for _, key := range []string{"app", "tier", "rev"} {
		if w.pick(2) == 0 {
			c.Labels[key] = fmt.Sprint(w.pick(3))
		}
	}
	for range w.pick(3) {
		c.AntiAffinity = append(c.AntiAffinity, w.term())
	}
	return c
}

// FuzzApart adds and removes classes, and compares each answer with that of a comparison with every class.
func FuzzApart(f *testing.F) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		bytes := make([]byte, 2_000)
		for i := range bytes {
			bytes[i] = byte(r.Uint32())
		}
		f.Add(bytes)
	}
	f.Fuzz(func(t *testing.T, bytes []byte) {
		w, x, there := &world{t, bytes}, New(), map[capacity.ClassKey]*capacity.Class{}
		for step := 0; len(w.bytes) > 0 && step < 500; step++ {
			c := w.class(fmt.Sprint(w.pick(30)))
			if w.pick(3) == 0 {
				x.Remove(c.Key)
				delete(there, c.Key)
			} else if x.Add(c); there[c.Key] == nil {
				there[c.Key] = c
			}
			asks, want := w.class("new"), map[capacity.ClassKey]bool{}
			for key, k := range there {
				if key != "3" && capacity.Apart(asks, k) {
					want[key] = true
				}
			}
			if got := x.Apart(asks, func(key capacity.ClassKey) bool { return key != "3" }); !maps.Equal(got, want) {
				t.Fatalf("step %d: apart from %v, want %v", step, got, want)
			}
			if x.Len() != len(there) {
				t.Fatalf("step %d: %d classes, want %d", step, x.Len(), len(there))
			}
		}
		for key := range there {
			x.Remove(key)
		}
		if x.Len()+len(x.lists)+len(x.namespaces) > 0 {
			t.Errorf("%d lists are left", len(x.lists))
		}
	})
}
