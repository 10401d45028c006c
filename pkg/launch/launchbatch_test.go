package launch

import "testing"

// A standalone NodeClaim may have been tried for hours: its record counts every attempt.
func TestPauseAfterAnyNumberOfAttempts(t *testing.T) {
	last := firstRetry
	for attempts := 1; attempts < 200; attempts++ {
		pause := pauseAfter(attempts)
		if pause < last || pause > maxRetry {
			t.Fatalf("after %d attempts a pause of %v, after one less %v", attempts, pause, last)
		}
		last = pause
	}
	if last != maxRetry {
		t.Errorf("the longest pause is %v, want %v", last, maxRetry)
	}
}
