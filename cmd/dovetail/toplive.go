package main

import (
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
	// mostOfTime: reading takes one part in so many of the time at most.
	mostOfTime = 10
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
	// latest is what was read last, problem why the last attempt failed.
	latest  *explain.Overview
	notes   []string
	problem error
	// boundAt is when the bound was worked out, top the first line that is shown.
	boundAt time.Time
	top     int
}

// looked is the answer of one look at the cluster.
type looked struct {
	overview *explain.Overview
	notes    []string
	err      error
	took     time.Duration
	bound    bool
}

// again asks for the next look.
type again struct{}

func (m *topModel) Init() tea.Cmd { return m.read() }

// read looks at the cluster beside the terminal's own loop.
func (m *topModel) read() tea.Cmd {
	bound := m.bound && (m.boundAt.IsZero() || m.clock.Since(m.boundAt) >= boundEvery)
	look, c := m.look, m.clock
	return func() tea.Msg {
		start := c.Now()
		o, notes, err := look(bound)
		return looked{o, notes, err, c.Since(start), bound}
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
	case looked:
		m.take(msg)
		return m, tea.Tick(m.pause(msg.took), func(time.Time) tea.Msg { return again{} })
	}
	return m, nil
}

// pause is how long to wait after a look that took so long.
func (m *topModel) pause(took time.Duration) time.Duration { return max(m.interval, mostOfTime*took) }

// take keeps what was read. The bound of an earlier look stays until there is a new one.
func (m *topModel) take(l looked) {
	if m.problem = l.err; l.err != nil {
		return
	}
	switch {
	case l.bound:
		m.boundAt = m.clock.Now()
	case m.latest != nil:
		l.overview.Bound, l.overview.Managed, l.overview.ManagedPerHour = m.latest.Bound, m.latest.Managed, m.latest.ManagedPerHour
	}
	m.latest, m.notes = l.overview, l.notes
}

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
	if m.problem != nil {
		b.WriteString("What follows is old: " + m.problem.Error() + "\n")
	}
	_ = m.latest.Write(&b) // a strings.Builder refuses nothing
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	for _, note := range m.notes {
		lines = append(lines, "Note: "+note)
	}
	m.top = max(min(m.top, len(lines)-m.room()), 0)
	lines = lines[m.top:min(m.top+m.room(), len(lines))]
	for i, line := range lines {
		if runes := []rune(line); m.width > 0 && len(runes) > m.width {
			lines[i] = string(runes[:m.width])
		}
	}
	return strings.Join(lines, "\n") + "\nq: quit, up and down: scroll"
}
