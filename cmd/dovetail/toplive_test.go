package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

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
	send(tea.WindowSizeMsg{Width: 200, Height: 12})
	shows("at least $0.5000/h", true)
	shows("Note: prices are rough", true)

	nodes = 2
	look()
	shows("2 nodes", true)
	shows("at least $0.5000/h", true)
	clock.SetTime(clock.Now().Add(boundEvery))
	look()
	if got := fmt.Sprint(asked); got != "[true false true]" {
		t.Errorf("the bound was asked for: %s", got)
	}

	failure = errors.New("connection refused")
	look()
	shows("What follows is old: connection refused", true)
	shows("2 nodes", true)

	failure = nil
	look()
	m.read() // is never answered
	clock.SetTime(clock.Now().Add(patience))
	shows("What follows is old", false)
	clock.SetTime(clock.Now().Add(time.Second))
	shows("What follows is old: the cluster hasn't answered for 16s", true)
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

// Reading takes a tenth of the time at most.
func TestTopLooksLessOftenAtALargeCluster(t *testing.T) {
	m := &topModel{interval: 5 * time.Second}
	for took, want := range map[time.Duration]time.Duration{time.Millisecond: 5 * time.Second, 3 * time.Second: 30 * time.Second} {
		if got := m.pause(took); got != want {
			t.Errorf("after a look of %s it waits for %s, want %s", took, got, want)
		}
	}
}
