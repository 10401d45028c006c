package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1alpha1 "sigs.k8s.io/karpenter/pkg/apis/v1alpha1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/panics"
	"github.com/dovetail-scheduler/dovetail/pkg/poolmetrics"
)

const (
	// countDelay collects the changes of a burst of claims into one write of a pool's counts.
	countDelay = time.Second
	// statusWorkers is how many objects are written in parallel.
	statusWorkers = 4
	// endSeriesEvery is how often metrics series of removed pools are deleted.
	endSeriesEvery = 10 * time.Second
	// holdRetry is how often we check whether another controller still owns the objects.
	holdRetry = 10 * time.Second
)

// Reasons of conditions and events.
const (
	reasonValidationFailed = "NodePoolValidationFailed"
	reasonLegacyInvalid    = "ProvisionerValidationFailed"
	reasonTemplateInvalid  = "AWSNodeTemplateValidationFailed"
	reasonNotHonored       = "FieldsNotHonored"
	reasonUnreadable       = "RecordUnreadable"
	reasonClassUnknown     = "NodeClassReadinessUnknown"
)

// statusKey names an object whose status is to be updated.
type statusKey struct{ kind, name string }

// poolStatus is the controller that writes the status of NodePools and NodeOverlays, reports node classes that can't be read, writes
// hashes, deletes the claims of deleted pools, and removes the finalizer of deleted classes that no claim uses. It is level-triggered:
// a key names the object to reconcile, never the event.
type poolStatus struct {
	*Store
	health health
	// queue is set while RunStatus runs.
	queue atomic.Pointer[workqueue.TypedRateLimitingInterface[statusKey]]
	// told holds, by NodePool UID, the reason in the last event about paused writes.
	told sync.Map
	// contests holds, by NodePool UID, the text of the last event about another Dovetail that selects the pool, too.
	contests sync.Map
	// buffers is the informer of CapacityBuffers while it runs, which is only on the leader; bufferInformer is the same one, also before it runs.
	// onBuffer is called when a CapacityBuffer changes, and is set before RunStatus.
	buffers        atomic.Pointer[informer]
	bufferInformer *informer
	onBuffer       func()
	// requests is the informer of ProvisioningRequests while it runs, which is only on the leader. onRequest is called when a ProvisioningRequest
	// changes, and is set before RunStatus.
	requests  atomic.Pointer[informer]
	onRequest func()
}

func newPoolStatus(s *Store) (p *poolStatus, err error) {
	p = &poolStatus{Store: s, health: health{pools: map[types.UID][]outcome{}}}
	p.bufferInformer, err = p.newBufferInformer()
	return p, err
}

// RunStatus writes conditions and counts of NodePools until ctx ends. Only the leader runs it: a second replica would write the same
// again.
func (s *Store) RunStatus(ctx context.Context) error {
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[statusKey](100*time.Millisecond, time.Minute),
		workqueue.TypedRateLimitingQueueConfig[statusKey]{Name: "nodepool_status", Clock: s.clock},
	)
	p := s.status
	p.health.clear()
	p.architectures.begin(s.clock.Now())
	p.queue.Store(&queue)
	defer p.queue.Store(nil)
	if !s.WaitForSync(ctx) {
		queue.ShutDown()
		return nil
	}
	for _, i := range s.informers() {
		for _, name := range i.GetStore().ListKeys() {
			p.enqueue(statusKey{i.Kind, name}, 0)
		}
		for _, o := range s.derived.All(i.CustomKind) {
			p.enqueue(statusKey{i.Kind, o.GetName()}, 0)
		}
	}
	for _, c := range s.Claims() {
		p.claimChanged(c, false) // its pool may have been deleted while there was no leader
	}
	var workers wait.Group
	for range statusWorkers {
		workers.Start(func() {
			for p.next(ctx, queue) {
			}
		})
	}
	workers.StartWithContext(ctx, s.endSeries)
	workers.StartWithContext(ctx, p.watchBuffers)
	workers.StartWithContext(ctx, p.watchRequests)
	<-ctx.Done()
	queue.ShutDown()
	workers.Wait()
	return nil
}

// endSeries deletes the metrics series of pools that no longer exist. A pool counts as existing until its last claim is deleted: until
// then there is something to report, if only how long its nodes take to terminate.
func (s *Store) endSeries(ctx context.Context) {
	tick := s.clock.NewTicker(endSeriesEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
			poolmetrics.Keep(s.poolsAndOwners())
		}
	}
}

// poolsAndOwners returns the names of all existing pools and of the pools that existing claims belong to.
func (s *Store) poolsAndOwners() map[string]bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := map[string]bool{}
	for name := range s.parsed {
		out[name] = true
	}
	for _, k := range s.known {
		out[k.claim.Pool] = true
	}
	return out
}

func (p *poolStatus) enqueue(k statusKey, after time.Duration) {
	if q := p.queue.Load(); q != nil {
		(*q).AddAfter(k, after)
	}
}

func (p *poolStatus) changed(k karpenter.CustomKind, name string) {
	p.enqueue(statusKey{k.Kind, name}, 0)
}

func (p *poolStatus) claimChanged(c *capacity.Claim, gone bool) {
	if c.Pool != "" {
		p.enqueue(statusKey{karpenter.NodePools.Kind, c.Pool}, countDelay)
	}
	if nc := p.class(c.NodeClass); gone && nc != nil && !nc.GetDeletionTimestamp().IsZero() {
		p.changed(p.classes.CustomKind, nc.GetName())
	}
}

