package lifecycle

import (
	"sync/atomic"

	"k8s.io/client-go/util/workqueue"
)

// key is one thing to reconcile: a claim, or a Node without claim, or all pools (for drift), or, as the zero key, all instances (for garbage
// collection).
type key struct {
	claim, node string
	pools       bool
}

// queue is where everything that changed is enqueued. Keys that are added while the Controller isn't running are ignored, because Run begins
// with all claims. Safe for concurrent use.
type queue struct {
	running atomic.Pointer[workqueue.TypedRateLimitingInterface[key]]
}

func (q *queue) add(k key) {
	if q := q.running.Load(); q != nil {
		(*q).Add(k)
	}
}
