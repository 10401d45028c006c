package permission

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

const (
	// pace is the time between two checks of any classes. A check takes up to two requests from each rate limit that launches share, of four
	// requests per second: most of them are left for launches.
	pace = 2 * time.Second
	// allowedFor is how long the answer counts that a class may be launched from, unless the class changes. deniedFor is the same for a
	// denial, and short, so that a corrected policy is noticed soon.
	allowedFor, deniedFor = 30 * time.Minute, time.Minute
)

// Subject is a node class as it is resolved now.
type Subject struct {
	Name string
	// Key identifies everything that the answer depends on: when it changes, the class is checked again.
	Key string
	// Tries returns one launch to ask about for each of the pools, which use the class, in the same order. If it returns none, the class isn't
	// checked now.
	Tries func(pools []*capacity.Pool) []Try
	// Tell is called with each answer; nil: it may be launched from.
	Tell func(*Denial)
}

// Checker checks node classes, each when it is due:
//
//	new, changed -> asked -> allowed, asked again after allowedFor
//	                      -> denied, asked again after deniedFor
//	                      -> no answer, asked again with back-off; the last answer stays
type Checker struct {
	clock    clock.WithTicker
	api      API
	hold     func() error
	subjects func() []Subject

	mu     sync.Mutex // held while a class is checked
	pools  func(nodeClass string) []*capacity.Pool
	states map[string]*state
}

type state struct {
	key   string
	due   time.Time
	retry sdk.Backoff
}

// New returns a checker of the classes that subjects returns. hold returns why nothing may be launched now; then nothing is checked either.
func New(c clock.WithTicker, api API, hold func() error, subjects func() []Subject) *Checker {
	return &Checker{clock: c, api: api, hold: hold, subjects: subjects, states: map[string]*state{}}
}

// UsedBy registers the function that returns the pools that use a node class, in the order in which they are tried. Only classes that a pool
// uses are checked.
func (c *Checker) UsedBy(pools func(nodeClass string) []*capacity.Pool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pools = pools
}

// Run checks classes until ctx ends.
func (c *Checker) Run(ctx context.Context) {
	for sdk.Sleep(ctx, c.clock, pace) {
		c.Next(ctx)
	}
}

// Next checks the class that has been due for longest and reports whether there was one.
func (c *Checker) Next(ctx context.Context) bool {
	if c.hold() != nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pools == nil {
		return false
	}
	now := c.clock.Now()
	s := c.longestDue(c.subjects(), now)
	if s == nil {
		return false
	}
	tries := s.Tries(c.pools(s.Name))
	if len(tries) == 0 {
		c.states[s.Name].due = now.Add(pace) // a pool may begin to use it
		return false
	}
	denial, err := c.ask(ctx, tries)
	if ctx.Err() != nil {
		return false
	}
	st, logger := c.states[s.Name], klog.FromContext(ctx).WithValues("nodeClass", s.Name)
	if err != nil {
		logger.V(2).Info("Could not check the permission to launch", "err", sdk.Summarize(err))
		st.due = now.Add(st.retry.Next())
		return true
	}
	st.retry, st.due = sdk.Backoff{}, now.Add(allowedFor)
	if denial != nil {
		st.due = now.Add(deniedFor)
	}
	logger.V(3).Info("Checked the permission to launch", "denied", denial)
	s.Tell(denial)
	return true
}

// longestDue brings the states up to date and returns the class that has been due for longest, or nil.
func (c *Checker) longestDue(all []Subject, now time.Time) *Subject {
	kept := make(map[string]*state, len(all))
	var due []*Subject
	for i := range all {
		s := &all[i]
		st := c.states[s.Name]
		if st == nil || st.key != s.Key {
			st = &state{key: s.Key}
		}
		if kept[s.Name] = st; !st.due.After(now) {
			due = append(due, s)
		}
	}
	c.states = kept
	if len(due) == 0 {
		return nil
	}
	return slices.MinFunc(due, func(a, b *Subject) int {
		return cmp.Or(kept[a.Name].due.Compare(kept[b.Name].due), cmp.Compare(a.Name, b.Name))
	})
}
