package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

const (
	reasonUndeclared = "UndeclaredStartupTaint"
	// undeclaredStale is how old the recorded time of the last node with a taint may become while nodes still get the taint.
	undeclaredStale = time.Hour
	// undeclaredLook is the time until we check again whether the record has expired.
	undeclaredLook = 24*time.Hour + time.Minute
)

// undeclared holds the taints that nodes of pools get although the pools don't declare them. They are recorded in an annotation of the
// NodePool; for pools that are no API objects they are learned again after a restart.
type undeclared struct {
	mu     sync.Mutex
	taints capacity.UndeclaredTaints
}

func (u *undeclared) learned(pool string, now time.Time) []capacity.UndeclaredTaint {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.taints.Learned(pool, now)
}

// observe takes over what is recorded on the pool, and drops the taints that the pool declares.
func (u *undeclared) observe(np *karpv1.NodePool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.taints.Restore(np.Name, noted(np))
	u.taints.Declared(np.Name, np.Spec.Template.Spec.Taints...)
	u.taints.Declared(np.Name, np.Spec.Template.Spec.StartupTaints...)
}

func (u *undeclared) forget(pool string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.taints.Forget(pool)
}

// noted returns the taints in the pool's annotation. An annotation that can't be read counts as empty and is overwritten.
func noted(np *karpv1.NodePool) []capacity.UndeclaredTaint {
	var out []capacity.UndeclaredTaint
	if json.Unmarshal([]byte(np.Annotations[objects.AnnotationUndeclaredStartupTaints]), &out) != nil {
		return nil
	}
	return out
}

// TaintSeen records that a new node of the claim got a NoExecute taint that the claim doesn't declare.
func (s *Store) TaintSeen(pool, claim string, t corev1.Taint) {
	np := s.poolObject(pool)
	if np == nil {
		return
	}
	for _, of := range [][]corev1.Taint{np.Spec.Template.Spec.Taints, np.Spec.Template.Spec.StartupTaints} {
		for i := range of {
			if of[i].MatchTaint(&t) {
				return // the pool declares the taint by now; the claim was created before that
			}
		}
	}
	s.undeclared.mu.Lock()
	s.undeclared.taints.See(pool, claim, t, s.clock.Now())
	s.undeclared.mu.Unlock()
	s.status.changed(karpenter.NodePools, pool)
}

// ExpectedTaints returns the taints that new nodes of the pool are known to get although the pool doesn't declare them.
func (s *Store) ExpectedTaints(pool string) []corev1.Taint {
	var out []corev1.Taint
	for _, one := range s.undeclared.learned(pool, s.clock.Now()) {
		out = append(out, one.Taint)
	}
	return out
}

// startupTaintsDeclared sets a condition that names the taints the pool should declare. Pools without such taints don't have the
// condition.
func (p *poolStatus) startupTaintsDeclared(np *karpv1.NodePool, set status.ConditionSet) error {
	learned := p.undeclared.learned(np.Name, p.clock.Now())
	if len(learned) == 0 {
		if err := set.Clear(objects.ConditionStartupTaintsDeclared); err != nil {
			return fmt.Errorf("clearing condition %s of NodePool %s: %w", objects.ConditionStartupTaintsDeclared, np.Name, err)
		}
		return nil
	}
	var taints []string
	for _, one := range learned {
		taints = append(taints, one.Taint.ToString())
	}
	field := "spec.template.spec.startupTaints"
	if strings.HasPrefix(np.Name, karpenter.ProvisionerPrefix) {
		field = "spec.startupTaints"
	}
	set.SetFalse(objects.ConditionStartupTaintsDeclared, reasonUndeclared, shorten(fmt.Sprintf(
		"new nodes get the taint %s, which evicts pods that are bound before: pods that don't tolerate it wait until their node is Ready without it; add it to %s",
		strings.Join(taints, ", "), field)))
	p.enqueue(statusKey{karpenter.NodePools.Kind, np.Name}, undeclaredLook)
	return nil
}

// noteUndeclared records on the pool which taints were learned; true: the pool was written, and the watch will deliver the new
// version.
func (p *poolStatus) noteUndeclared(ctx context.Context, np *karpv1.NodePool) (bool, error) {
	learned, before := p.undeclared.learned(np.Name, p.clock.Now()), noted(np)
	_, there := np.Annotations[objects.AnnotationUndeclaredStartupTaints]
	if karpenter.Derived(np.Name) || len(learned) == 0 && !there || len(learned) > 0 && sameTaints(before, learned) {
		return false, nil
	}
	var value any // nil removes it
	if len(learned) > 0 {
		raw, err := json.Marshal(learned)
		if err != nil {
			return false, fmt.Errorf("annotating NodePool %s: %w", np.Name, err)
		}
		value = string(raw)
	}
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{objects.AnnotationUndeclaredStartupTaints: value}}})
	if err != nil {
		return false, fmt.Errorf("annotating NodePool %s: %w", np.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if err := p.live.Patch(ctx, np.DeepCopy(), client.RawPatch(types.MergePatchType, raw)); err != nil {
		return false, fmt.Errorf("annotating NodePool %s: %w", np.Name, err)
	}
	return true, nil
}

// sameTaints reports whether the record has the same taints, seen at most undeclaredStale earlier.
func sameTaints(before, now []capacity.UndeclaredTaint) bool {
	if len(before) != len(now) {
		return false
	}
	for i := range now {
		if !before[i].Taint.MatchTaint(&now[i].Taint) || now[i].Seen.Sub(before[i].Seen) >= undeclaredStale {
			return false
		}
	}
	return true
}
