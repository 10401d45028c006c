package launch

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/devices"
	"github.com/dovetail-scheduler/dovetail/pkg/launch/planned"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/observe"
	"github.com/dovetail-scheduler/dovetail/pkg/provisioning"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
	"github.com/dovetail-scheduler/dovetail/pkg/spending"
	"github.com/dovetail-scheduler/dovetail/pkg/storage"
)

// NodeTracker tells the ledger of Nodes, their drivers and their storage. Its handlers run in the goroutines of informers and return at
// once.
type NodeTracker struct {
	claims       *claimCache
	reservations *reservations.Ledger
	spending     *spending.Guard
	triggers     *provisioning.Triggers
	states       nodeStates
	live         atomic.Bool // this process leads (Launcher.Run has begun)
}

// Labels that show how far a managed node's lifecycle has come.
const (
	labelPool        = capacity.LabelNodePool
	labelRegistered  = capacity.LabelRegistered
	labelInitialized = capacity.LabelInitialized
)

// nodeStates joins a Node with its CSINode and the storage capacity that drivers publish for it into the status that the ledger needs. The
// informer of each kind reports in its own goroutine. The lock is held until the ledger has the status: otherwise an older status could
// overwrite a newer one and stay. It is taken before the ledger's lock.
type nodeStates struct {
	mu      sync.Mutex
	drivers map[string]drivers           // by Node name
	seen    map[string]ledger.NodeStatus // managed nodes that are in the scheduler's cache
	objects map[string]*corev1.Node      // the Node objects of the nodes in seen, by name
	storage *storage.Capacities
	devices *devices.Source // nil: dynamicResources is off
	// usable holds, by Node name, the shapes of ResourceClaims that a pod could get from the devices published for the node.
	usable map[string][]string
	taints func(*corev1.Node) []corev1.Taint // those that the API shows, also if they are hidden from the scheduler
	// expected returns the taints that nodes of a pool get although the pool doesn't declare them.
	expected  func(pool string) []corev1.Taint
	nodeClass capacity.NodeClassLabel
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

// and returns the drivers with the storage that has been published for their node.
func (d drivers) and(storage map[string]int64) drivers {
	if len(storage) == 0 {
		return d
	}
	out := drivers{slices.Concat(d.names, slices.Sorted(maps.Keys(storage))), maps.Clone(storage)}
	maps.Copy(out.limits, d.limits)
	return out
}

func (s *nodeStates) status(n *corev1.Node) ledger.NodeStatus {
	var usable []string
	if s.nodeClass.Managed(n) {
		usable = s.devices.Published(n)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.statusLocked(n, usable)
}

// lockTries is how often a node's devices are counted before mu is taken. If they have changed during each count, they are counted under mu.
const lockTries = 3

// lockKnowing locks mu, and returns the shapes of ResourceClaims that a pod could get from the node's published devices, as far as SliceChanged was
// called for them. Counting may take seconds, in which no other node's events must wait, so it is done before mu is locked.
func (s *nodeStates) lockKnowing(n *corev1.Node) (usable []string) {
	if s.devices == nil || !s.nodeClass.Managed(n) {
		s.mu.Lock()
		return nil
	}
	for range lockTries {
		version := s.devices.Version()
		usable = s.devices.Published(n)
		s.mu.Lock()
		if s.devices.Version() == version {
			return usable
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	return s.devices.Published(n) // most counts are in the cache by now
}

func (s *nodeStates) statusLocked(n *corev1.Node, usable []string) ledger.NodeStatus {
	csi := s.drivers[n.Name].and(s.storage.On(n.Labels))
	managed := s.nodeClass.Managed(n)
	if managed {
		csi.names = slices.Concat(csi.names, usable)
	}
	var expected []corev1.Taint
	if pool := n.Labels[labelPool]; managed && pool != "" && n.Labels[labelInitialized] != "true" {
		expected = s.expected(pool)
	}
	ready := objects.Ready(n)
	return ledger.NodeStatus{
		ProviderID:   n.Spec.ProviderID,
		Managed:      managed,
		Registered:   n.Labels[labelRegistered] == "true",
		Initialized:  n.Labels[labelInitialized] == "true",
		KubeletReady: ready,
		Ready:        ready && !slices.ContainsFunc(s.taints(n), func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeNotReady }),
		Labels:       n.Labels,
		Taints:       n.Spec.Taints,
		Expected:     expected,
		Memory:       planned.Memory(n, n.Labels[labelRegistered] == "true"),
		Drivers:      csi.names, VolumeLimits: csi.limits,
	}
}

// ofMachine returns the names of the instance's Nodes in the scheduler's cache. There may be none or one, or two if the kubelet registered
// under another name than the Node that was created ahead of it.
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

// NodeCached is called when the scheduler's cache has added or updated a Node. It runs in the informer's handler and returns at once.
func (tr *NodeTracker) NodeCached(n *corev1.Node) {
	usable := tr.states.lockKnowing(n)
	defer tr.states.mu.Unlock()
	st := tr.states.statusLocked(n, usable)
	if st.Managed && moreStorage(tr.states.seen[n.Name], st) {
		defer tr.triggers.Changed() // storage was published before the node had the label that it is published for
	}
	if st.Managed {
		tr.states.seen[n.Name], tr.states.objects[n.Name], tr.states.usable[n.Name] = st, n, usable
	}
	if st.Managed && st.Ready {
		tr.spending.NodeReady(n.Name)
	}
	if st.Managed || tr.reservations.Watches(n.Name) {
		tr.reservations.Step(func(l *ledger.Ledger, now time.Time) { l.Cached(n.Name, st, now) })
	}
}

// named tells the ledger which name a claim's Node will have. If the scheduler's cache already has the Node, as after a restart, no event
// will follow, so the ledger gets its status here.
func (tr *NodeTracker) named(claim, name, providerID string) {
	tr.spending.Named(claim, name)
	tr.states.mu.Lock()
	defer tr.states.mu.Unlock()
	st, seen := tr.states.seen[name]
	if st.Ready {
		tr.spending.NodeReady(name)
	}
	tr.reservations.Step(func(l *ledger.Ledger, now time.Time) {
		l.Named(claim, name, providerID)
		if seen {
			l.Cached(name, st, now)
		}
	})
}

// ClaimNamed hears under which name a claim's kubelet has registered. It may differ from the expected name, or be the first name
// that is known.
func (tr *NodeTracker) ClaimNamed(claim, name, providerID string) {
	known := false
	tr.reservations.Read(func(l ledger.Reader) { known = l.IsNamed(claim, name) })
	if !known {
		tr.named(claim, name, providerID)
	}
}

// NodeUncached is called when the scheduler's cache has removed a Node.
func (tr *NodeTracker) NodeUncached(n *corev1.Node) {
	tr.states.mu.Lock()
	defer tr.states.mu.Unlock()
	delete(tr.states.seen, n.Name)
	delete(tr.states.objects, n.Name)
	delete(tr.states.usable, n.Name)
	tr.spending.NodeLeft()
	if tr.reservations.Watches(n.Name) {
		tr.reservations.Step(func(l *ledger.Ledger, now time.Time) { l.Uncached(n.Name, n.Spec.ProviderID, now) })
	}
}

// Close cordons a Node in the ledger when its termination begins, and reports whether pods that were let through before are still being bound there.
// A Node that the scheduler's cache doesn't have gets no pods; should the cache get it later, the Node itself shows that it is terminating.
func (tr *NodeTracker) Close(name, providerID string) (bindsInFlight bool) {
	tr.states.mu.Lock()
	defer tr.states.mu.Unlock() // until the end: if the cache lost the Node meanwhile, the cordon would never be lifted
	st, seen := tr.states.seen[name]
	if !seen || st.ProviderID != providerID {
		tr.reservations.Read(func(l ledger.Reader) { bindsInFlight = l.BindsInFlight(name) })
		return bindsInFlight
	}
	tr.reservations.Step(func(l *ledger.Ledger, now time.Time) { bindsInFlight = l.Close(name, st, now) })
	return bindsInFlight
}

// tainted reports to Claims that a new node got a taint that keeps its pods off, unless its claim declares the taint.
func (tr *NodeTracker) tainted(t ledger.Tainted) {
	c := tr.claims.Current(t.Claim)
	if c == nil || c.Pool == "" || slices.ContainsFunc(slices.Concat(c.Taints, c.StartupTaints), func(d corev1.Taint) bool { return d.MatchTaint(&t.Taint) }) {
		return
	}
	tr.claims.TaintSeen(c.Pool, c.Name, t.Taint)
}

// CSINodes returns the handler for the scheduler's CSINode informer: pods with volumes wait for their driver.
func (tr *NodeTracker) CSINodes() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { tr.csiNode(o.(*storagev1.CSINode), false) },
		UpdateFunc: func(_, o any) { tr.csiNode(o.(*storagev1.CSINode), false) },
		DeleteFunc: observe.Deletion(func(c *storagev1.CSINode) { tr.csiNode(c, true) }),
	}
}

func (tr *NodeTracker) csiNode(c *storagev1.CSINode, gone bool) {
	var now drivers
	if !gone {
		now = driversOf(c)
	}
	tr.states.mu.Lock()
	defer tr.states.mu.Unlock()
	if len(now.names) == 0 {
		delete(tr.states.drivers, c.Name)
	} else {
		tr.states.drivers[c.Name] = now
	}
	tr.lookAgain(c.Name)
}

// lookAgain updates the ledger's status of a node whose drivers, storage or devices have changed, and reports whether it has more storage. The
// caller holds states.mu.
func (tr *NodeTracker) lookAgain(name string) (more bool) {
	st, seen := tr.states.seen[name]
	if !seen {
		return false
	}
	now := tr.states.statusLocked(tr.states.objects[name], tr.states.usable[name])
	if slices.Equal(st.Drivers, now.Drivers) && maps.Equal(st.VolumeLimits, now.VolumeLimits) {
		return false
	}
	tr.states.seen[name] = now
	tr.reservations.Step(func(l *ledger.Ledger, at time.Time) { l.Cached(name, now, at) })
	return moreStorage(st, now)
}

func moreStorage(before, now ledger.NodeStatus) bool {
	for d, bytes := range now.VolumeLimits {
		if _, is := capacity.StorageClassOf(d); is && bytes > before.VolumeLimits[d] {
			return true
		}
	}
	return false
}
