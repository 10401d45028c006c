package chaos

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// room: no node has more pods than fit on it, or have fit: if a new instance gets the name of one that was terminated, it takes over
// the Node and its pods, whatever its own size. Any kube-scheduler overfills a node in two cases, until its watch has shown it what was
// bound; then the kubelet rejects a pod:
//   - Two leaders at once may both assign the last free capacity of a node.
//   - A scheduler that gets no answer to a binding takes the pod off its cache, and may assign that capacity to another pod.
type room struct {
	together time.Time               // until when a leader may not have seen what another has bound beside it
	crowded  sets.Set[types.UID]     // Nodes that were overfilled in one of the two cases
	largest  map[types.UID]amount    // the largest allocatable a Node has had
	mu       sync.Mutex              // guards unheard, which processes' own goroutines write
	unheard  map[types.UID]time.Time // by pod: until when its scheduler, which got no answer to the binding, may not have seen it bound
}

func newRoom() *room {
	return &room{crowded: sets.New[types.UID](), largest: map[types.UID]amount{}, unheard: map[types.UID]time.Time{}}
}

// unanswered is called with a binding that has taken effect and whose answer is lost.
func (r *room) unanswered(body []byte, until time.Time) {
	var b corev1.Binding
	if json.Unmarshal(body, &b) != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unheard[b.UID] = until
}

type amount struct{ cpu, memory, pods int64 }

func (a *amount) add(p *corev1.Pod) {
	a.pods++
	for i := range p.Spec.Containers {
		a.cpu += p.Spec.Containers[i].Resources.Requests.Cpu().MilliValue()
		a.memory += p.Spec.Containers[i].Resources.Requests.Memory().Value()
	}
}

func (a *amount) fits(have amount) bool {
	return a.cpu <= have.cpu && a.memory <= have.memory && a.pods <= have.pods
}

// usage is what the pods of a node request: all of them, and those that every scheduler has seen bound.
type usage struct{ all, seen amount }

func (r *room) usages(v *view, now time.Time) map[string]*usage {
	r.mu.Lock()
	defer r.mu.Unlock()
	used := map[string]*usage{}
	for uid, p := range v.pods {
		if p.Spec.NodeName == "" || p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded {
			continue
		}
		u := used[p.Spec.NodeName]
		if u == nil {
			u = &usage{}
			used[p.Spec.NodeName] = u
		}
		u.all.add(p)
		if now.After(r.unheard[uid]) {
			u.seen.add(p)
		}
	}
	return used
}

// look checks all nodes, and returns how many have pods.
func (r *room) look(v *view, now time.Time) (int, error) {
	used := r.usages(v, now)
	for name, u := range used {
		n := v.nodes[name]
		if n == nil {
			continue
		}
		have := r.largest[n.UID]
		is := n.Status.Allocatable
		have = amount{max(have.cpu, is.Cpu().MilliValue()), max(have.memory, is.Memory().Value()), max(have.pods, is.Pods().Value())}
		r.largest[n.UID] = have
		switch {
		case u.all.fits(have):
			r.crowded.Delete(n.UID)
		case r.crowded.Has(n.UID):
		case !now.After(r.together), u.seen.fits(have):
			r.crowded.Insert(n.UID)
		default:
			return 0, fmt.Errorf("node %s has %dm cpu, %d bytes, %d pods on it and room for %dm, %d, %d",
				name, u.all.cpu, u.all.memory, u.all.pods, have.cpu, have.memory, have.pods)
		}
	}
	return len(used), r.rejected(v, now)
}

// rejected returns an error if a kubelet has rejected a pod because its machine has less memory than the scheduler had planned with.
func (r *room) rejected(v *view, now time.Time) error {
	if !now.After(r.together) {
		return nil
	}
	for _, p := range v.podsInOrder() {
		n := v.nodes[p.Spec.NodeName]
		if p.Status.Phase == corev1.PodFailed && p.Status.Reason == "OutOfmemory" && p.Labels[appLabel] != daemon && n != nil && !r.crowded.Has(n.UID) {
			return fmt.Errorf("the kubelet of node %s has rejected %s: %s", n.Name, p.Name, p.Status.Message)
		}
	}
	return nil
}
