package karpenter

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
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/panics"
	"github.com/dovetail-scheduler/dovetail/pkg/poolmetrics"
)

const (
	// countDelay gathers the changes of a burst of claims into one write of a pool's counts.
	countDelay = time.Second
	// statusWorkers write different objects at the same time.
	statusWorkers = 4
	// endSeriesEvery is how often metrics are rid of pools that have gone.
	endSeriesEvery = 10 * time.Second
	// holdRetry is how often it is asked whether somebody else still has the objects in hand.
	holdRetry = 10 * time.Second
)

// Reasons of conditions and events.
const (
	reasonValidationFailed = "NodePoolValidationFailed"
	reasonLegacyInvalid    = "ProvisionerValidationFailed"
	reasonTemplateInvalid  = "AWSNodeTemplateValidationFailed"
	reasonMalformed        = "Malformed"
	reasonNotHonored       = "FieldsNotHonored"
	reasonUnreadable       = "RecordUnreadable"
	reasonClassUnknown     = "NodeClassReadinessUnknown"
)

// statusKey is an object whose status is to be looked at.
type statusKey struct{ kind, name string }

// poolStatus keeps the status of NodePools and NodeOverlays, says on EC2NodeClasses that can't be read what is the matter with them,
// notes hashes, ends the claims of deleted pools and lets classes go that nobody uses any more. It is level-triggered: a key says what to look at, never what has
// happened.
type poolStatus struct {
	*Store
	health health
	// queue is set while RunStatus runs.
	queue atomic.Pointer[workqueue.TypedRateLimitingInterface[statusKey]]
	// told is why each NodePool, by UID, was told that it is held back.
	told sync.Map
	// buffers is set before any of them is queued.
	buffers atomic.Pointer[informer]
}

func newPoolStatus(s *Store) *poolStatus {
	return &poolStatus{Store: s, health: health{pools: map[types.UID][]outcome{}}}
}

// RunStatus writes conditions and counts of NodePools until ctx ends. It is for the leader: two replicas would only write the
// same, but twice.
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
		for _, o := range s.made.objects(i.kind) {
			p.enqueue(statusKey{i.Kind, o.GetName()}, 0)
		}
	}
	for _, c := range s.Claims() {
		p.claimChanged(c, false) // its pool may have gone while nobody led
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
	<-ctx.Done()
	queue.ShutDown()
	workers.Wait()
	return nil
}

// endSeries ends the series of pools that have gone, in the metrics of all parts. A pool has gone with its last claim: until then there
// is something to report, be it how long its nodes take to terminate.
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

// poolsAndOwners are the names of the pools that are there and of those that claims belong to.
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

func (p *poolStatus) changed(k kind, name string) { p.enqueue(statusKey{k.Kind, name}, 0) }

func (p *poolStatus) claimChanged(c *capacity.Claim, gone bool) {
	if c.Pool != "" {
		p.enqueue(statusKey{nodePools.Kind, c.Pool}, countDelay)
	}
	if nc := p.class(c.NodeClass); gone && nc != nil && !nc.DeletionTimestamp.IsZero() {
		p.changed(nodeClasses, nc.Name)
	}
}

// classChanged looks at the class and at every pool that refers to it.
func (p *poolStatus) classChanged(name string) {
	p.changed(nodeClasses, name)
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, one := range p.parsed {
		if one.pool.NodeClass == name {
			p.changed(nodePools, one.object.Name)
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
		queue.AddAfter(k, holdRetry) // whoever has the objects in hand writes what is to be said of them
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
	case nodePools.Kind:
		err := p.endOwned(ctx, k.name)
		if np := p.poolObject(k.name); np != nil {
			err = errors.Join(p.pool(ctx, np), err)
		}
		return err
	case nodeOverlays.Kind:
		p.judgeOverlays()
		if o, ok, _ := p.overlays.GetStore().GetByKey(k.name); ok {
			return p.overlay(ctx, o.(*karpv1alpha1.NodeOverlay))
		}
	case nodeClasses.Kind:
		if nc := p.class(k.name); nc != nil {
			return errors.Join(p.nodeClass(ctx, nc), p.catchUp(ctx, k.name))
		}
	case provisioners.Kind:
		if o := p.provisioner(k.name); o != nil {
			return p.provisionerStatus(ctx, o)
		}
	case nodeTemplates.Kind:
		if t := p.template(k.name); t != nil {
			return p.templateStatus(ctx, t)
		}
	case capacityBuffers.Kind:
		p.tellBuffer(k.name)
	}
	return nil
}

// honored says in a condition whether everything the object asks for has an effect. It is False only for what its user loses by that;
// what has no effect otherwise is said all the same.
func honored(set status.ConditionSet, lost, idle string) {
	if lost == "" {
		set.SetTrueWithReason(objects.ConditionFieldsHonored, "FieldsHonored", shorten(idle)) // the type itself is no reason: it has a domain
		return
	}
	if idle != "" {
		lost += "; " + idle
	}
	set.SetFalse(objects.ConditionFieldsHonored, reasonNotHonored, shorten(lost))
}

// save writes the status if it differs, against the version it was made from, and then tells in events what is newly wrong. A
// conflict is an error like others: the watch brings the newer version.
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
		// Ready only sums up, and a class that is being resolved is no news.
		silent := c.Type == status.ConditionReady || c.Reason == reasonClassUnknown
		if c.IsFalse() && !silent && (!had.IsFalse() || had.Message != c.Message) {
			wrong = append(wrong, c)
		}
	}
	if err := p.write(ctx, base, changed, true); err != nil {
		return fmt.Errorf("writing the status of %s: %w", base.GetName(), err)
	}
	for _, c := range wrong {
		if strings.HasPrefix(base.GetName(), provisionerPrefix) {
			continue // the Provisioner is told when its own status is written
		}
		p.recorder.Eventf(base, nil, corev1.EventTypeWarning, c.Reason, "Validate", "%s", c.Message)
	}
	return nil
}

// write patches the object from base to changed, its status or else the rest, against the version it was made from.
// What is derived has no place in the API.
func (p *poolStatus) write(ctx context.Context, base, changed client.Object, toStatus bool) error {
	if derived(base.GetName()) {
		p.statusOfDerived(changed)
		return nil
	}
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	data, err := patch.Data(changed)
	gvk, unknown := p.live.GroupVersionKindFor(base)
	if err = errors.Join(err, unknown); err != nil {
		return err
	}
	// The answer is read without a type: that of a malformed object has none.
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
