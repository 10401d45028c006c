package launch

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// What the world does as the scheduler and the API server.

func (w *world) Has(node string) bool { return w.there == node }

func (w *world) Refresh(context.Context) error {
	w.mu.Lock()
	f := w.during["Refresh"]
	w.mu.Unlock()
	if f != nil {
		f()
	}
	return nil
}
func (w *world) Nodes(decorate func(*capacity.Node, *corev1.Node) *capacity.Node) []*capacity.Node {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []*capacity.Node
	for _, name := range slices.Sorted(maps.Keys(w.nodes)) {
		n := w.nodes[name]
		room := capacity.ResourcesOf(n.Status.Allocatable)
		free := room.Clone()
		for _, on := range w.bound {
			if on == name {
				free.Sub(capacity.Resources{corev1.ResourceCPU: 1000, corev1.ResourcePods: 1})
			}
		}
		out = append(out, decorate(&capacity.Node{Name: name, Labels: n.Labels, Allocatable: room, Free: free, Pods: append(slices.Clone(w.onNode), w.podsOn[name]...)}, n))
	}
	return out
}

func (w *world) Verify(_ context.Context, t capacity.Trial) ([]capacity.Rejection, error) {
	if w.rejects == nil {
		return nil, nil
	}
	return w.rejects(t), nil
}

func (w *world) NodeFor(c *capacity.Claim, inst capacity.Instance, _ []string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: inst.NodeName, Labels: map[string]string{labelPool: c.Pool}}}
	n.Spec.ProviderID = inst.ProviderID
	n.Status.Allocatable = c.Allocatable.List()
	return n
}

func (w *world) PlannedNode(_ *capacity.PlannedNode, name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func (w *world) CreateNode(_ context.Context, n *corev1.Node) error {
	w.mu.Lock()
	if w.denies != nil {
		if err := w.denies(n); err != nil {
			w.changed()
			w.mu.Unlock()
			return err
		}
	}
	if _, have := w.nodes[n.Name]; have {
		w.mu.Unlock()
		return apierrors.NewAlreadyExists(schema.GroupResource{Resource: "nodes"}, n.Name)
	}
	w.nodes[n.Name] = n
	w.changed()
	w.mu.Unlock()
	w.parts.Nodes.NodeCached(n)
	return nil
}

func (w *world) TryNode(_ context.Context, n *corev1.Node) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls["TryNode"]++
	return w.broken["CreateNode"]
}

func (w *world) GetNode(_ context.Context, name string) (*corev1.Node, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.nodes[name]
	if err := w.call("GetNode"); err != nil || n != nil {
		return n, err
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, name)
}

func (w *world) PodsOn(name string) []*corev1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.otherPods[name]
}

func (w *world) EndPod(_ context.Context, pod *corev1.Pod) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	on := pod.Spec.NodeName
	w.otherPods[on] = slices.DeleteFunc(slices.Clone(w.otherPods[on]), func(p *corev1.Pod) bool { return p.UID == pod.UID })
	w.killed = append(w.killed, pod.Name)
	return w.call("EndPod")
}

// Activate stands for the scheduler: it runs each pod's scheduling cycle.
func (w *world) Activate(pods []*corev1.Pod) {
	for _, pod := range pods {
		if closed, _ := w.reservations.Gate(pod.UID); closed {
			continue
		}
		node, _ := w.reservations.Pin(pod.UID)
		if node == "" {
			continue // refused: it stays in the queue
		}
		if why := w.reservations.Assume(pod.UID, node, false); why != nil {
			continue
		}
		w.mu.Lock()
		w.bound[pod.UID] = node
		w.changed()
		w.mu.Unlock()
		w.reservations.Settled(pod.UID, node)
	}
}

func (w *world) Pod(ref capacity.PodRef, _, reason, note string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notes = append(w.notes, ref.Name+" "+reason+" "+note)
	w.changed()
}