// classChanged queues the class and every pool that refers to it.
func (p *poolStatus) classChanged(name string) {
	p.changed(p.classes.CustomKind, name)
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, one := range p.parsed {
		if one.pool.NodeClass == name {
			p.changed(karpenter.NodePools, one.object.Name)
		}
	}
}

func (p *poolStatus) next(ctx context.Context, queue workqueue.TypedRateLimitingInterface[statusKey]) bool {
	k, end := queue.Get()
	if end {
		return false
	}
	defer queue.Done(k)
	if p.heldBack(k) {
		queue.AddAfter(k, holdRetry) // the controller that owns the objects writes their status
		queue.Forget(k)
		return true
	}
	err := panics.Catch(ctx, "status", func() error { return p.reconcile(ctx, k) })
	if client.IgnoreNotFound(err) == nil {
		queue.Forget(k)
		return true
	}
	if ctx.Err() == nil {
		klog.FromContext(ctx).V(2).Info("Could not write a status, trying again", "kind", k.kind, "name", k.name, "err", err)
	}
	queue.AddRateLimited(k)
	return true
}

func (p *poolStatus) reconcile(ctx context.Context, k statusKey) error {
	if err := p.rename(ctx, k); err != nil {
		return err
	}
	switch k.kind {
	case karpenter.NodePools.Kind:
		err := p.endOwned(ctx, k.name)
		if np := p.poolObject(k.name); np != nil {
			err = errors.Join(p.pool(ctx, np), err)
		}
		return err
	case karpenter.NodeOverlays.Kind:
		p.judgeOverlays()
		if o, ok, _ := p.overlays.GetStore().GetByKey(k.name); ok {
			return p.overlay(ctx, o.(*karpv1alpha1.NodeOverlay))
		}
	case p.nodeClass.Kind:
		if nc := p.class(k.name); nc != nil {
			return errors.Join(p.nodeClassStatus(ctx, nc), p.catchUp(ctx, k.name))
		}
	case karpenter.Provisioners.Kind:
		if o := p.provisioner(k.name); o != nil {
			return p.provisionerStatus(ctx, o)
		}
	case karpenter.NodeTemplates.Kind:
		if t := p.template(k.name); t != nil {
			return p.templateStatus(ctx, t)
		}
	}
	return nil
}

// honored sets the condition that tells whether every field that the object sets has an effect. It is False only if lost names fields without
// effect whose user loses something by that. idle names fields whose missing effect does no harm; the message mentions them.
func honored(set status.ConditionSet, lost, idle string) {
	if lost == "" {
		// The usual reason, the condition's type, isn't a valid reason here: it contains a domain.
		set.SetTrueWithReason(objects.ConditionFieldsHonored, "FieldsHonored", shorten(idle))
		return
	}
	if idle != "" {
		lost += "; " + idle
	}
	set.SetFalse(objects.ConditionFieldsHonored, reasonNotHonored, shorten(lost))
}

// save writes the status if it differs, with optimistic locking, and then records events for conditions that became False. A conflict
// is an error like others: the watch delivers the newer version.
func save(ctx context.Context, p *poolStatus, base, changed status.Object, statuses func() (before, after any)) error {
	before, after := statuses()
	if equality.Semantic.DeepEqual(before, after) {
		return nil
	}
	told := map[string]status.Condition{}
	for _, c := range base.GetConditions() {
		told[c.Type] = c
	}
	wrong := []status.Condition{}
	for _, c := range changed.GetConditions() {
		had := told[c.Type]
		// Ready only summarizes, and a class that is still being resolved needs no event.
		silent := c.Type == status.ConditionReady || c.Reason == reasonClassUnknown
		if c.IsFalse() && !silent && (!had.IsFalse() || had.Message != c.Message) {
			wrong = append(wrong, c)
		}
	}
	if err := p.write(ctx, base, changed, true); err != nil {
		return fmt.Errorf("writing the status of %s: %w", base.GetName(), err)
	}
	for _, c := range wrong {
		if strings.HasPrefix(base.GetName(), karpenter.ProvisionerPrefix) {
			continue // the event is recorded when the Provisioner's own status is written
		}
		p.recorder.Eventf(base, nil, corev1.EventTypeWarning, c.Reason, "Validate", "%s", c.Message)
	}
	return nil
}

// write patches either the status of an object or everything else, from base to changed, and fails if base is not the current version.
// Derived objects are kept in memory instead.
func (p *poolStatus) write(ctx context.Context, base, changed client.Object, toStatus bool) error {
	if karpenter.Derived(base.GetName()) {
		return p.derived.PutStatus(base, changed)
	}
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	data, err := patch.Data(changed)
	gvk, unknown := p.live.GroupVersionKindFor(base)
	if err = errors.Join(err, unknown); err != nil {
		return err
	}
	// The answer is decoded without a type, because a malformed object doesn't fit its type.
	answer := &unstructured.Unstructured{}
	answer.SetGroupVersionKind(gvk)
	answer.SetName(base.GetName())
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if toStatus {
		return p.live.Status().Patch(ctx, answer, client.RawPatch(patch.Type(), data))
	}
	return p.live.Patch(ctx, answer, client.RawPatch(patch.Type(), data))
}
