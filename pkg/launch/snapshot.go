package launch

import (
	"sync"

	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
)

// snapshot is a view of the scheduler's cache for others than the planner. Safe for concurrent use.
type snapshot struct {
	mu    sync.Mutex
	world provisioning.World
}
