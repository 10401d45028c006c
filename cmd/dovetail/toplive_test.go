package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	tea "github.com/charmbracelet/bubbletea"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/dovetail-scheduler/dovetail/pkg/explain"
)

// The terminal shows what was read, keeps the bound between the looks that work it out, and keeps what is old if the cluster can't be read.
func TestTopOnATerminal(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC))
	var asked []bool
	nodes, failure := 1, error(nil)
	m := &topModel{interval: time.Second, bound: true, clock: clock, look: func(bound bool) (*explain.Overview, []string, error) {
		asked = append(asked, bound)
		o := &explain.Overview{PerHour: float64(nodes)}
		for i := range nodes {
			o.Nodes = append(o.Nodes, explain.NodeUse{Name: fmt.Sprintf("node-%d", i), State: "Ready"})
		}
		if bound {
			o.Bound, o.Managed, o.ManagedPerHour = 0.5, 1, 1
		}
		return o, []string{"prices are rough"}, failure
	}}
	send := func(msg tea.Msg) { m.Update(msg) }
	look := func() { send(m.read()()) }
	shows := func(what string, want bool) {
		t.Helper()
		if got := strings.Contains(m.View(), what); got != want {
			t.Errorf("%q is shown: %v, want %v in\n%s", what, got, want, m.View())
		}
	}
	send(tea.WindowSizeMsg{Width: 60, Height: 12})
	shows("Reading the cluster", true)
	look()
	shows("1 node: $1.0000/h", true)
	shows("at least\n  $0.5000/h", true) // wrapped at the width
	send(tea.WindowSizeMsg{Width: 20, Height: 30})
	for line := range strings.Lines(m.View()) {
		if line = strings.TrimRight(line, "\n"); strings.HasPrefix(line, "node-0") && (!strings.HasSuffix(line, "…") || utf8.RuneCountInString(line) != 20) {
			t.Errorf("%q doesn't say that it is cut", line)
		}
	}
	send(tea.WindowSizeMsg{Width: 200, Height: 12})
	shows("at least $0.5000/h", true)
	shows("Note: prices are rough", true)

	nodes = 2
	look()
	shows("2 nodes", true)
	shows("at least $0.5000/h", true)
	clock.SetTime(clock.Now().Add(boundEvery / 2))
	look()
	shows("At 10:00:00, 1 node of pools: $1.0000/h. Their pods cost at least $0.5000/h", true)
	shows("read at 10:00:30, 0s ago; q: quit", true)
	clock.SetTime(clock.Now().Add(boundEvery / 2))
	look()
	shows("At 10:00:00", false)
	if got := fmt.Sprint(asked); got != "[true false false true]" {
		t.Errorf("the bound was asked for: %s", got)
	}

	failure = errors.New("connection refused")
	clock.SetTime(clock.Now().Add(9 * time.Second))
	look()
	shows("What follows is old, read at 10:01:00, 9s ago: connection refused", true)
	shows("2 nodes", true)

	failure = nil
	look()
	m.read() // is never answered
	clock.SetTime(clock.Now().Add(patience))
	shows("What follows is old", false)
	clock.SetTime(clock.Now().Add(time.Second))
	shows("What follows is old, read at 10:01:09, 16s ago: the cluster hasn't answered for 16s", true)
	failure, nodes = nil, 40
	look()
	shows("What follows is old", false)
	shows("node-39", false)
	for range 10 {
		send(tea.KeyMsg{Type: tea.KeyPgDown})
	}
	shows("node-39", true)
	if lines := strings.Count(m.View(), "\n") + 1; lines != 12 {
		t.Errorf("%d lines are shown, want 12", lines)
	}
	send(tea.KeyMsg{Type: tea.KeyHome})
	shows("node-0 ", true)
	if _, cmd := m.Update(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("q")}); cmd == nil || cmd() != tea.Quit() {
		t.Error("q doesn't end it")
	}
}

// Reading takes a tenth of the time at most, but the terminal is never old for long; and an API server that was stopped for a while counts as a stall, not as
// a cluster that takes so long to read.
func TestTopLooksLessOftenAtALargeCluster(t *testing.T) {
	for name, tc := range map[string]struct{ takes, want []time.Duration }{
		"quick":               {[]time.Duration{time.Millisecond}, []time.Duration{5 * time.Second}},
		"large":               {[]time.Duration{2 * time.Second}, []time.Duration{20 * time.Second}},
		"very large":          {[]time.Duration{time.Minute}, []time.Duration{30 * time.Second}},
		"stopped for a while": {[]time.Duration{100 * time.Millisecond, 40 * time.Second, 100 * time.Millisecond}, []time.Duration{5 * time.Second, 5 * time.Second, 5 * time.Second}},
		"has become slow":     {[]time.Duration{time.Second, time.Minute, time.Minute, time.Minute}, []time.Duration{10 * time.Second, 30 * time.Second, 30 * time.Second, 30 * time.Second}},
	} {
		m := &topModel{interval: 5 * time.Second}
		for i, took := range tc.takes {
			m.take(looked{overview: &explain.Overview{}, took: took})
			if got := m.pause(); got != tc.want[i] {
				t.Errorf("%s: after look %d it waits for %s, want %s", name, i+1, got, tc.want[i])
			}
		}
	}
}
