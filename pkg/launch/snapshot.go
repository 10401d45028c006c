package launch

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
)

// snapshot is a view of the scheduler's cache for launches and static pools; the planner has a view of its own. Safe for concurrent use.
type snapshot struct {
	mu    sync.Mutex
	world provisioning.World
}

// nodes calls visit with each node of the scheduler's cache.
func (s *snapshot) nodes(ctx context.Context, visit func(*capacity.Node, *corev1.Node)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.world.Refresh(ctx); err != nil {
		return err
	}
	s.world.Nodes(func(n *capacity.Node, o *corev1.Node) *capacity.Node {
		visit(n, o)
		return n
	})
	return nil
}
