package launch

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

// Labels that tell how far a node of a pool has come, and the taint of one that is going.
const (
	labelPool        = "karpenter.sh/nodepool"
	labelRegistered  = "karpenter.sh/registered"
	labelInitialized = "karpenter.sh/initialized"

	taintDisrupted = "karpenter.sh/disrupted"
	doNotDisrupt   = "karpenter.sh/do-not-disrupt"
)

// nodeStates joins a Node with its CSINode into what the ledger wants to know. Two informers tell of them, each in its own goroutine:
// the lock is held until the ledger has been told, or an older status could come after a newer one and stay. It is taken before the
// desk's.
type nodeStates struct {
	mu      sync.Mutex
	drivers map[string]drivers           // by Node name
	seen    map[string]ledger.NodeStatus // nodes of pools that are in the scheduler's cache
	taints  func(*corev1.Node) []corev1.Taint
	// expected are the taints that nodes of a pool get although it doesn't declare them.
	expected func(pool string) []corev1.Taint
}

// drivers are the CSI drivers of a CSINode and their attach limits.
type drivers struct {
	names  []string
	limits map[string]int64
}

func driversOf(c *storagev1.CSINode) drivers {
	var out drivers
	for _, d := range c.Spec.Drivers {
		out.names = append(out.names, d.Name)
		if d.Allocatable != nil && d.Allocatable.Count != nil {
			if out.limits == nil {
				out.limits = map[string]int64{}
			}
			out.limits[d.Name] = int64(*d.Allocatable.Count)
		}
	}
	return out
}

func (s *nodeStates) status(n *corev1.Node) ledger.NodeStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.statusLocked(n)
}

func (s *nodeStates) statusLocked(n *corev1.Node) ledger.NodeStatus {
	csi := s.drivers[n.Name]
	var expected []corev1.Taint
	if pool := n.Labels[labelPool]; pool != "" && n.Labels[labelInitialized] != "true" {
		expected = s.expected(pool)
	}
	return ledger.NodeStatus{
		ProviderID:  n.Spec.ProviderID,
		Ours:        ours(n),
		Registered:  n.Labels[labelRegistered] == "true",
		Initialized: n.Labels[labelInitialized] == "true",
		Ready:       isReady(n) && !slices.ContainsFunc(s.taints(n), func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeNotReady }),
		Taints:      n.Spec.Taints,
		Expected:    expected,
		Drivers:     csi.names, VolumeLimits: csi.limits,
	}
}

// ofMachine are the machine's Nodes in the scheduler's cache: none, its own, or that and one that was made ahead under a name
// which its kubelet didn't take.
func (s *nodeStates) ofMachine(providerID string) (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, st := range s.seen {
		if providerID != "" && st.ProviderID == providerID {
			names = append(names, name)
		}
	}
	return names
}

// ours says that the Node was made for a NodeClaim: it has the label of a pool, or, where the claim has none, its claim as an
// owner.
func ours(n *corev1.Node) bool {
	_, pool := n.Labels[labelPool]
	return pool || slices.ContainsFunc(n.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.Kind == "NodeClaim" && strings.HasPrefix(o.APIVersion, "karpenter.sh/")
	})
}

func isReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// NodeCached is called when the scheduler's cache has taken in a Node, new or changed. It is called from the informer's
// handler and returns at once.
func (m *Motor) NodeCached(n *corev1.Node) {
	m.nodeOf.mu.Lock()
	defer m.nodeOf.mu.Unlock()
	st := m.nodeOf.statusLocked(n)
	if st.Ours {
		m.nodeOf.seen[n.Name] = st
	}
	if st.Ours || m.desk.Watches(n.Name) {
		m.desk.Step(func(l *ledger.Ledger, now time.Time) { l.Cached(n.Name, st, now) })
	}
}

