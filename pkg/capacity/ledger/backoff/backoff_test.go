package backoff

import (
	"testing"
	"time"
)

func TestAfter(t *testing.T) {
	for n, want := range map[int]time.Duration{0: 0, 1: 0, 2: time.Second, 3: 2 * time.Second, 10: 256 * time.Second, 11: Longest, 21: Longest, 1 << 40: Longest} {
		if got := After(n); got != want {
			t.Errorf("after %d failures %v, want %v", n, got, want)
		}
		if got := AtLeast(n); got != max(want, First) {
			t.Errorf("after %d failures at least %v, want %v", n, got, max(want, First))
		}
	}
}
