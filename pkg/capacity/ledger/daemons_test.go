package ledger

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// cpuOf is a node on which the DaemonSets' pods that are there use 300m each.
type cpuOf struct {
	allocatable int64
	daemons     []string
}

func (a cpuOf) Requested(corev1.ResourceName) int64     { return 300 * int64(len(a.daemons)) }
func (a cpuOf) Allocatable(r corev1.ResourceName) int64 { return a.allocatable }
func (cpuOf) Volumes(string) int64                      { return 0 }
func (a cpuOf) Daemon(key string) bool                  { return slices.Contains(a.daemons, key) }

// A DaemonSet's pod without tolerations is created when its node is Ready, which is when it is initialized. Its capacity stays reserved
// beyond that, until the pod is bound, the DaemonSet is gone, or the time limit is reached.
func TestRoomOfDaemonsOutlastsInitialization(t *testing.T) {
	start := time.Unix(1000, 0)
	for name, tc := range map[string]struct {
		then func(l *Ledger)
		kept bool
	}{
		"it has not come yet":     {func(l *Ledger) { l.Tick(start.Add(daemonGrace - time.Second)) }, true},
		"it has come":             {func(l *Ledger) { l.DaemonBound("n", "d/logs") }, false},
		"its DaemonSet has gone":  {func(l *Ledger) { l.Daemons("c", nil) }, false},
		"it will not come":        {func(l *Ledger) { l.Tick(start.Add(daemonGrace)) }, false},
		"its Node was deleted":    {func(l *Ledger) { l.Uncached("n", "", start) }, false},
		"its Node changes, later": {func(l *Ledger) { l.Cached("n", NodeStatus{Managed: true, Initialized: true}, start.Add(time.Second)) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := New()
			l.AddNode("c", &capacity.Node{}, map[string]capacity.Resources{"d/logs": {corev1.ResourceCPU: 300}}, true, start)
			l.Named("c", "n", "")
			l.Cached("n", NodeStatus{Managed: true, Registered: true}, start)
			l.Cached("n", NodeStatus{Managed: true, Registered: true, Initialized: true}, start)
			tc.then(l)
			why := l.Object("n", &Ask{UID: "p", Class: testClass("a", 800, 0)}, cpuOf{allocatable: 1000})
			if (why != nil) != tc.kept {
				t.Errorf("a pod that would take the room is told %q", why)
			}
			if l.Empty() == tc.kept {
				t.Errorf("the ledger still has: %v", l)
			}
			if err := check(l); err != nil {
				t.Error(err)
			}
		})
	}
}

// The scheduler's cache may show a DaemonSet's pod before the ledger learns that it was bound. Its capacity must not be reserved twice,
// or a pod would be refused on the very node that was planned for it.
func TestRoomOfDaemonsIsNotKeptTwice(t *testing.T) {
	l, now := New(), time.Unix(1000, 0)
	l.AddNode("c", &capacity.Node{}, map[string]capacity.Resources{"d/logs": {corev1.ResourceCPU: 300}}, true, now)
	l.Named("c", "n", "")
	l.Cached("n", NodeStatus{Managed: true, Registered: true, Initialized: true}, now)
	ask := &Ask{UID: "p", Class: testClass("a", 700, 0)}
	if why := l.Object("n", ask, cpuOf{1000, []string{"d/logs"}}); why != nil {
		t.Errorf("a pod that fits beside the DaemonSet's is told %q", why)
	}
	if why := l.Object("n", ask, cpuOf{999, []string{"d/other"}}); why == nil {
		t.Error("the room of a DaemonSet's pod was given away because another's has come")
	}
}

