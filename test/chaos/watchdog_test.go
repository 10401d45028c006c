package chaos

import (
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A goroutine of the bubble waits for a mutex, so the bubble's clock doesn't advance, although another one sleeps. The mutex is held
// outside the bubble, which lets this test end it.
func TestWatchdogNoticesAClockThatStandsStill(t *testing.T) {
	var mu sync.Mutex
	mu.Lock()
	var why, stacks string
	w := &watchdog{name: "seed 7", stalled: func(was string, all []byte) {
		why, stacks = was, string(all)
		mu.Unlock()
	}}
	end := w.run(10*time.Millisecond, 100)
	synctest.Test(t, func(*testing.T) {
		<-time.After(time.Until(begin.Add(90 * time.Second)))
		w.entered()
		w.stepped()
		sleeps := make(chan struct{})
		go func() {
			<-time.After(time.Second)
			close(sleeps)
		}()
		mu.Lock()
		<-sleeps
	})
	end()
	if !regexp.MustCompile(`^seed 7 makes no progress: its clock has stood still 90\.0s after its begin, for 1s of real time\. .* of synctest bubble \d+ sleeps`).MatchString(why) {
		t.Errorf("it says: %s", why)
	}
	if !strings.Contains(stacks, "sync.Mutex.Lock") || !strings.Contains(stacks, "TestWatchdogNoticesAClockThatStandsStill") {
		t.Errorf("the stacks don't show who waits:\n%s", stacks)
	}
}

// However long a history takes, the watchdog lets it be while there are steps.
func TestWatchdogCountsLooksWithoutAStep(t *testing.T) {
	w := &watchdog{}
	for range 10 {
		w.stepped()
		for i, want := range []bool{false, false, false, true} {
			if got := w.look(3); got != want {
				t.Fatalf("look %d after a step: %v, want %v", i+1, got, want)
			}
		}
	}
}
