package lookup

import (
	"errors"
	"fmt"
	"time"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
)

// Unusable is the definite answer that what a class refers to doesn't exist or can't be used. Any other error means that there is no
// answer.
type Unusable string

func (u Unusable) Error() string { return string(u) }

// Unusablef returns an Unusable with a formatted text.
func Unusablef(format string, args ...any) error { return Unusable(fmt.Sprintf(format, args...)) }

// Part is one kind of reference of a class.
type Part[T any] struct {
	Value T
	// Known: there was a definite answer. Problem is why the last definite answer has no usable value (nothing matches, say); nil: it has one.
	// Err is why the last look-up got no definite answer (a request failed, say); nil: it got one.
	Problem error
	Err     error
	Known   bool
	Due     time.Time // when it is looked up next
	retry   sdk.Backoff
}

// Ask looks the part up if it is due and returns the time until it is due again.
func (p *Part[T]) Ask(now time.Time, every time.Duration, lookUp func() (T, error)) time.Duration {
	if p.Due.After(now) {
		return p.Due.Sub(now)
	}
	value, err := lookUp()
	wait := every
	var none Unusable
	switch {
	case errors.As(err, &none):
		p.Value, p.Problem, p.Err, p.Known, p.retry = value, none, nil, true, sdk.Backoff{}
		// The user will probably fix it soon and should not have to wait for the whole period.
		wait = min(every, problemPeriod)
	case err != nil:
		p.Err, wait = err, p.retry.Next() // the last known value is kept
	default:
		p.Value, p.Problem, p.Err, p.Known, p.retry = value, nil, nil, true, sdk.Backoff{}
	}
	p.Due = now.Add(wait)
	return wait
}

const problemPeriod = 15 * time.Second

// Usable reports whether the last definite answer has a value.
func (p *Part[T]) Usable() bool { return p.Known && p.Problem == nil }

// Again has the part looked up again at once if there is no answer yet: what it refers to may exist now.
func (p *Part[T]) Again() {
	if p.Err != nil {
		p.Due = time.Time{}
	}
}