// A DaemonSet's pod may go to a late node, which other pods may not. When the reason for a rejection is gone, the pod is activated.
func TestDaemonsOnNodesThatRefuseThem(t *testing.T) {
	l, now := New(), time.Unix(1000, 0)
	l.AddNode("c", &capacity.Node{}, nil, true, now)
	l.Named("c", "n", "")
	l.Cached("n", NodeStatus{Managed: true}, now)
	l.Tick(now.Add(time.Hour))
	plain := testClass("d", 100, 0)
	if why := l.Object("n", &Ask{UID: "d", Class: plain, DaemonSet: true}, cpuOf{allocatable: 1000}); why != nil {
		t.Errorf("on a late node: %q", why)
	}
	if why := l.Object("n", &Ask{UID: "p", Class: plain}, cpuOf{allocatable: 1000}); why == nil {
		t.Error("others are let on a late node")
	}
	gpu := testClass("gpu", 100, 0)
	gpu.Bind = capacity.BindInitialized
	if why := l.Object("n", &Ask{UID: "d", Class: gpu, DaemonSet: true}, cpuOf{allocatable: 1000}); why == nil {
		t.Error("one that asks for devices is let on a node that has none yet")
	}
	l.Take()
	l.TurnAway("n", capacity.PodRef{UID: "d"}, true)
	l.Cached("n", NodeStatus{Managed: true, Registered: true, Initialized: true}, now)
	if e := l.Take(); len(e.Activate) != 1 || e.Activate[0].UID != "d" {
		t.Errorf("effects %+v, want the pod to be tried again", e)
	}
	l.Cached("n", NodeStatus{Managed: true, Registered: true, Initialized: true}, now)
	if e := l.Take(); len(e.Activate) != 0 {
		t.Errorf("effects %+v, want nobody to be tried for ever", e)
	}
}

// A DaemonSet's pods turn out larger than planned: a pod that was planned beside them leaves them the capacity, and is planned for on
// another node.
func TestDaemonsThatOutgrowTheirRoom(t *testing.T) {
	l, now := New(), time.Unix(1000, 0)
	c := testClass("a", 700, 0)
	ref := capacity.PodRef{UID: "p"}
	l.AddNode("c", &capacity.Node{}, map[string]capacity.Resources{"d/logs": {corev1.ResourceCPU: 300}}, true, now)
	l.Submit(ref, c, now)
	l.Commit("plan", []capacity.Placement{{Class: c, Pod: ref, Node: "c"}}, now)
	l.Named("c", "n", "")
	l.Cached("n", NodeStatus{Managed: true}, now)
	if node, why := l.Pin("p"); node != "n" {
		t.Fatalf("pinned to %q: %s", node, why)
	}
	ask := &Ask{UID: "p", Class: c}
	if why := l.Object("n", ask, cpuOf{allocatable: 1000}); why != nil {
		t.Fatalf("as planned: %q", why)
	}
	l.Daemons("c", map[string]capacity.Resources{"d/logs": {corev1.ResourceCPU: 400}})
	if why := l.Object("n", ask, cpuOf{allocatable: 1000}); why == nil {
		t.Error("it takes the room of the DaemonSet's pod")
	}
	if state, why := l.Submit(ref, c, now); state != Queued {
		t.Errorf("it is %v (%s), want it planned for again", state, why)
	}
	if err := check(l); err != nil {
		t.Error(err)
	}
}

// A DaemonSet's pod with devices that removes the startup taint of its node is waited for by the node's initialization, so it can't wait for that.
func TestDaemonWithDevicesOnInitializingNodes(t *testing.T) {
	l, now := New(), time.Unix(1000, 0)
	l.AddNode("c", &capacity.Node{}, nil, true, now)
	l.Named("c", "n", "")
	class := testClass("burn-in", 100, 0)
	class.Bind, class.BindReason = capacity.BindInitialized, "requests nvidia.com/gpu, which a device plugin has to provide"
	startup := corev1.Taint{Key: "example.com/burn-in", Effect: corev1.TaintEffectNoSchedule}
	class.Tolerations = []corev1.Toleration{{Key: startup.Key, Operator: corev1.TolerationOpExists}}
	daemon, other := &Ask{UID: "daemon", Class: class, DaemonSet: true}, &Ask{UID: "other", Class: class}
	status := NodeStatus{Managed: true, Taints: []corev1.Taint{startup}}
	l.Cached("n", status, now)
	if l.Object("n", daemon, cpuOf{allocatable: 1000}) == nil {
		t.Error("it may go to a node whose kubelet hasn't reported any devices")
	}
	status.Registered = true
	l.Cached("n", status, now)
	if why := l.Object("n", daemon, cpuOf{allocatable: 1000}); why != nil {
		t.Errorf("it is kept off the registered node: %v", why)
	}
	if l.Object("n", other, cpuOf{allocatable: 1000}) == nil {
		t.Error("so may a pod of no DaemonSet")
	}
}
