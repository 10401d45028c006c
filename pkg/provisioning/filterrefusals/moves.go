package filterrefusals

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

const (
	// firstPause is how long a placement that was refused for a move for the first time is not proposed again. What a filter says of a move often
	// depends on pods that are about to be bound (a spread over zones), and then it is wrong a moment later. pauseMost is the longest such pause, and
	// also how long a refusal is still remembered after its pause, so that a further refusal has a longer one.
	firstPause = time.Minute
	pauseMost  = 10 * time.Minute
)

// Moves remembers what was refused for moves of pods to other nodes, so that it isn't proposed in each pass. How long that lasts doubles each
// time the same placement is refused again, whatever the reason: reasons have amounts in them that change. Only one goroutine uses it.
type Moves struct {
	clock   clock.PassiveClock
	refused map[capacity.Forbidden]pause // by what is refused, without a reason
}

type pause struct {
	of          capacity.Forbidden // with the reason
	from, until time.Time
}

// NewMoves returns a Moves of nothing yet.
func NewMoves(c clock.PassiveClock) *Moves {
	return &Moves{clock: c, refused: map[capacity.Forbidden]pause{}}
}

// Refuse remembers that a placement was refused, by a filter or because its node could not be bought.
func (m *Moves) Refuse(f capacity.Forbidden) {
	now, length, key := m.clock.Now(), firstPause, f
	key.Plugin, key.Reason = "", ""
	if before, ok := m.refused[key]; ok && now.Before(before.until.Add(pauseMost)) {
		if now.Before(before.until) { // refused twice in one pass
			return
		}
		length = min(2*before.until.Sub(before.from), pauseMost)
	}
	m.refused[key] = pause{f, now, now.Add(length)}
}

// Recall returns what must not be proposed now, always in the same order.
func (m *Moves) Recall() (out []capacity.Forbidden) {
	now := m.clock.Now()
	maps.DeleteFunc(m.refused, func(_ capacity.Forbidden, p pause) bool { return !now.Before(p.until.Add(pauseMost)) })
	for _, p := range m.refused {
		if now.Before(p.until) {
			out = append(out, p.of)
		}
	}
	slices.SortFunc(out, func(a, b capacity.Forbidden) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return out
}
