package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/dovetail-scheduler/dovetail/test/ec2"
)

// launches returns all instances in the order of their launch.
func (s *Stage) launches() []ec2.Instance {
	all := s.ec2.Instances()
	slices.SortStableFunc(all, func(a, b ec2.Instance) int { return a.Launched.Compare(b.Launched) })
	return all
}

// Launched returns how many instances were launched.
func (s *Stage) Launched() int { return len(s.ec2.Instances()) }

// LaunchedBetween returns how many instances were launched in a span of the scene's time.
func (s *Stage) LaunchedBetween(from, to time.Duration) (n int) {
	for _, in := range s.launches() {
		if at := in.Launched.Sub(begin); at >= from && at < to {
			n++
		}
	}
	return n
}

// FirstRound returns how many instances the first round launched: those launched before the first of them ended, at most as many as
// the demand needs.
func (s *Stage) FirstRound(need int) (n int) {
	all := s.launches()
	var over time.Time
	for _, in := range all {
		if !in.Ending.IsZero() && (over.IsZero() || in.Ending.Before(over)) {
			over = in.Ending
		}
	}
	for _, in := range all {
		if n < need && (over.IsZero() || in.Launched.Before(over)) {
			n++
		}
	}
	return n
}

// Hours returns the instance hours that were paid, and their price in dollars.
func (s *Stage) Hours() (hours, dollars float64) {
	for _, in := range s.launches() {
		end := in.Ending
		if end.IsZero() {
			end = time.Now()
		}
		if in.Running.IsZero() {
			continue
		}
		h := max(end.Sub(in.Running), time.Minute).Hours()
		hours += h
		dollars += h * in.Price
	}
	return hours, dollars
}

// AtMost notes a number, and fails the scene if it is larger than most.
func (s *Stage) AtMost(what string, got, most int) {
	s.Note("%s: %d (at most %d)", what, got, most)
	if got > most {
		s.Failf("%s: %d, at most %d", what, got, most)
	}
}

// AtLeast notes a number, and fails the scene if it is smaller than least.
func (s *Stage) AtLeast(what string, got, least int) {
	s.Note("%s: %d (at least %d)", what, got, least)
	if got < least {
		s.Failf("%s: %d, at least %d", what, got, least)
	}
}

// Pods returns the pods with all of these labels, sorted by name.
func (s *Stage) Pods(labels map[string]string) []*corev1.Pod {
	if s.seen == nil {
		r := newReader()
		s.seen = &r
	}
	var out []*corev1.Pod
	var err error
	s.api.Visit("", "pods", func(o *unstructured.Unstructured) {
		for k, v := range labels {
			if o.GetLabels()[k] != v {
				return
			}
		}
		out = append(out, convert(s.seen, o, &corev1.Pod{}, &err))
	})
	if err != nil {
		s.Failf("%v", err)
	}
	return out
}

// Missing describes which of the wanted pods of an app don't run; empty: all do.
func (s *Stage) Missing(app string, want int) string {
	running := 0
	why := ""
	for _, p := range s.Pods(map[string]string{appLabel: app}) {
		switch {
		case p.DeletionTimestamp != nil:
		case p.Status.Phase == corev1.PodRunning && readyPod(p):
			running++
		case why == "":
			why = fmt.Sprintf("; pod %s is %s on node %q: %s", p.Name, p.Status.Phase, p.Spec.NodeName, words(p))
		}
	}
	if running >= want {
		return ""
	}
	return fmt.Sprintf("%d of %d pods of %s run%s", running, want, app, why)
}

// Running returns a function that does what Missing does for several apps.
func (s *Stage) Running(want map[string]int) func() string {
	return func() string {
		var out []string
		for app, n := range want {
			if m := s.Missing(app, n); m != "" {
				out = append(out, m)
			}
		}
		slices.Sort(out)
		return strings.Join(out[:min(len(out), 3)], "\n")
	}
}

func readyPod(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
