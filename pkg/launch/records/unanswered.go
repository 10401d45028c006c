package records

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Unanswered holds claims of the last leader of which the cache shows no launch, until the API server has said whether there was one. Safe for
// concurrent use.
type Unanswered struct {
	mu       sync.Mutex
	open     map[string]bool   // names of the claims about which the API server has not answered
	launched []*capacity.Claim // claims that were launched, as the API server has them, until Take returns them
}

// NewUnanswered returns an Unanswered without claims.
func NewUnanswered() *Unanswered { return &Unanswered{open: map[string]bool{}} }

// Add adds claims that the API server is asked about.
func (u *Unanswered) Add(claims []*capacity.Claim) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, c := range claims {
		u.open[c.Name] = true
	}
}

// Answered records the API server's answer about a claim; launched is nil if the claim is gone.
func (u *Unanswered) Answered(name string, launched *capacity.Claim) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.open, name)
	if launched != nil {
		u.launched = append(u.launched, launched)
	}
}

// Take returns the claims that were launched, each once, sorted by name. A claim is returned only when the API server has answered about all claims
// of its launch batch: the batch's call is repeated for them, it returns the instances of all, and an instance whose claim isn't known to be
// launched would be terminated.
func (u *Unanswered) Take() (ready []*capacity.Claim) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.launched = slices.DeleteFunc(u.launched, func(c *capacity.Claim) bool {
		if c.LaunchBatch != nil && slices.ContainsFunc(c.LaunchBatch.Claims, func(name string) bool { return u.open[name] }) {
			return false
		}
		ready = append(ready, c)
		return true
	})
	slices.SortFunc(ready, func(a, b *capacity.Claim) int { return cmp.Compare(a.Name, b.Name) })
	return ready
}

// Names returns the names of the claims without an answer, sorted.
func (u *Unanswered) Names() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Sorted(maps.Keys(u.open))
}