// named tells the ledger under which name a claim's Node will come. If the scheduler's cache had it before, as after a
// restart, it won't come again: what was seen of it is told, too.
func (m *Motor) named(claim, name, providerID string) {
	m.spending.named(claim, name)
	m.nodeOf.mu.Lock()
	defer m.nodeOf.mu.Unlock()
	st, seen := m.nodeOf.seen[name]
	m.desk.Step(func(l *ledger.Ledger, now time.Time) {
		l.Named(claim, name, providerID)
		if seen {
			l.Cached(name, st, now)
		}
	})
}

// ClaimNamed tells the motor under which name a claim's kubelet has registered, which may be another one than expected, or
// the first that anybody has heard.
func (m *Motor) ClaimNamed(claim, name, providerID string) {
	known := false
	m.desk.read(func(l *ledger.Ledger) { known = l.IsNamed(claim, name) })
	if !known {
		m.named(claim, name, providerID)
	}
}

// NodeUncached is called when the scheduler's cache has lost a Node.
func (m *Motor) NodeUncached(n *corev1.Node) {
	m.nodeOf.mu.Lock()
	defer m.nodeOf.mu.Unlock()
	delete(m.nodeOf.seen, n.Name)
	if m.desk.Watches(n.Name) {
		m.desk.Step(func(l *ledger.Ledger, now time.Time) { l.Uncached(n.Name, n.Spec.ProviderID, now) })
	}
}

// Close keeps pods off a Node whose end has begun, from this moment on, and says whether some that were let through before are
// still being bound there; see ledger.Close. A Node that the scheduler's cache doesn't have gets no pods, or shows its end when it
// comes there.
func (m *Motor) Close(name, providerID string) (landing bool) {
	m.nodeOf.mu.Lock()
	defer m.nodeOf.mu.Unlock() // to the end: the cache must not lose the Node meanwhile, or nobody would ever take the fence away
	st, seen := m.nodeOf.seen[name]
	if !seen || st.ProviderID != providerID {
		m.desk.read(func(l *ledger.Ledger) { landing = l.Landing(name) })
		return landing
	}
	m.desk.Step(func(l *ledger.Ledger, now time.Time) { landing = l.Close(name, st, now) })
	return landing
}

// tainted passes on that a fresh node got a taint that keeps off its pods, unless its claim declares it.
func (m *Motor) tainted(t ledger.Tainted) {
	c := m.claim(t.Claim)
	if c == nil || c.Pool == "" || slices.ContainsFunc(slices.Concat(c.Taints, c.StartupTaints), func(d corev1.Taint) bool { return d.MatchTaint(&t.Taint) }) {
		return
	}
	m.claims.TaintSeen(c.Pool, c.Name, t.Taint)
}

// CSINodes is to be added to the scheduler's CSINode informer: volumes wait for their driver.
func (m *Motor) CSINodes() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { m.csiNode(o.(*storagev1.CSINode), false) },
		UpdateFunc: func(_, o any) { m.csiNode(o.(*storagev1.CSINode), false) },
		DeleteFunc: func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			if c, ok := o.(*storagev1.CSINode); ok {
				m.csiNode(c, true)
			}
		},
	}
}

func (m *Motor) csiNode(c *storagev1.CSINode, gone bool) {
	var now drivers
	if !gone {
		now = driversOf(c)
	}
	m.nodeOf.mu.Lock()
	defer m.nodeOf.mu.Unlock()
	before := m.nodeOf.drivers[c.Name]
	same := slices.Equal(before.names, now.names) && maps.Equal(before.limits, now.limits)
	if len(now.names) == 0 {
		delete(m.nodeOf.drivers, c.Name)
	} else {
		m.nodeOf.drivers[c.Name] = now
	}
	st, seen := m.nodeOf.seen[c.Name]
	st.Drivers, st.VolumeLimits = now.names, now.limits
	if seen {
		m.nodeOf.seen[c.Name] = st
	}
	if seen && !same {
		m.desk.Step(func(l *ledger.Ledger, now time.Time) { l.Cached(c.Name, st, now) })
	}
}
