package provisioning

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/moves"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

// Replacements are the nodes that have to go, for whose pods capacity is reserved elsewhere before they are drained. Safe for concurrent
// use.
type Replacements struct {
	reservations *reservations.Ledger
	pending      *pending.Pods
	namespaces   *Namespaces
	triggers     *Triggers
	clock        clock.PassiveClock

	mu    sync.Mutex
	moves map[string]*move // by node
}

const (
	// moveTries bounds how often replacement capacity is planned for one node's pods, so that nodes that never register aren't launched
	// again and again; firstMoveRetry is the back-off after the first try, doubled each time.
	moveTries      = 4
	firstMoveRetry = 15 * time.Second
)

// move is a node whose pods get capacity elsewhere before it is drained.
type move struct {
	pods  []*corev1.Pod // the pods at the last request
	avoid []string      // the nodes on which no capacity may be planned, at the last request
	asked bool          // Replace was called since the last try, and capacity is missing
	tries int           // how often capacity was planned for the pods
	next  time.Time     // there is no further try before this time
	why   string        // why one of the pods got no capacity in the last try
}

// Replace asks for capacity for the pods of a node that has to go, as if they had already left it. It reports whether all of it is
// available on initialized nodes; otherwise the error says what is missing, or is nil while nodes are being launched. It returns at once. The
// capacity is reserved by owner and class, for the pods that the owners will create as replacements. The caller has to call Replace or Keep
// repeatedly until these pods exist. avoid lists nodes that will be gone soon themselves: no capacity is planned there.
func (r *Replacements) Replace(node string, pods []*corev1.Pod, avoid []string) (ready bool, err error) {
	wanted, err := r.successors(pods)
	now := r.clock.Now()
	var held map[ledger.Successor]int
	up, total := 0, 0
	r.reservations.Step(func(l *ledger.Ledger, now time.Time) {
		l.Extend(node, now.Add(moves.Hold))
		held, up = l.Held(node)
	})
	for _, n := range held {
		total += n
	}
	r.mu.Lock()
	mv := r.moves[node]
	if mv == nil {
		mv = &move{}
		r.moves[node] = mv
	}
	mv.pods, mv.avoid = pods, avoid
	complete := len(moves.Missing(wanted, held)) == 0
	mv.asked = !complete && mv.tries < moveTries && !now.Before(mv.next)
	try := mv.asked
	why := mv.why
	r.mu.Unlock()
	switch {
	case complete:
		return up == total && err == nil, err
	case try:
		r.triggers.Replan()
	}
	if err == nil && why != "" {
		err = errors.New(why)
	}
	return false, err
}

// Keep extends the reservations that Replace has made.
func (r *Replacements) Keep(node string) {
	r.reservations.Step(func(l *ledger.Ledger, now time.Time) { l.Extend(node, now.Add(moves.Hold)) })
}

// Forget releases what is left of the reservations that Replace has made.
func (r *Replacements) Forget(node string) {
	r.mu.Lock()
	delete(r.moves, node)
	r.mu.Unlock()
	r.reservations.Step(func(l *ledger.Ledger, _ time.Time) { l.Release(node) })
}

// successors returns the pods that will replace the given ones, by owner and class; the error says why one had to be left out.
func (r *Replacements) successors(pods []*corev1.Pod) (map[ledger.Successor][]*corev1.Pod, error) {
	var forbidden error
	may := make([]*corev1.Pod, 0, len(pods))
	for _, pod := range pods {
		if bad := r.namespaces.MayLaunch(pod.Namespace); bad != nil {
			forbidden = fmt.Errorf("pod %s: %w", klog.KObj(pod), bad)
			continue
		}
		may = append(may, pod)
	}
	out, err := r.pending.Classes.Successors(may)
	return out, cmp.Or(err, forbidden)
}

// movesDue returns the nodes for whose pods Replace has asked for capacity since the last try. A node that is drained is not among them, because
// Replace is no longer called for it: its reservations are used up by the new pods, and only seem to be missing.
func (r *Replacements) movesDue() map[string][]*corev1.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string][]*corev1.Pod{}
	for node, mv := range r.moves {
		if mv.asked {
			out[node] = mv.pods
			mv.asked = false
		}
	}
	return out
}

// recordMissing notes for each node that is being replaced why its pods got no capacity in this try, and when to try again.
func (r *Replacements) recordMissing(leaving map[types.UID]string, why func(types.UID) string) {
	now := r.clock.Now()
	tried := map[string]bool{}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, uid := range slices.Sorted(maps.Keys(leaving)) {
		mv := r.moves[leaving[uid]]
		if mv == nil {
			continue
		}
		if !tried[leaving[uid]] {
			tried[leaving[uid]] = true
			mv.why, mv.next = "", now.Add(firstMoveRetry<<mv.tries)
			mv.tries++
		}
		mv.why = cmp.Or(mv.why, why(uid))
	}
}

// movingPods returns the pods that move, by node and UID, and the names of the nodes to avoid.
func (r *Replacements) movingPods() (gone map[string]map[types.UID]bool, avoid map[string]bool) {
	gone, avoid = map[string]map[types.UID]bool{}, map[string]bool{}
	r.mu.Lock()
	defer r.mu.Unlock()
	for node, mv := range r.moves {
		gone[node] = map[types.UID]bool{}
		for _, pod := range mv.pods {
			gone[node][pod.UID] = true
		}
		for _, name := range mv.avoid {
			avoid[name] = true
		}
	}
	return gone, avoid
}
