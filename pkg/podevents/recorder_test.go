package podevents

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/component-base/metrics/testutil"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Thousands of pods get the event that a node is planned for them. The warnings of pods that get no node are written at once and not
// dropped because of these.
func TestWarningsDoNotWaitForOtherEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		written := events.NewFakeRecorder(3 * eventBacklog)
		r := New(written)
		for i := range eventBacklog + 1000 {
			r.Pod(capacity.PodRef{Name: fmt.Sprint("p", i)}, corev1.EventTypeNormal, "Nominated", "a node comes")
		}
		for i := range 20 {
			r.Pod(capacity.PodRef{Name: fmt.Sprint("w", i)}, corev1.EventTypeWarning, "LaunchFailed", "no node comes")
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			r.Run(ctx)
			close(done)
		}()
		pass(time.Second)
		if n := count(written, "LaunchFailed"); n != 20 {
			t.Errorf("%d of 20 warnings were written within a second", n)
		}
		pass(3 * time.Minute)
		if n := count(written, "Nominated"); n == 0 {
			t.Error("nothing else was written in three minutes")
		}
		cancel()
		<-done
	})
}

// Events of success are a sample under load, for each reason, and what is left out is counted. Failures are all written.
func TestSuccessesAreSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leftOut.Reset()
		written := events.NewFakeRecorder(10 * eventBacklog)
		r := New(written)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			r.Run(ctx)
			close(done)
		}()
		const minutes, perSecond = 2, 40
		for range minutes * 60 {
			for i := range perSecond {
				ref := capacity.PodRef{Name: fmt.Sprint("p", i)}
				r.Pod(ref, corev1.EventTypeNormal, "Nominated", "a node comes")
				if i%4 == 0 {
					r.Pod(ref, corev1.EventTypeWarning, "LaunchFailed", "no node comes")
				}
			}
			pass(time.Second)
		}
		r.Pod(capacity.PodRef{Name: "other"}, corev1.EventTypeNormal, "WaitingForNode", "a driver is missing")
		pass(time.Minute)
		by := map[string]int{}
		for len(written.Events) > 0 {
			by[strings.Fields(<-written.Events)[1]]++
		}
		all := minutes * 60 * perSecond
		want := map[string]int{"Nominated": successBurst + (minutes*60-1)*successesPerSecond, "LaunchFailed": all / 4, "WaitingForNode": 1}
		if diff := cmp.Diff(want, by); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if got, err := testutil.GetCounterMetricValue(leftOut.WithLabelValues("Nominated")); err != nil || int(got) != all-want["Nominated"] {
			t.Errorf("%v left out, err %v, want %d", got, err, all-want["Nominated"])
		}
		cancel()
		<-done
	})
}

// count takes the events that were written, and returns how many have the reason.
func count(written *events.FakeRecorder, reason string) (n int) {
	for {
		select {
		case e := <-written.Events:
			if strings.Contains(e, reason) {
				n++
			}
		default:
			return n
		}
	}
}

// pass lets time pass in a synctest bubble.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestNotesAreOneShortLine(t *testing.T) {
	err := errors.Join(errors.New("instance i-1 has not shown its name"), context.DeadlineExceeded)
	if got, want := short(err.Error()), "instance i-1 has not shown its name; context deadline exceeded"; got != want {
		t.Errorf("note %q, want %q", got, want)
	}
	if got := short(strings.Repeat("ä", 600)); len(got) > 1024 || !strings.HasSuffix(got, "ä ...") {
		t.Errorf("a long note becomes %d bytes ending in %q", len(got), got[len(got)-10:])
	}
}
