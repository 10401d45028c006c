package pending

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// cycles knows of the scheduler's cycles what can't be seen from the ledger: pods whose cycle has failed without making them demand (no node is
// launched for a pod whose volume is being provisioned, and preemption may help others first), and whether there are cycles at all. It has a lock of
// its own: the scheduling loop doesn't wait for those who read all pods.
type cycles struct {
	mu sync.Mutex
	// failed and failedBefore hold the pods whose cycle has failed, for admittedWindow at least: older pods don't count as untried anyway. They are not
	// kept with the pods, because the scheduler may see a pod, and try it, before Pods knows it.
	failed, failedBefore map[types.UID]bool
	begun                time.Time // when failed was empty
	asked                time.Time // when the scheduler last asked for a pod
}

func (c *cycles) fail(uid types.UID, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil || now.Sub(c.begun) > admittedWindow {
		c.failedBefore, c.failed, c.begun = c.failed, map[types.UID]bool{}, now
	}
	c.failed[uid] = true
}

func (c *cycles) hasFailed(uid types.UID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed[uid] || c.failedBefore[uid]
}

func (c *cycles) ask(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = now
}

// since returns how long ago the scheduler asked for a pod.
func (c *cycles) since(now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return now.Sub(c.asked)
}

// Tried notes that a pod of our profiles has had a scheduling cycle and found no node, whatever comes of it. It is O(1), for the scheduling loop.
func (p *Pods) Tried(uid types.UID) { p.newcomers.cycles.fail(uid, p.reservations.Now()) }

// Asked notes that the scheduler asks for a pod, as it does after each cycle. It is O(1), for the scheduling loop.
func (p *Pods) Asked() { p.newcomers.cycles.ask(p.reservations.Now()) }
