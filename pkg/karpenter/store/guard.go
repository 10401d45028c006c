package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/legacy"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// The spending guard keeps each record as an annotation on the NodePool, node class or Provisioner that it is about. Records about
// pools and classes that have no object of their own are in one ConfigMap, and so are those about the classes of a Dovetail with a name.

// guardConfigMap is the name of the ConfigMap that holds the records of pools and classes from a profile's arguments or an
// AWSNodeTemplate.
const guardConfigMap = "dovetail-guard"

// guardMap reads and writes that ConfigMap.
type guardMap struct {
	client    kubernetes.Interface
	namespace string
	mu        sync.Mutex
}

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
	out := map[guard.Owner]string{}
	s.mu.RLock()
	for name, p := range s.parsed {
		if text := p.object.Annotations[objects.AnnotationGuard]; text != "" {
			out[guard.Owner{Pool: name}] = text
		}
	}
	s.mu.RUnlock()
	for _, o := range s.classes.GetStore().List() {
		nc := o.(client.Object)
		if s.nodeClass.ManagedBy != "" {
			break // the annotation is that of a Dovetail without a name
		}
		if text := nc.GetAnnotations()[objects.AnnotationGuard]; text != "" {
			out[guard.Owner{Class: nc.GetName()}] = text
		}
	}
	cm, err := s.guardMap.client.CoreV1().ConfigMaps(s.guardMap.namespace).Get(ctx, guardConfigMap, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return out, nil
	case apierrors.IsForbidden(err):
		// The installed RBAC role is of an older version and doesn't allow this. Only the records of pools and classes without an object are
		// affected: they begin empty in each process.
		klog.FromContext(ctx).Error(err, "The spending guard's records of pools in profiles' arguments can't be read; apply the shipped RBAC")
		return out, nil
	case err != nil:
		return nil, fmt.Errorf("reading ConfigMap %s/%s: %w", s.guardMap.namespace, guardConfigMap, err)
	}
	for key, text := range cm.Data {
		key, ours := strings.CutPrefix(key, s.guardPrefix())
		if !ours {
			continue
		}
		if name, ok := strings.CutPrefix(key, "pool."); ok {
			out[guard.Owner{Pool: name}] = text
		} else if name, ok := strings.CutPrefix(key, "class."); ok {
			out[guard.Owner{Class: name}] = text
		}
	}
	return out, nil
}

// guardPrefix returns the prefix of this Dovetail's keys in the ConfigMap. Several Dovetails may use one node class, and each has its own record of
// the class there.
func (s *Store) guardPrefix() string {
	if s.nodeClass.ManagedBy == "" {
		return ""
	}
	return "by-" + s.nodeClass.ManagedBy + "."
}

// RecordGuard stores the record of an owner; an empty text removes it. It is no error if the owner no longer exists.
func (s *Store) RecordGuard(ctx context.Context, o guard.Owner, text string) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	var obj client.Object
	switch {
	case o.Pool != "" && !karpenter.Derived(o.Pool):
		obj = &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: o.Pool}}
	case o.Pool != "":
		p := s.provisionerOf(o.Pool)
		if p == nil {
			return s.guardMap.put(ctx, s.guardPrefix()+"pool."+o.Pool, text)
		}
		obj = &legacy.Provisioner{ObjectMeta: metav1.ObjectMeta{Name: p.Name}}
	case karpenter.Derived(o.Class) || s.nodeClass.ManagedBy != "":
		return s.guardMap.put(ctx, s.guardPrefix()+"class."+o.Class, text)
	default:
		obj = s.nodeClass.New()
		obj.SetName(o.Class)
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

// put writes the text of one key of the ConfigMap; an empty text removes the key.
func (m *guardMap) put(ctx context.Context, key, text string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps := m.client.CoreV1().ConfigMaps(m.namespace)
	var value any
	if text != "" {
		value = text
	}
	raw, err := json.Marshal(map[string]any{"data": map[string]any{key: value}})
	if err != nil {
		return fmt.Errorf("keeping the spending guard's record: %w", err)
	}
	_, err = maps.Patch(ctx, guardConfigMap, types.MergePatchType, raw, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) && text != "" {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: guardConfigMap}, Data: map[string]string{key: text}}
		_, err = maps.Create(ctx, cm, metav1.CreateOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("keeping the spending guard's record in ConfigMap %s/%s: %w", m.namespace, guardConfigMap, err)
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
