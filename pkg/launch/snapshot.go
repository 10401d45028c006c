package launch

import (
	"sync"
)

// snapshot is a view of the scheduler's cache for others than the planner. Safe for concurrent use.
type snapshot struct {
	mu    sync.Mutex
	world World
}
