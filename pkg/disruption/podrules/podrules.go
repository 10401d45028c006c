// Package podrules says what pods mean for emptying their node on purpose: whether they can be recreated elsewhere, and whether they may be evicted.
package podrules

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

// Config is what Rules are made of.
type Config struct {
	// Successor returns the equivalence class of the pod that will replace one, Ours whether our scheduler places a pod.
	Successor  func(*corev1.Pod) (*capacity.Class, error)
	Ours       func(*corev1.Pod) bool
	Namespaces corelisters.NamespaceLister
	Budgets    *pdb.Budgets
	Settings   *annotations.Reader
	Surges     *surge.Requests // nil: all pods are evicted
}

// Rules say what the pods that a pass looks at mean for emptying their nodes. What is worked out from a pod alone is remembered as long as the pod is
// the same object. They aren't safe for concurrent use.
type Rules struct {
	Config
	known map[*corev1.Pod]*Pod
	round int // counts the calls of Begin
	// restarts are what namespaces say that a restart of their pods costs, as of this round.
	restarts map[string]*time.Duration
}

// Pod is what was worked out from a pod.
type Pod struct {
	*corev1.Pod
	class *capacity.Class
	err   error
	retry time.Time // when class is asked for again after an error
	// restart is what the pod itself says that its restart costs.
	restart *time.Duration
	// covering are the PodDisruptionBudgets that select the pod, as pdb.Budgets.Covering has returned them together with version. version -1: it was
	// not called yet.
	covering []int32
	version  int
	round    int // Rules.round when the pod was last looked at
}

// New returns Rules that know no pod.
func New(cfg Config) *Rules { return &Rules{Config: cfg, known: map[*corev1.Pod]*Pod{}} }

// retryClass is how long it is remembered that a pod has no class.
const retryClass = time.Minute

// Begin reads the PodDisruptionBudgets; End forgets the pods that were not looked at since.
func (r *Rules) Begin() error {
	r.round++
	r.restarts = map[string]*time.Duration{}
	return r.Budgets.Read()
}

func (r *Rules) End() {
	for p, f := range r.known {
		if f.round != r.round {
			delete(r.known, p)
		}
	}
}

// Look returns what is known of pods, in an order that depends on nothing but the pods.
func (r *Rules) Look(bound []*corev1.Pod) []*Pod {
	out := make([]*Pod, 0, len(bound))
	for _, p := range bound {
		k := r.known[p]
		if k == nil {
			k = &Pod{Pod: p, version: -1, restart: r.Settings.RestartCost("Pod", p)}
			r.known[p] = k
		}
		k.round = r.round
		if v := r.Budgets.VersionOf(p.Namespace); v != k.version {
			k.covering, k.version = r.Budgets.Covering(p)
		}
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b *Pod) int { return strings.Compare(string(a.UID), string(b.UID)) })
	return out
}

// Class returns the equivalence class of the pod that will replace this one; the error says why there is none.
func (r *Rules) Class(k *Pod, now time.Time) (*capacity.Class, error) {
	if k.class == nil && !now.Before(k.retry) {
		if k.class, k.err = r.Successor(k.Pod); k.err != nil {
			k.class, k.retry = nil, now.Add(retryClass)
		}
	}
	return k.class, k.err
}

// Restart returns what the pod, or else its namespace, says that a restart costs; nil: nothing.
func (r *Rules) Restart(k *Pod) *time.Duration {
	if k.restart != nil {
		return k.restart
	}
	d, known := r.restarts[k.Namespace]
	if !known {
		if ns, err := r.Namespaces.Get(k.Namespace); err == nil {
			d = r.Settings.RestartCost("Namespace", ns)
		}
		r.restarts[k.Namespace] = d
	}
	return d
}

// Unmovable returns the first pod that can't be recreated elsewhere, with the reason; nil: all can.
func (r *Rules) Unmovable(bound []*Pod, now time.Time) *consolidation.Kept {
	for _, k := range bound {
		if why := r.fixed(k, now); why != "" {
			return &consolidation.Kept{Kind: consolidation.Unmovable, Pod: capacity.RefOf(k.Pod), Message: why}
		}
	}
	return nil
}

// fixed returns why the pod can't be recreated elsewhere; empty: it can, or needn't.
func (r *Rules) fixed(k *Pod, now time.Time) string {
	switch p := k.Pod; {
	case !pods.Occupies(p, now) || pods.Terminating(p):
		return ""
	case metav1.GetControllerOfNoCopy(p) == nil:
		return "it has no controller that would recreate it"
	case !r.Ours(p):
		return "another scheduler places it (" + p.Spec.SchedulerName + "), so no capacity can be reserved for it"
	case !pods.Drainable(p, now):
		return "it tolerates the taint of disrupted nodes, so a drain doesn't evict it"
	}
	if _, err := r.Class(k, now); err != nil {
		return err.Error()
	}
	return ""
}

// Blocked returns the first pod that keeps a move from being made: a drain would have to wait for it because of a PodDisruptionBudget, or it is to be
// moved by a roll-out, which can't be made now; nil: none. Pods of DaemonSets count, because a drain evicts them, too.
func (r *Rules) Blocked(bound []*Pod, now time.Time) *consolidation.Kept {
	for _, k := range bound {
		switch ask := r.Surge(k, now); {
		case ask == nil:
			if by := r.Unevictable([]*Pod{k}, now); by != nil {
				return by
			}
		case ask.Err != nil:
			return &consolidation.Kept{Kind: consolidation.Surge, Pod: capacity.RefOf(k.Pod), Name: ask.Deployment.String(), Message: ask.Err.Error()}
		}
	}
	return nil
}

// Unevictable returns the first pod that a drain would have to wait for; nil: none.
func (r *Rules) Unevictable(bound []*Pod, now time.Time) *consolidation.Kept {
	for _, k := range bound {
		if len(k.covering) == 0 || !pods.Evictable(k.Pod, now) {
			continue
		}
		if name := r.Budgets.Blocking(k.Pod, k.covering); name != "" {
			return &consolidation.Kept{Kind: consolidation.BlockedByPDB, Pod: capacity.RefOf(k.Pod), Name: name}
		}
	}
	return nil
}

// defaultGrace is a pod's terminationGracePeriodSeconds if it has none.
const defaultGrace = 30 * time.Second

// Drain returns how long evicting the pods takes: in rounds of as many pods as their budget lets go, each as long as their longest grace period.
func (r *Rules) Drain(bound []*Pod, now time.Time) time.Duration {
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
		name, atOnce := r.Budgets.Allowance(k.Pod, k.covering)
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

// Surge returns the request to move a pod by a roll-out; nil: it is evicted.
func (r *Rules) Surge(k *Pod, now time.Time) *surge.Request {
	if r.Surges == nil || !pods.Evictable(k.Pod, now) || pods.Cost(k.Pod) <= 0 {
		return nil
	}
	return r.Surges.Of(k.Pod, r.Budgets.Blocking(k.Pod, k.covering) != "")
}
