package karpenter

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Profiles are the settings about pools of all scheduler profiles with Dovetail's plugins. If there are none, all pods are treated alike.
type Profiles []Profile

// PoolFor converts a NodePool to a capacity.Pool, as PoolOf does, and sets for which schedulers' pods nodes may be launched there.
func (all Profiles) PoolFor(np *karpv1.NodePool, class schema.GroupKind) *capacity.Pool {
	p := PoolOf(np, class)
	some := true
	if p.Schedulers, some = all.schedulers(np); !some && p.Unready == "" {
		p.Unready = NameForUser(np) + ": no profile selects it (nodePoolSelector)"
	}
	return p
}

// Selects reports whether a profile selects pools with these labels.
func (of Profiles) Selects(labels map[string]string) bool {
	return slices.ContainsFunc(of, func(p Profile) bool { return p.Selects == nil || p.Selects(labels) })
}

// schedulers returns the names of the profiles that may launch nodes in the pool, nil for all of them; some is false when none may.
func (of Profiles) schedulers(np *karpv1.NodePool) (names []string, some bool) {
	inline := strings.HasPrefix(np.Name, ArgsPrefix)
	all := true
	for _, p := range of {
		may := p.Selects == nil || p.Selects(np.Labels)
		if inline {
			may = false
			for _, own := range p.Pools {
				may = may || own.Name == np.Name
			}
		}
		if all = all && may; may {
			names = append(append(names, p.Scheduler), p.Others...)
		}
	}
	if all {
		return nil, true
	}
	return names, len(names) > 0
}
