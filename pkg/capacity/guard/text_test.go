package guard

import (
	"strings"
	"testing"
)

// A pod's condition has room for a few hundred bytes per pool. Whatever is cut off, it says since when and what lifts the pause.
func TestTextsThatAreCutSayWhatLiftsThem(t *testing.T) {
	const kept = 210 // of pkg/capacity's cut
	long := strings.Repeat("n", 63)
	for _, refused := range []bool{false, true} {
		b := Breaker{Key: PodKey(long, Workload{Namespace: long, Owner: "Deployment/" + long}), Since: epoch, Next: epoch, Message: strings.Repeat("long ", 100), Refused: refused}
		text := b.Text()[:kept]
		for _, want := range []string{"paused since 2026-06-01T00:00:00Z", "machine is tried", "dovetail.sh/retry: at once"} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is cut off: %s", want, text)
			}
		}
	}
}
