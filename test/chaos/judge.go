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

// launches are all instances in the order of their launch.
func (s *Stage) launches() []ec2.Instance {
	all := s.ec2.Instances()
	slices.SortStableFunc(all, func(a, b ec2.Instance) int { return a.Launched.Compare(b.Launched) })
	return all
}

// Launched is how many machines have been bought.
func (s *Stage) Launched() int { return len(s.ec2.Instances()) }

// LaunchedBetween is how many machines were bought in a span of the scene's time.
func (s *Stage) LaunchedBetween(from, to time.Duration) (n int) {
	for _, in := range s.launches() {
		if at := in.Launched.Sub(begin); at >= from && at < to {
			n++
		}
	}
	return n
}

// FirstRound is how many machines the first round bought: those launched before the first of them ended, at most as many as the
// demand needs.
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

// Hours are the machine hours that have been paid, and Dollars what they cost.
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

// AtMost fails the scene where a number is larger, and notes it in any case.
func (s *Stage) AtMost(what string, got, most int) {
	s.Note("%s: %d (at most %d)", what, got, most)
	if got > most {
		s.Failf("%s: %d, at most %d", what, got, most)
	}
}

// AtLeast fails the scene where a number is smaller.
func (s *Stage) AtLeast(what string, got, least int) {
	s.Note("%s: %d (at least %d)", what, got, least)
	if got < least {
		s.Failf("%s: %d, at least %d", what, got, least)
	}
}

// Pods are those in whose labels all of the given are, by name.
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

// Missing says which of so many pods of an app don't run, or nothing.
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

// Running is what Missing says about several apps, so many pods each.
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
