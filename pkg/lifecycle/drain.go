package lifecycle

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/karpentermetrics"
	"github.com/dovetail-scheduler/dovetail/pkg/lifecycle/pods"
	"github.com/dovetail-scheduler/dovetail/pkg/panics"
)

const (
	evictionBackoff    = 100 * time.Millisecond
	evictionBackoffMax = 10 * time.Second
	// evictionsAtOnce is how many pods of one node are evicted in parallel.
	evictionsAtOnce = 8
)

// drain empties a node through the Eviction API, group after group, and ends when no pod is left that has to be waited for. It waits for
// pods that ask not to be disrupted; the deadline overrides these, disruption budgets and groups.
type drain struct {
	kube      kubernetes.Interface
	pods      *boundPods
	waits     *waits
	evictions *evictions
	recorder  recorder
}

func (d *drain) run(ctx context.Context, e *ending) (time.Duration, error) {
	begun := e.node.DeletionTimestamp
	if e.claim != nil {
		if conditionTrue(e.claim, karpv1.ConditionTypeDrained) {
			return 0, nil
		}
		set := e.conditions()
		if set.Get(karpv1.ConditionTypeDrained) == nil {
			set.SetUnknownWithReason(karpv1.ConditionTypeDrained, "Draining", "pods are being evicted")
		}
		begun = &set.Get(karpv1.ConditionTypeDrained).LastTransitionTime
	}
	young := minDrain // schedulers that haven't seen the taint may still bind pods
	if begun != nil {
		young = d.waits.left(e.name(), "drain", begun.Time, minDrain, e.now)
	}
	if e.expired() {
		klog.FromContext(ctx).Info("Termination grace period is over, draining no more", "node", klog.KObj(e.node))
		e.drained("TerminationGracePeriodElapsed")
		return 0, nil
	}
	bound, err := d.pods.cached(e.node.Name)
	if err != nil {
		return 0, err
	}
	awaited := slices.DeleteFunc(bound, func(p *corev1.Pod) bool { return !pods.Awaited(p, e.now) })
	if err := d.deleteExpiring(ctx, e, awaited); err != nil {
		return 0, err
	}
	if len(awaited) > 0 {
		wait, err := d.evict(ctx, e, firstGroup(awaited))
		return soonest(drainPoll, wait), err
	}
	if young > 0 || e.bindsInFlight() {
		return drainPoll, nil
	}
	// The cache is empty, and our scheduler is binding no pods; only the API can confirm that the node is empty.
	left, err := d.pods.live(ctx, e.node.Name)
	if err != nil {
		return 0, err
	}
	for i := range left {
		if pods.Awaited(&left[i], e.now) {
			return drainPoll, nil
		}
	}
	e.drained(karpv1.ConditionTypeDrained)
	klog.FromContext(ctx).V(2).Info("Node drained", "node", klog.KObj(e.node))
	return 0, nil
}

func (e *ending) drained(reason string) {
	if e.claim != nil {
		e.conditions().SetTrueWithReason(karpv1.ConditionTypeDrained, reason, "")
	}
}

// firstGroup returns the pods to evict next. The order is Karpenter's: non-critical pods, non-critical DaemonSet pods, critical pods,
// critical DaemonSet pods.
func firstGroup(awaited []*corev1.Pod) []*corev1.Pod {
	var groups [4][]*corev1.Pod
	for _, p := range awaited {
		g := 0
		if pods.Critical(p) {
			g += 2
		}
		if pods.Daemon(p) {
			g++
		}
		groups[g] = append(groups[g], p)
	}
	for _, g := range groups {
		if len(g) > 0 {
			return g
		}
	}
	return nil
}

// evict evicts the group's pods, each when its back-off is over, and returns when the next one may be tried again.
func (d *drain) evict(ctx context.Context, e *ending, group []*corev1.Pod) (time.Duration, error) {
	var due []*corev1.Pod
	var after time.Duration
	for _, p := range group {
		if protected, _ := pods.DoNotDisrupt(p, e.now); protected && !pods.Terminating(p) {
			d.recorder.Eventf(e.node, p, corev1.EventTypeWarning, reasonFailedDraining, "Drain", "waiting for pod %s, which asks not to be disrupted", klog.KObj(p))
			continue
		}
		if !pods.Evictable(p, e.now) {
			continue
		}
		if wait := d.evictions.wait(p.UID, e.now); wait > 0 {
			after = soonest(after, wait)
			continue
		}
		due = append(due, p)
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, evictionsAtOnce)
	errs := make([]error, len(due))
	for i, p := range due {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			errs[i] = panics.Catch(ctx, "lifecycle", func() error { return d.evictPod(ctx, e, p) })
		})
	}
	wg.Wait()
	for _, p := range due {
		if wait := d.evictions.wait(p.UID, e.now); wait > 0 {
			after = soonest(after, wait)
		}
	}
	return after, utilerrors.NewAggregate(errs)
}

