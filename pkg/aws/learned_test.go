package aws

import "testing"

func TestMemoryIsLearned(t *testing.T) {
	w := newWorld(t)
	w.SetNodeClass(nodeClass())
	memory := func() (total, free int64) {
		m := typeOf(w.types("default"), "m5.large")
		return m.Capacity["memory"] / mi, m.Allocatable["memory"] / mi
	}
	image := ""
	for _, a := range w.status("default", isReady("True")).AMIs {
		if a.Requirements[0].Values[0] == "amd64" && a.Requirements[1].Operator == "DoesNotExist" {
			image = a.ID
		}
	}
	for _, tt := range []struct {
		name        string
		image       string
		seen        int64
		total, free int64
	}{
		{"a guess", "", 0, 7577, 6903},
		{"another image's node says nothing", "ami-other", 7000, 7577, 6903},
		{"the first node", image, 7700, 7700, 7026},
		{"a smaller one", image, 7699, 7699, 7025},
		{"a larger one does not count", image, 7800, 7699, 7025},
	} {
		version := w.Version()
		w.ObserveMemory("m5.large", tt.image, tt.seen*mi)
		before := w.types("default")
		total, free := memory()
		if total != tt.total || free != tt.free {
			t.Errorf("%s: capacity %d, allocatable %d MiB, want %d, %d", tt.name, total, free, tt.total, tt.free)
		}
		if w.ObserveMemory("m5.large", tt.image, tt.seen*mi); version != w.Version() {
			if again, _ := w.InstanceTypes("default"); &again[0] != &before[0] {
				t.Errorf("%s: told twice, built twice", tt.name)
			}
		}
	}
}
