package kubelet

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/test/ec2"
)

type podUID = types.UID

// stage is how far a node has booted:
//
//	booting --registerAt--> registered (Ready=False) --readyAt--> ready --pluginsAt--> complete
//
// A stage is reached once the API server has accepted the writes that belong to it.
type stage int

const (
	booting stage = iota
	registered
	ready
	complete
)

// node is one kubelet. The fields above mu are set before it is shared, or used only by the one worker that has its task.
type node struct {
	machine  ec2.Machine
	name     string
	settings *settings
	shape    *shape
	adopted  bool // the Node existed before
	drivers  bool // the CSI drivers have been announced
	withheld bool // its device plugins don't start

	registerAt, readyAt, pluginsAt time.Time
	leaseDue, statusDue            time.Time
	posted                         time.Time // when the status was last posted
	transition                     time.Time // when Ready last changed

	// mu guards what the workers of pods also use.
	mu    sync.Mutex
	stage stage
	uid   types.UID // of the Node
	pods  map[podUID]*podState
	// reports: the status has changed and is to be posted.
	reports bool
}

func (n *node) at() stage {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stage
}

func (n *node) reach(s stage) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stage = s
}

func (n *node) takeReports() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	had := n.reports
	n.reports = false
	return had
}

func (n *node) identity() types.UID {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.uid
}

func (n *node) become(uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.uid = uid
}

// statusFrequency is how soon a kubelet notices that its Node differs from what it reported, because the Node was created again or the
// node lifecycle controller marked it as not responding.
const statusFrequency = 10 * time.Second

// differs reports whether the Node is another one than the kubelet knows, or has a Ready condition that doesn't match the kubelet's
// stage.
func (n *node) differs(shown *corev1.Node) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stage == booting {
		return false
	}
	want := corev1.ConditionFalse
	if n.stage >= ready {
		want = corev1.ConditionTrue
	}
	for _, c := range shown.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status != want || shown.UID != n.uid
		}
	}
	return true
}

// corrects reports whether the API server shows something else than the kubelet reported some time ago; if so, the kubelet takes over
// the Node's UID.
func (k *Kubelets) corrects(n *node, now time.Time) bool {
	if now.Before(n.posted.Add(statusFrequency)) {
		return false
	}
	obj, exists, err := k.shown.GetIndexer().GetByKey(n.name)
	if err != nil || !exists || !k.differs(n, obj.(*corev1.Node)) {
		return false
	}
	n.become(obj.(*corev1.Node).UID)
	return true
}

// syncNode does what is due for a node:
//  1. register it, or adopt an existing Node,
//  2. renew its Lease and its status,
//  3. report Ready, and later drivers and devices, once their delay has passed.
func (k *Kubelets) syncNode(ctx context.Context, n *node) (time.Duration, error) {
	now := k.clock.Now()
	if n.at() == booting {
		if now.Before(n.registerAt) {
			return n.registerAt.Sub(now), nil
		}
		n.transition = now
		if err := k.register(ctx, n); err != nil {
			return 0, err
		}
		if n.adopted { // a Node it created itself has its status already
			if err := k.postStatus(ctx, n, registered); err != nil {
				return 0, err
			}
		}
		n.posted, n.statusDue = now, now.Add(k.cfg.StatusInterval)
		k.take(n)
	}
	if !now.Before(n.leaseDue) {
		if err := k.renewLease(ctx, n, now); err != nil {
			return 0, err
		}
		n.leaseDue = now.Add(k.leaseInterval())
	}
	if n.at() == registered && !now.Before(n.readyAt) {
		n.transition = now
		if err := k.postStatus(ctx, n, ready); err != nil {
			return 0, err
		}
		n.reach(ready)
		n.posted, n.statusDue = now, now.Add(k.cfg.StatusInterval)
		k.wakePods(n)
	}
	if n.at() == ready && !now.Before(n.pluginsAt) {
		if !n.drivers {
			if err := k.announceDrivers(ctx, n); err != nil {
				return 0, err
			}
			n.drivers = true
		}
		if k.pluginLands(n) { // if not, it is checked again at the next renewal of the Lease
			if len(n.shape.devices) > 0 {
				if err := k.postStatus(ctx, n, complete); err != nil {
					return 0, err
				}
				n.posted, n.statusDue = now, now.Add(k.cfg.StatusInterval)
			}
			n.reach(complete)
		}
	}
	if n.takeReports() || !now.Before(n.statusDue) || k.corrects(n, now) {
		if err := k.postStatus(ctx, n, n.at()); err != nil {
			return 0, err
		}
		n.posted, n.statusDue = now, now.Add(k.cfg.StatusInterval)
	}
	return k.nextLook(n, now), nil
}

// labelNVIDIA is the label that the Nodes for NVIDIA's device plugin must have.
const labelNVIDIA = "nvidia.com/gpu.present"

// pluginLands reports whether the DaemonSet of the instance's device plugin puts a pod on the Node.
func (k *Kubelets) pluginLands(n *node) bool {
	if n.withheld && !k.healed.Load() {
		return false
	}
	if _, nvidia := n.shape.devices["nvidia.com/gpu"]; !nvidia || !k.cfg.PluginsByLabel || !n.settings.nodeadm {
		return true
	}
	obj, exists, err := k.shown.GetIndexer().GetByKey(n.name)
	return err == nil && exists && obj.(*corev1.Node).Labels[labelNVIDIA] == "true"
}

func (k *Kubelets) nextLook(n *node, now time.Time) time.Duration {
	next := n.leaseDue
	for _, t := range []time.Time{n.readyAt, n.pluginsAt, n.statusDue} {
		if t.After(now) && t.Before(next) {
			next = t
		}
	}
	return max(next.Sub(now), time.Millisecond)
}

// take registers the node under its name and syncs the pods that were bound to it before its kubelet registered.
func (k *Kubelets) take(n *node) {
	n.reach(registered)
	k.mu.Lock()
	if k.nodes[n.machine.ID] == n {
		k.byName[n.name] = n
	}
	k.mu.Unlock()
	klog.FromContext(k.ctx).V(2).Info("Node registered", "node", n.name, "instance", n.machine.ID)
	k.wakePods(n)
}

func (k *Kubelets) wakePods(n *node) {
	bound, err := k.pods.GetIndexer().ByIndex(byNode, n.name)
	if err != nil {
		panic(err) // New has created the index
	}
	for _, obj := range bound {
		p := obj.(*corev1.Pod)
		k.queue.Add(task{pod: true, key: p.Namespace + "/" + p.Name})
	}
}
