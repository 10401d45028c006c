package launch

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// events returns the notes of events with a reason, each once, without the random part of names, and how often events with that reason were
// written.
func (w *world) events(reason string) (out []string, times int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.notes {
		if !strings.Contains(n, " "+reason+" ") {
			continue
		}
		times++
		if n = claimName.ReplaceAllString(n, "pool-*"); !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out, times
}

var claimName = regexp.MustCompile(`pool-[a-z0-9]{8}`)

// Pods and pool get an event with the cause of a failed launch call at once, one per cause, and not only when the launch is given up.
func TestACallThatFailedIsReportedAtOnce(t *testing.T) {
	w := newWorld(t)
	because := func(err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.broken["Launch"] = err
	}
	because(fmt.Errorf("RequestLimitExceeded: Request limit exceeded.%w", quiet{capacity.ErrThrottled}))
	w.run()
	w.submit(2)
	w.until("three calls", func() bool { return w.calls["Launch"] >= 3 })
	got, times := w.events("LaunchDelayed")
	want := []string{
		"p0 LaunchDelayed node pool-* is not launched yet, and is tried again: RequestLimitExceeded: Request limit exceeded.",
		"p1 LaunchDelayed node pool-* is not launched yet, and is tried again: RequestLimitExceeded: Request limit exceeded.",
		"pool LaunchDelayed launches fail, and are tried again: RequestLimitExceeded: Request limit exceeded.",
		"pool-* LaunchDelayed for now: RequestLimitExceeded: Request limit exceeded.",
	}
	if diff := cmp.Diff(want, got); diff != "" || times != len(want) {
		t.Errorf("%d events (-want +got):\n%s", times, diff)
	}
	because(fmt.Errorf("InternalError: An internal error has occurred"))
	w.until("the new cause", func() bool {
		return slices.ContainsFunc(w.notes, func(n string) bool {
			return strings.HasPrefix(n, "pool ") && strings.HasSuffix(n, "InternalError: An internal error has occurred")
		})
	})
	because(nil)
	w.allBound(2)
}

// quiet wraps a sentinel error that its text doesn't mention.
type quiet struct{ error }

func (q quiet) Error() string { return "" }
func (q quiet) Unwrap() error { return q.error }

// A call that is answered but launches nothing is reported to the pods, too.
func TestAnAnswerThatBringsNothingIsReported(t *testing.T) {
	w := newWorld(t)
	w.answered = 2
	w.run()
	w.submit(1)
	w.allBound(1)
	if got, _ := w.events("LaunchDelayed"); len(got) != 3 || !strings.HasPrefix(got[0], "p0 LaunchDelayed node pool-* is not launched yet, and is tried again: ") {
		t.Errorf("said %q", got)
	}
}

// A user may be waiting for a standalone NodeClaim without any pods: the claim gets the cause as a condition, once, and at the end why
// nothing was launched.
func TestDelayOfAClaimMadeByHand(t *testing.T) {
	w := newWorld(t)
	w.build() // a leader that begins would delete the claim, because no launch is recorded on it
	var d delay
	claims := []*capacity.Claim{{Name: "mine"}}
	w.mu.Lock()
	w.claims["mine"] = claims[0]
	w.mu.Unlock()
	for range 2 {
		w.parts.delays.delayed(t.Context(), &capacity.LaunchBatch{For: capacity.ForOrder}, claims, &d, "RequestLimitExceeded: (3 times)")
	}
	got, times := w.events("LaunchDelayed")
	if diff := cmp.Diff([]string{"mine LaunchDelayed for now: RequestLimitExceeded: (3 times)"}, got); diff != "" || times != 1 {
		t.Errorf("a claim made by hand, %d events (-want +got):\n%s", times, diff)
	}
	if got := d.after("gave up after many attempts"); got != "gave up after many attempts: RequestLimitExceeded: (3 times)" {
		t.Errorf("said at the end: %s", got)
	}
	if got := delay("").after("gave up after many attempts"); got != "gave up after many attempts" {
		t.Errorf("said at the end of what has not failed: %s", got)
	}
}
