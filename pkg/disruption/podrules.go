package disruption

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/pods"
)

// nodePods finds the pods of a node.
type nodePods struct {
	kube kubernetes.Interface
	pods cache.Indexer
}

// cached returns the pods that the informer knows. They are shared; the slice isn't.
func (n nodePods) cached(node string) ([]*corev1.Pod, error) { return pods.OnNode(n.pods, node) }

// live asks the API server.
func (n nodePods) live(ctx context.Context, node string) ([]*corev1.Pod, error) {
	list, err := n.kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
	})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of node %s: %w", node, err)
	}
	out := make([]*corev1.Pod, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out, nil
}

// podRules says what pods mean for emptying their node on purpose: whether they can be recreated elsewhere, and whether they may be evicted.
// What it works out from a pod alone it remembers as long as the pod is the same object.
type podRules struct {
	successor  func(*corev1.Pod) (*capacity.Class, error)
	ours       func(*corev1.Pod) bool
	namespaces corelisters.NamespaceLister
	budgets    *podBudgets
	settings   *settings
	known      map[*corev1.Pod]*knownPod
	round      int
}

// knownPod is what was worked out from a pod.
type knownPod struct {
	class *capacity.Class
	err   error
	retry time.Time // of an error
	// restart is what the pod itself says that its restart costs.
	restart *time.Duration
	// covering are the budgets that select it, as of version.
	covering []int32
	version  int
	round    int // when it was last seen
}

// retryClass is how long it is remembered that a pod has no class.
const retryClass = time.Minute

// begin reads the disruption budgets; end forgets the pods that were not looked at since.
func (r *podRules) begin() error {
	r.round++
	return r.budgets.read()
}

func (r *podRules) end() {
	for p, f := range r.known {
		if f.round != r.round {
			delete(r.known, p)
		}
	}
}

func (r *podRules) remember(p *corev1.Pod) *knownPod {
	f := r.known[p]
	if f == nil {
		f = &knownPod{version: -1, restart: r.settings.restartCost("Pod", p)}
		r.known[p] = f
	}
	f.round = r.round
	if v := r.budgets.versionOf(p.Namespace); v != f.version {
		f.covering, f.version = r.budgets.covering(p)
	}
	return f
}

// class returns the class of the pod's successor; the error says why there is none.
func (r *podRules) class(p *corev1.Pod, now time.Time) (*capacity.Class, error) {
	f := r.remember(p)
	if f.class == nil && !now.Before(f.retry) {
		if f.class, f.err = r.successor(p); f.err != nil {
			f.class, f.retry = nil, now.Add(retryClass)
		}
	}
	return f.class, f.err
}

// restart returns what the pod, or else its namespace, says that a restart costs; nil: nothing.
func (r *podRules) restart(p *corev1.Pod) *time.Duration {
	if d := r.remember(p).restart; d != nil {
		return d
	}
	if ns, err := r.namespaces.Get(p.Namespace); err == nil {
		return r.settings.restartCost("Namespace", ns)
	}
	return nil
}

// unmovable returns the first pod that can't be recreated elsewhere, with the reason; nil: all can.
func (r *podRules) unmovable(bound []*corev1.Pod, now time.Time) *consolidation.Kept {
	for _, p := range bound {
		if why := r.fixed(p, now); why != "" {
			return &consolidation.Kept{Kind: consolidation.Unmovable, Pod: refOf(p), Message: why}
		}
	}
	return nil
}

// fixed returns why the pod can't be recreated elsewhere; empty: it can, or needn't.
func (r *podRules) fixed(p *corev1.Pod, now time.Time) string {
	switch {
	case !pods.Occupies(p, now) || pods.Terminating(p):
		return ""
	case metav1.GetControllerOfNoCopy(p) == nil:
		return "it has no controller that would recreate it"
	case !r.ours(p):
		return "another scheduler places it (" + p.Spec.SchedulerName + "), so no capacity can be reserved for it"
	case !pods.Drainable(p, now):
		return "it tolerates the taint of disrupted nodes, so a drain doesn't evict it"
	}
	if _, err := r.class(p, now); err != nil {
		return err.Error()
	}
	return ""
}

// blocked returns the first pod that a drain would have to wait for because of a PodDisruptionBudget; nil: none. Pods of DaemonSets are
// evicted, too.
func (r *podRules) blocked(bound []*corev1.Pod, now time.Time) *consolidation.Kept {
	for _, p := range bound {
		if !pods.Evictable(p, now) {
			continue
		}
		if name := r.budgets.blocking(p, r.remember(p).covering); name != "" {
			return &consolidation.Kept{Kind: consolidation.BlockedByPDB, Pod: refOf(p), Name: name}
		}
	}
	return nil
}

// moving returns the pods that need another node when theirs is emptied, without those that don't count.
func (r *podRules) moving(bound []*corev1.Pod, now time.Time) (out []*corev1.Pod) {
	for _, p := range bound {
		if reschedulable(p, now) && pods.Cost(p) > 0 {
			out = append(out, p)
		}
	}
	return out
}

// defaultGrace is a pod's terminationGracePeriodSeconds if it has none.
const defaultGrace = 30 * time.Second

// drain returns how long evicting the pods takes: the longest grace period, as often as the budget that lets the fewest go at a time needs.
func (r *podRules) drain(bound []*corev1.Pod, now time.Time) time.Duration {
	type group struct {
		pods, atOnce int
		grace        time.Duration
	}
	groups := map[string]*group{}
	longest := time.Duration(0)
	for _, p := range bound {
		if !pods.Evictable(p, now) {
			continue
		}
		grace := defaultGrace
		if s := p.Spec.TerminationGracePeriodSeconds; s != nil {
			grace = time.Duration(*s) * time.Second
		}
		longest = max(longest, grace)
		name, atOnce := r.budgets.allowance(p, r.remember(p).covering)
		if name == "" {
			continue
		}
		g := groups[name]
		if g == nil {
			g = &group{atOnce: atOnce}
			groups[name] = g
		}
		g.pods++
		g.grace = max(g.grace, grace)
	}
	for _, g := range groups {
		longest = max(longest, time.Duration((g.pods+g.atOnce-1)/g.atOnce)*g.grace)
	}
	return longest
}

// sort orders pods, so that the same pods always give the same answer.
func (r *podRules) sort(bound []*corev1.Pod) { slices.SortFunc(bound, byUID) }