// evictPod makes one call. A refusal by a disruption budget is no error: it is tried again later.
func (d *drain) evictPod(ctx context.Context, e *ending, p *corev1.Pod) error {
	err := d.kube.PolicyV1().Evictions(p.Namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}},
	})
	karpentermetrics.EvictionRequested(statusCode(err))
	switch {
	case err == nil:
		d.evictions.forget(p.UID)
		d.recorder.Eventf(p, e.node, corev1.EventTypeNormal, reasonEvicted, "Evict", "Evicted: node %s is being terminated", e.node.Name)
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		d.evictions.forget(p.UID) // gone, or another pod of the name
	case apierrors.IsTooManyRequests(err):
		d.evictions.fail(p.UID, e.now)
		d.recorder.Eventf(e.node, p, corev1.EventTypeWarning, reasonFailedDraining, "Drain", "evicting pod %s would violate its disruption budget", klog.KObj(p))
	case apierrors.IsInternalError(err):
		d.evictions.fail(p.UID, e.now)
		d.recorder.Eventf(e.node, p, corev1.EventTypeWarning, reasonFailedDraining, "Drain", "pod %s can't be evicted: %v", klog.KObj(p), err)
	default:
		d.evictions.fail(p.UID, e.now)
		return fmt.Errorf("evicting pod %s: %w", klog.KObj(p), err)
	}
	return nil
}

// deleteExpiring deletes pods early enough for their own grace period to end by the deadline, whatever protects them.
func (d *drain) deleteExpiring(ctx context.Context, e *ending, awaited []*corev1.Pod) error {
	if e.deadline.IsZero() {
		return nil
	}
	for _, p := range awaited {
		if pods.Terminating(p) && !p.DeletionTimestamp.After(e.deadline) || p.Spec.TerminationGracePeriodSeconds == nil {
			continue
		}
		if e.now.Before(e.deadline.Add(-time.Duration(*p.Spec.TerminationGracePeriodSeconds) * time.Second)) {
			continue
		}
		// At least 1 s: with 0 the pod would vanish from the API while its containers may still run.
		grace := max(int64(e.deadline.Sub(e.now)/time.Second), 1)
		err := d.kube.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{
			GracePeriodSeconds: &grace, Preconditions: &metav1.Preconditions{UID: &p.UID},
		})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("deleting pod %s before the node's deadline: %w", klog.KObj(p), err)
		}
		d.recorder.Eventf(p, e.node, corev1.EventTypeNormal, reasonDisrupted, "Delete",
			"Deleting the pod so that it ends before the termination grace period of node %s is over at %s", e.node.Name, e.deadline.Format(time.RFC3339))
	}
	return nil
}

func statusCode(err error) string {
	if err == nil {
		return strconv.Itoa(http.StatusOK) // the API server answers 201; Karpenter counts it as 200
	}
	if s, ok := err.(apierrors.APIStatus); ok && s.Status().Code != 0 {
		return strconv.Itoa(int(s.Status().Code))
	}
	return strings.ToLower(string(apierrors.ReasonForError(err)))
}

// evictionMemory is how long after its last failure a pod's back-off is remembered: longer than any pause between two tries. It bounds the
// memory for pods that end without another try.
const evictionMemory = 5 * time.Minute

// evictions holds the back-off per pod.
type evictions struct{ memory[types.UID, attempt] }

type attempt struct {
	at    time.Time
	delay time.Duration
}

// wait returns how long the pod's eviction may not be tried yet.
func (b *evictions) wait(uid types.UID, now time.Time) time.Duration {
	last, _ := b.get(uid)
	return max(last.at.Sub(now), 0)
}

func (b *evictions) fail(uid types.UID, now time.Time) {
	b.update(uid, func(last attempt, _ bool) attempt {
		delay := min(max(2*last.delay, evictionBackoff), evictionBackoffMax)
		return attempt{at: now.Add(delay), delay: delay}
	})
}
