package main

import (
	"fmt"
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/explain"
)

const (
	// boundEvery is how often the bound is worked out again, which is much more work than the rest.
	boundEvery = time.Minute
	// mostOfTime: at most one part in mostOfTime of the time is spent on reading the cluster, but no pause is longer than longestPause.
	mostOfTime   = 10
	longestPause = 30 * time.Second
	// stallFactor: a look that takes so many times as long as the one before, and longer than patience, has waited for an API server that didn't answer.
	stallFactor = 3
)

// looking reads the cluster, with the bound if that is asked for.
type looking func(bound bool) (*explain.Overview, []string, error)

// watch shows the cluster until the user ends it.
func watch(cmd *cobra.Command, look looking, interval time.Duration, bound bool) error {
	m := &topModel{look: look, interval: interval, bound: bound, clock: clock.RealClock{}}
	_, err := tea.NewProgram(m, tea.WithContext(cmd.Context()), tea.WithInput(cmd.InOrStdin()), tea.WithOutput(cmd.OutOrStdout()), tea.WithAltScreen()).Run()
	return err
}

// topModel is the state of the terminal.
type topModel struct {
	look          looking
	interval      time.Duration
	bound         bool
	clock         clock.PassiveClock
	width, height int
	took          time.Duration // by the last look that was answered, without what it waited for an API server that didn't answer
	// latest is what was read last, readAt when that look began, problem why the last attempt failed.
	latest  *explain.Overview
	readAt  time.Time
	notes   []string
	problem error
	// asked is when the look began that is still waiting for its answer; zero: none is waiting.
	asked time.Time
	// boundAt is when the look began with which the bound was worked out, top the first line that is shown.
	boundAt time.Time
	top     int
}

// looked is the answer of one look at the cluster.
type looked struct {
	overview *explain.Overview
	notes    []string
	err      error
	start    time.Time
	took     time.Duration
	bound    bool
}

// again asks for the next look.
type again struct{}

func (m *topModel) Init() tea.Cmd { return tea.Batch(m.read(), redraw()) }

// second lets the terminal be drawn again, so that it shows how long an answer is missing.
type second struct{}

func redraw() tea.Cmd { return tea.Tick(time.Second, func(time.Time) tea.Msg { return second{} }) }

// read looks at the cluster beside the terminal's own loop.
func (m *topModel) read() tea.Cmd {
	bound := m.bound && (m.boundAt.IsZero() || m.clock.Since(m.boundAt) >= boundEvery)
	look, c := m.look, m.clock
	start := c.Now()
	m.asked = start
	return func() tea.Msg {
		o, notes, err := look(bound)
		return looked{o, notes, err, start, c.Since(start), bound}
	}
}

func (m *topModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.KeyMsg:
		return m, m.key(msg.String())
	case again:
		return m, m.read()
	case second:
		return m, redraw()
	case looked:
		m.take(msg)
		return m, tea.Tick(m.pause(), func(time.Time) tea.Msg { return again{} })
	}
	return m, nil
}

// pause is how long to wait before the next look.
func (m *topModel) pause() time.Duration {
	return max(m.interval, min(mostOfTime*m.took, longestPause))
}

// take keeps what was read. The bound of an earlier look stays until there is a new one, and says from when it is.
func (m *topModel) take(l looked) {
	m.asked = time.Time{}
	if m.problem = l.err; l.err != nil {
		return
	}
	switch {
	case l.bound:
		m.boundAt = l.start
	case m.latest != nil:
		l.overview.Least = m.latest.Least
		l.overview.BoundAt = m.boundAt
	}
	if m.latest != nil && l.took > m.stalled() {
		l.took = stallFactor * max(m.took, time.Second/10) // a cluster that really has become slow is believed step by step
	}
	m.latest, m.notes, m.readAt, m.took = l.overview, l.notes, l.start, l.took
}

// stalled is how long a look takes at most that doesn't wait for an API server that has stopped.
func (m *topModel) stalled() time.Duration { return max(patience, stallFactor*m.took) }

func (m *topModel) key(name string) tea.Cmd {
	switch name {
	case "q", "esc", "ctrl+c":
		return tea.Quit
	case "down", "j":
		m.top++
	case "up", "k":
		m.top--
	case "pgdown", " ":
		m.top += m.room()
	case "pgup":
		m.top -= m.room()
	case "home", "g":
		m.top = 0
	}
	return nil
}

// patience is how long an answer may be missing before the terminal says so: a look at a large cluster takes seconds, and more with the bound.
const patience = 15 * time.Second

// late returns for how long an answer is missing; 0: it isn't late.
func (m *topModel) late() time.Duration {
	if m.asked.IsZero() {
		return 0
	}
	if took := m.clock.Since(m.asked); took > m.stalled() {
		return took
	}
	return 0
}

// room is how many lines there are for what is shown, above the last line with the keys.
func (m *topModel) room() int { return max(m.height-1, 1) }

func (m *topModel) View() string {
	if m.latest == nil {
		if m.problem != nil {
			return "The cluster can't be read: " + m.problem.Error() + "\nIt is tried again. q: quit"
		}
		return "Reading the cluster ..."
	}
	var b strings.Builder
	switch late := m.late(); {
	case m.problem != nil:
		fmt.Fprintf(&b, "What follows is old, %s: %v\n", m.age(), m.problem)
	case late > 0:
		fmt.Fprintf(&b, "What follows is old, %s: the cluster hasn't answered for %v\n", m.age(), late.Round(time.Second))
	}
	_ = m.latest.WriteWithin(&b, m.width) // a strings.Builder refuses nothing
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	for _, note := range m.notes {
		lines = append(lines, "Note: "+note)
	}
	m.top = max(min(m.top, len(lines)-m.room()), 0)
	lines = lines[m.top:min(m.top+m.room(), len(lines))]
	for i, line := range lines {
		if runes := []rune(line); m.width > 0 && len(runes) > m.width {
			lines[i] = string(runes[:max(m.width-1, 0)]) + "…"
		}
	}
	return strings.Join(lines, "\n") + "\n" + m.age() + "; q: quit, up and down: scroll"
}

// age says when what is shown was read.
func (m *topModel) age() string {
	return fmt.Sprintf("read at %s, %s ago", m.readAt.Format(time.TimeOnly), explain.Age(m.clock.Since(m.readAt)))
}
