package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/awslabs/operatorpkg/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/legacy"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// The spending guard keeps each record as an annotation on the NodePool, node class or Provisioner that it is about. Records about pools and
// classes that have no object of their own are in one ConfigMap, and so are all those of a Dovetail with a name: it may share its classes with
// others, and its pools may become theirs.

// OnGuard registers f for changes that concern the owner of a record: a change to its spec, or to the annotation that asks for another
// try (retry). Register before Run; f is called from the watch and must not block.
func (s *Store) OnGuard(f func(o guard.Owner, retry bool)) { s.onGuard = append(s.onGuard, f) }

func (s *Store) tellGuard(o guard.Owner, before, after client.Object, same bool) {
	retry := after.GetAnnotations()[objects.AnnotationRetry]
	again := retry != "" && retry != before.GetAnnotations()[objects.AnnotationRetry]
	if same && !again {
		return
	}
	for _, f := range s.onGuard {
		f(o, again)
	}
}

// GuardRecords returns the stored records by owner.
func (s *Store) GuardRecords(ctx context.Context) (map[guard.Owner]string, error) {
	out, err := s.guardMap.Read(ctx)
	if err != nil {
		return nil, err
	}
	if s.nodeClass.ManagedBy != "" {
		return out, s.dropRecords(ctx, out)
	}
	s.mu.RLock()
	for name, p := range s.parsed {
		if text := p.object.Annotations[objects.AnnotationGuard]; text != "" {
			out[guard.Owner{Pool: name}] = text
		}
	}
	s.mu.RUnlock()
	for _, o := range s.classes.GetStore().List() {
		nc := o.(client.Object)
		if text := nc.GetAnnotations()[objects.AnnotationGuard]; text != "" {
			out[guard.Owner{Class: nc.GetName()}] = text
		}
	}
	return out, nil
}

// dropRecords removes the records of NodePools that don't exist any more. Those of pools that no profile selects stay: they may come back.
func (s *Store) dropRecords(ctx context.Context, records map[guard.Owner]string) error {
	there, err := s.PoolLabels(ctx)
	if err != nil {
		return err
	}
	for o := range records {
		if o.Pool == "" {
			continue
		}
		if _, ok := there[karpenter.NodePools.Kind+" "+o.Pool]; !ok && !karpenter.Derived(o.Pool) {
			delete(records, o)
			if err := s.guardMap.Put(ctx, o, ""); err != nil {
				return err
			}
		}
	}
	s.SharedChanged() // the conditions of pools depend on the records, which are known now, also that there is none
	return nil
}

// guardRecord returns the record of a pool, if that is known yet.
func (s *Store) guardRecord(np *karpv1.NodePool) (text string, known bool) {
	if s.nodeClass.ManagedBy != "" {
		return s.guardMap.Text(guard.Owner{Pool: np.Name})
	}
	return np.Annotations[objects.AnnotationGuard], true
}

// RecordGuard stores the record of an owner; an empty text removes it. It is no error if the owner no longer exists.
func (s *Store) RecordGuard(ctx context.Context, o guard.Owner, text string) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	obj := s.recordObject(o)
	if obj == nil {
		if o.Pool != "" {
			defer s.status.changed(karpenter.NodePools, o.Pool)
		}
		return s.guardMap.Put(ctx, o, text)
	}
	var value any
	if text != "" {
		value = text
	}
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{objects.AnnotationGuard: value}}})
	if err == nil {
		err = client.IgnoreNotFound(s.live.Patch(ctx, obj, client.RawPatch(types.MergePatchType, raw)))
	}
	if err != nil {
		return fmt.Errorf("keeping the spending guard's record on %T %s: %w", obj, obj.GetName(), err)
	}
	return nil
}

// recordObject returns an object with the name and kind of the one that holds the record of an owner; nil: the ConfigMap does.
func (s *Store) recordObject(o guard.Owner) client.Object {
	switch {
	case s.nodeClass.ManagedBy != "":
	case o.Pool != "" && !karpenter.Derived(o.Pool):
		return &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: o.Pool}}
	case o.Pool != "":
		if p := s.provisionerOf(o.Pool); p != nil {
			return &legacy.Provisioner{ObjectMeta: metav1.ObjectMeta{Name: p.Name}}
		}
	case !karpenter.Derived(o.Class):
		obj := s.nodeClass.New()
		obj.SetName(o.Class)
		return obj
	}
	return nil
}

// RecordServed sets the claim's condition which states that a pod has run on its instance.
func (s *Store) RecordServed(ctx context.Context, c *capacity.Claim) error {
	return client.IgnoreNotFound(s.patchStatus(ctx, c, func(nc *karpv1.NodeClaim) {
		nc.StatusConditions(status.WithClock(s.clock)).SetTrueWithReason(objects.ConditionServed, "Served", "")
	}))
}

// paused sets the condition that tells whether the spending guard has paused launches, from the guard's record on the object.
func paused(set status.ConditionSet, record string) {
	texts, err := guard.OpenOf(record)
	switch {
	case err != nil:
		set.SetUnknownWithReason(objects.ConditionLaunchesPaused, karpenter.ReasonMalformed, shorten(fmt.Sprintf("annotation %s: %v", objects.AnnotationGuard, err)))
	case len(texts) > 0:
		set.SetTrueWithReason(objects.ConditionLaunchesPaused, "SpendingGuard", shorten(strings.Join(texts, "; ")))
	case set.Get(objects.ConditionLaunchesPaused) != nil:
		_ = set.Clear(objects.ConditionLaunchesPaused)
	}
}

// BudgetReached records which budget keeps a pool from growing, for its condition; empty means none.
func (s *Store) BudgetReached(pool, why string) {
	s.mu.Lock()
	if s.budgets[pool] = why; why == "" {
		delete(s.budgets, pool)
	}
	s.mu.Unlock()
	s.status.changed(karpenter.NodePools, pool)
}

// budget sets the condition from what BudgetReached recorded.
func (s *Store) budget(pool string, set status.ConditionSet) {
	s.mu.RLock()
	why := s.budgets[pool]
	s.mu.RUnlock()
	if why != "" {
		set.SetTrueWithReason(objects.ConditionBudgetReached, "BudgetReached", shorten("no more nodes are launched for now: "+why))
	} else if set.Get(objects.ConditionBudgetReached) != nil {
		_ = set.Clear(objects.ConditionBudgetReached)
	}
}

// PoolsOf returns the pools that use a node class.
func (s *Store) PoolsOf(class string) (out []string) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for name, p := range s.parsed {
		if p.pool.NodeClass == class {
			out = append(out, name)
		}
	}
	return out
}

// ClassOf returns the node class of a pool, or "".
func (s *Store) ClassOf(pool string) string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if p := s.parsed[pool]; p != nil {
		return p.pool.NodeClass
	}
	return ""
}
