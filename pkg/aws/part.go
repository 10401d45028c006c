package aws

import (
	"errors"
	"fmt"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
)

// unusable is the definite answer that what a class refers to doesn't exist or can't be used. Any other error means that there is no
// answer.
type unusable string

func (u unusable) Error() string { return string(u) }

func unusablef(format string, args ...any) error { return unusable(fmt.Sprintf(format, args...)) }

// part is one kind of reference of a class.
type part[T any] struct {
	value T
	// problem is the reason that a definite answer gave for having no value; err is why there is no answer. known: there was an
	// answer.
	problem error
	err     error
	known   bool
	due     time.Time
	retry   sdk.Backoff
}

// ask looks the part up if it is due and returns the time until it is due again.
func (p *part[T]) ask(now time.Time, every time.Duration, lookUp func() (T, error)) time.Duration {
	if p.due.After(now) {
		return p.due.Sub(now)
	}
	value, err := lookUp()
	wait := every
	var none unusable
	switch {
	case errors.As(err, &none):
		p.value, p.problem, p.err, p.known, p.retry = value, none, nil, true, sdk.Backoff{}
		// The user will probably fix it soon and should not have to wait for the whole period.
		wait = min(every, problemPeriod)
	case err != nil:
		p.err, wait = err, p.retry.Next() // the last known value is kept
	default:
		p.value, p.problem, p.err, p.known, p.retry = value, nil, nil, true, sdk.Backoff{}
	}
	p.due = now.Add(wait)
	return wait
}

const problemPeriod = 15 * time.Second

func (p *part[T]) usable() bool { return p.known && p.problem == nil }

// Again makes the part due if there is no answer: what it needs may exist now.
func (p *part[T]) Again() {
	if p.err != nil {
		p.due = time.Time{}
	}
}
