// Package backoff says how long a class, or a pod, waits for its next plan after new nodes were launched for it in vain.
package backoff

import "time"

const (
	// First is the delay after the second failure. The first costs nothing, since its likeliest cause is a race with another pod.
	First = time.Second
	// Longest is the longest delay.
	Longest = 5 * time.Minute
)

// After returns the delay after n failures in a row: none after the first, First after the second, then twice as long after each.
func After(n int) time.Duration {
	switch {
	case n < 2:
		return 0
	case n > 20:
		return Longest
	}
	return min(First<<(n-2), Longest)
}

// AtLeast is After where the first failure has a delay, too.
func AtLeast(n int) time.Duration { return max(After(n), First) }
