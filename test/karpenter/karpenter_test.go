package karpenter

import (
	"strings"
	"testing"
)

func TestMetricsAreSummed(t *testing.T) {
	m := Metrics(strings.Split(`# HELP commands_total Commands.
commands_total{decision="delete",reason="underutilized"} 3
commands_total{decision="replace",reason="underutilized"} 2
commands_total{decision="delete",reason="empty"} 7
commands_total_other{decision="delete",reason="underutilized"} 100
plain 5`, "\n"))
	for _, tc := range []struct {
		name   string
		labels []string
		want   int
	}{
		{"commands_total", nil, 12},
		{"commands_total", []string{`reason="underutilized"`}, 5},
		{"commands_total", []string{`reason="underutilized"`, `decision="replace"`}, 2},
		{"plain", nil, 5},
		{"absent", nil, 0},
	} {
		if got := m.Sum(tc.name, tc.labels...); got != tc.want {
			t.Errorf("%s%v is %d, want %d", tc.name, tc.labels, got, tc.want)
		}
	}
}
