package launch

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// unusable lets the first call work and loses its answer; every later call under its token is answered with err.
func (w *world) unusable(err error) {
	w.lost["Launch"] = 1
	w.during["Launch"] = func() {
		delete(w.broken, "Launch")
		if w.calls["Launch"] == 2 {
			w.broken["Launch"] = err
		}
	}
}

// pass lets time pass in a synctest bubble.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (w *world) count() (tokens, instances, bound int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.tokens), len(w.instances), len(w.bound)
}

var unusable = map[string]error{
	"the token stands for another request": fmt.Errorf("launching: %w", capacity.ErrTokenMismatch),
	"the template is gone":                 fmt.Errorf("launching: %w", capacity.ErrRequestStale),
}

// A launch worked, its answer was lost, and it can't be repeated. The cloud shows its instances some seconds later: no others are launched
// for the same claims.
func TestLostLaunchThatShowsLateIsNotMadeAgain(t *testing.T) {
	for name, err := range unusable {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.lag = 12 * time.Second
				w.unusable(err)
				w.run()
				defer w.stop()
				w.submit(8)
				pass(5 * time.Second)
				if tokens, instances, _ := w.count(); tokens != 1 || instances != 2 {
					t.Fatalf("%d instances under %d tokens before the first could show", instances, tokens)
				}
				if n := len(w.parts.calls.slots); n > 0 {
					t.Errorf("%d launches can't be made meanwhile", n)
				}
				pass(time.Minute)
				if tokens, instances, bound := w.count(); tokens != 1 || instances != 2 || bound != 8 {
					t.Errorf("%d instances under %d tokens, %d pods bound; want 2, 1, 8", instances, tokens, bound)
				}
			})
		})
	}
}

// The same after a restart, when the earlier leader's call can't be repeated.
func TestLostLaunchThatShowsLateIsNotMadeAgainAfterARestart(t *testing.T) {
	for name, err := range unusable {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.lag = 12 * time.Second
				w.lost["Launch"] = 1 << 30
				w.run()
				w.submit(8)
				pass(time.Second)
				w.stop()
				w.mu.Lock()
				clear(w.lost)
				w.broken["Launch"] = err
				w.mu.Unlock()
				w.run()
				defer w.stop()
				w.submit(8)
				pass(20 * time.Second)
				w.mu.Lock()
				clear(w.broken)
				w.mu.Unlock()
				pass(2 * time.Minute)
				if tokens, instances, bound := w.count(); tokens != 1 || instances != 2 || bound != 8 {
					t.Errorf("%d instances under %d tokens, %d pods bound; want 2, 1, 8", instances, tokens, bound)
				}
			})
		})
	}
}

// Other pods are served meanwhile, and if no instance is visible in time, the launch is made again.
func TestLaunchThatNeverWorkedIsMadeAgainInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.during["Launch"] = func() {
			delete(w.broken, "Launch")
			if w.calls["Launch"] == 1 {
				w.broken["Launch"] = capacity.ErrTokenMismatch
			}
		}
		w.run()
		defer w.stop()
		w.submit(4)
		pass(time.Second)
		w.submitPod(4, 5, 6, 7)
		pass(5 * time.Second)
		if tokens, _, bound := w.count(); tokens != 1 || bound != 4 {
			t.Errorf("%d launches, %d pods bound while a launch is looked for; want those that came later", tokens, bound)
		}
		pass(showLag)
		if tokens, instances, bound := w.count(); tokens != 2 || instances != 2 || bound != 8 {
			t.Errorf("%d instances under %d tokens, %d pods bound; want 2, 2, 8", instances, tokens, bound)
		}
	})
}

// The call was answered: it launched nothing, because its template is gone. There is nothing to wait for.
func TestAnsweredLaunchIsMadeAgainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.answered = 1
		w.run()
		defer w.stop()
		w.submit(4)
		pass(5 * time.Second)
		if _, instances, bound := w.count(); instances != 1 || bound != 4 {
			t.Errorf("%d instances, %d pods bound; want 1, 4", instances, bound)
		}
	})
}

// While the search for instances fails, it is unknown what was launched.
func TestLaunchIsLookedForUntilThereIsAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.unusable(capacity.ErrTokenMismatch)
		w.broken["FindWave"] = errors.New("no answer")
		w.during["Launch"] = func() {
			delete(w.broken, "Launch")
			if w.calls["Launch"] > 1 {
				w.broken["Launch"] = capacity.ErrTokenMismatch
			}
		}
		w.run()
		defer w.stop()
		w.submit(4)
		pass(90 * time.Second)
		w.mu.Lock()
		delete(w.broken, "FindWave")
		w.mu.Unlock()
		pass(time.Minute)
		if tokens, instances, bound := w.count(); tokens != 1 || instances != 1 || bound != 4 {
			t.Errorf("%d instances under %d tokens, %d pods bound; want 1, 1, 4", instances, tokens, bound)
		}
	})
}
