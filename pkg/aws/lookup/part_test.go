package lookup

import (
	"errors"
	"testing"
	"time"
)

// What a part knows after each answer, and when it is looked up next.
func TestPart(t *testing.T) {
	const every = time.Hour
	now := time.Unix(1000, 0)
	var p Part[string]
	failed := errors.New("no connection")
	for _, step := range []struct {
		name  string
		value string
		err   error

		want    string
		usable  bool
		problem bool // a definite answer that there is no value
		wait    time.Duration
	}{
		{name: "no answer yet", err: failed, wait: -1},
		{name: "a value", value: "subnet-a", want: "subnet-a", usable: true, wait: every},
		{name: "no answer keeps the value", err: failed, want: "subnet-a", usable: true, wait: -1},
		{name: "nothing matches", err: Unusablef("no %s", "subnet"), problem: true, wait: problemPeriod},
		{name: "no answer keeps that", err: failed, problem: true, wait: -1},
		{name: "a value again", value: "subnet-b", want: "subnet-b", usable: true, wait: every},
	} {
		wait := p.Ask(now, every, func() (string, error) { return step.value, step.err })
		if p.Value != step.want || p.Usable() != step.usable || (p.Problem != nil) != step.problem || p.Known != (step.usable || step.problem) {
			t.Errorf("%s: %+v", step.name, p)
		}
		if noAnswer := errors.Is(step.err, failed); noAnswer != (p.Err != nil) {
			t.Errorf("%s: the error is %v", step.name, p.Err)
		}
		if step.wait >= 0 && wait != step.wait || wait <= 0 || wait > every {
			t.Errorf("%s: it is looked up again after %v", step.name, wait)
		}
		if again := p.Ask(now.Add(wait-1), every, func() (string, error) { panic("looked up before it was due") }); again != 1 {
			t.Errorf("%s: %v before it is due, %v", step.name, time.Duration(1), again)
		}
		now = now.Add(wait)
	}
}

// Again makes only a part without an answer due.
func TestAgain(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, tt := range []struct {
		name string
		err  error
		due  bool
	}{{"a value", nil, false}, {"nothing matches", Unusable("none"), false}, {"no answer", errors.New("no connection"), true}} {
		var p Part[string]
		p.Ask(now, time.Hour, func() (string, error) { return "", tt.err })
		p.Again()
		asked := false
		p.Ask(now, time.Hour, func() (string, error) { asked = true; return "", nil })
		if asked != tt.due {
			t.Errorf("%s: asked again: %t", tt.name, asked)
		}
	}
}
