package disruption

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/consolidation"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/annotations"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/pdb"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/surge"
	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/pods"
)

// podRules says what pods mean for emptying their node on purpose: whether they can be recreated elsewhere, and whether they may be evicted.
// What it works out from a pod alone it remembers as long as the pod is the same object.
type podRules struct {
	successor  func(*corev1.Pod) (*capacity.Class, error)
	ours       func(*corev1.Pod) bool
	namespaces corelisters.NamespaceLister
	budgets    *pdb.Budgets
	settings   *annotations.Reader
	surges     *surge.Requests // nil: all pods are evicted
	known      map[*corev1.Pod]*knownPod
	round      int
	// restarts are what namespaces say that a restart of their pods costs, as of this round.
	restarts map[string]*time.Duration
}

// knownPod is what was worked out from a pod.
type knownPod struct {
	*corev1.Pod
	class *capacity.Class
	err   error
	retry time.Time // when class is asked for again after an error
	// restart is what the pod itself says that its restart costs.
	restart *time.Duration
	// covering are the budgets that select it, as of version.
	covering []int32
	version  int
	round    int // in which the pod was last seen
}

// retryClass is how long it is remembered that a pod has no class.
const retryClass = time.Minute

// begin reads the disruption budgets; end forgets the pods that were not looked at since.
func (r *podRules) begin() error {
	r.round++
	r.restarts = map[string]*time.Duration{}
	return r.budgets.Read()
}

func (r *podRules) end() {
	for p, f := range r.known {
		if f.round != r.round {
			delete(r.known, p)
		}
	}
}

// look returns what is known of pods, in an order that depends on nothing but the pods.
func (r *podRules) look(bound []*corev1.Pod) []*knownPod {
	out := make([]*knownPod, 0, len(bound))
	for _, p := range bound {
		k := r.known[p]
		if k == nil {
			k = &knownPod{Pod: p, version: -1, restart: r.settings.RestartCost("Pod", p)}
			r.known[p] = k
		}
		k.round = r.round
		if v := r.budgets.VersionOf(p.Namespace); v != k.version {
			k.covering, k.version = r.budgets.Covering(p)
		}
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b *knownPod) int { return strings.Compare(string(a.UID), string(b.UID)) })
	return out
}

// class returns the equivalence class of the pod that will replace this one; the error says why there is none.
func (r *podRules) class(k *knownPod, now time.Time) (*capacity.Class, error) {
	if k.class == nil && !now.Before(k.retry) {
		if k.class, k.err = r.successor(k.Pod); k.err != nil {
			k.class, k.retry = nil, now.Add(retryClass)
		}
	}
	return k.class, k.err
}

// restart returns what the pod, or else its namespace, says that a restart costs; nil: nothing.
func (r *podRules) restart(k *knownPod) *time.Duration {
	if k.restart != nil {
		return k.restart
	}
	d, known := r.restarts[k.Namespace]
	if !known {
		if ns, err := r.namespaces.Get(k.Namespace); err == nil {
			d = r.settings.RestartCost("Namespace", ns)
		}
		r.restarts[k.Namespace] = d
	}
	return d
}

// unmovable returns the first pod that can't be recreated elsewhere, with the reason; nil: all can.
func (r *podRules) unmovable(bound []*knownPod, now time.Time) *consolidation.Kept {
	for _, k := range bound {
		if why := r.fixed(k, now); why != "" {
			return &consolidation.Kept{Kind: consolidation.Unmovable, Pod: capacity.RefOf(k.Pod), Message: why}
		}
	}
	return nil
}

// fixed returns why the pod can't be recreated elsewhere; empty: it can, or needn't.
func (r *podRules) fixed(k *knownPod, now time.Time) string {
	switch p := k.Pod; {
	case !pods.Occupies(p, now) || pods.Terminating(p):
		return ""
	case metav1.GetControllerOfNoCopy(p) == nil:
		return "it has no controller that would recreate it"
	case !r.ours(p):
		return "another scheduler places it (" + p.Spec.SchedulerName + "), so no capacity can be reserved for it"
	case !pods.Drainable(p, now):
		return "it tolerates the taint of disrupted nodes, so a drain doesn't evict it"
	}
	if _, err := r.class(k, now); err != nil {
		return err.Error()
	}
	return ""
}

// blocked returns the first pod that keeps a move from being made: a drain would have to wait for it because of a PodDisruptionBudget, or it is to be
// moved by a roll-out, which can't be made now; nil: none. Pods of DaemonSets count, because a drain evicts them, too.
func (r *podRules) blocked(bound []*knownPod, now time.Time) *consolidation.Kept {
	for _, k := range bound {
		switch ask := r.surge(k, now); {
		case ask == nil:
			if by := r.unevictable([]*knownPod{k}, now); by != nil {
				return by
			}
		case ask.Err != nil:
			return &consolidation.Kept{Kind: consolidation.Surge, Pod: capacity.RefOf(k.Pod), Name: ask.Deployment.String(), Message: ask.Err.Error()}
		}
	}
	return nil
}

// unevictable returns the first pod that a drain would have to wait for; nil: none.
func (r *podRules) unevictable(bound []*knownPod, now time.Time) *consolidation.Kept {
	for _, k := range bound {
		if len(k.covering) == 0 || !pods.Evictable(k.Pod, now) {
			continue
		}
		if name := r.budgets.Blocking(k.Pod, k.covering); name != "" {
			return &consolidation.Kept{Kind: consolidation.BlockedByPDB, Pod: capacity.RefOf(k.Pod), Name: name}
		}
	}
	return nil
}

// draining returns the first pod for which the drain of a node would have to wait, as of the last time that the budgets were read; nil: none. As in
// Karpenter all pods count, those of DaemonSets and those without a disruption cost, too, and none does if the node has drifted and its
// terminationGracePeriod ends the drain. Without rules nothing is known of budgets.
func (r *podRules) draining(m *candidate, bound []*corev1.Pod, drifted bool, now time.Time) *consolidation.Kept {
	if r == nil || drifted && hasDeadline(m) {
		return nil
	}
	return r.unevictable(r.look(bound), now)
}

// moving returns the pods that need another node when theirs is emptied. Pods with a disruption cost of zero or less don't count.
func moving(m *candidate, bound []*corev1.Pod, drifted bool, now time.Time) (out []*corev1.Pod) {
	for _, p := range bound {
		if leaves(m, p, drifted, now) && pods.Cost(p) > 0 {
			out = append(out, p)
		}
	}
	return out
}

// defaultGrace is a pod's terminationGracePeriodSeconds if it has none.
const defaultGrace = 30 * time.Second

// drain returns how long evicting the pods takes: in rounds of as many pods as their budget lets go, each as long as their longest grace period.
func (r *podRules) drain(bound []*knownPod, now time.Time) time.Duration {
	type group struct {
		pods, atOnce int
		grace        time.Duration
	}
	groups := map[string]*group{}
	longest := time.Duration(0)
	for _, k := range bound {
		if !pods.Evictable(k.Pod, now) {
			continue
		}
		grace := defaultGrace
		if s := k.Spec.TerminationGracePeriodSeconds; s != nil {
			grace = time.Duration(*s) * time.Second
		}
		longest = max(longest, grace)
		name, atOnce := r.budgets.Allowance(k.Pod, k.covering)
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
