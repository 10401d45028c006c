package chaos

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
)

// A history has more time to agree where pods have to wait for a probe, as the product's own texts say.
func TestPauseTakesPatience(t *testing.T) {
	at := time.Date(2026, 6, 1, 0, 17, 57, 0, time.UTC)
	for name, tc := range map[string]struct {
		reason string
		next   time.Time
		want   time.Duration
	}{
		"the first probe is launched at once": {"LaunchesPaused", at, settleTime},
		"the first probe waits":               {"LaunchesPaused", at.Add(15 * time.Minute), settleTime + 15*time.Minute},
		"a probe has failed":                  {"ProbeFailed", at.Add(15 * time.Minute), settleTime + pauseTime},
		"launches are resumed":                {"LaunchesResumed", at, settleTime},
	} {
		t.Run(name, func(t *testing.T) {
			b := guard.Breaker{Since: at, Next: tc.next, Cause: "deleted", Message: "NodeClaim default-a: it was deleted before it had done work"}
			body, err := json.Marshal(map[string]string{"reason": tc.reason, "note": b.Text()})
			if err != nil {
				t.Fatal(err)
			}
			c := newChecker()
			c.hears(body)
			if got := c.patience(); got != tc.want {
				t.Errorf("%v after %q, want %v", got, b.Text(), tc.want)
			}
		})
	}
}
