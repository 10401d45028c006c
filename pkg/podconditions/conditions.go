package podconditions

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	listersv1 "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

const (
	// patience is how long a pod waits before it gets the condition. Most gates open sooner: then the binding writes the condition, and one
	// request is saved.
	patience = 5 * time.Second
	// perSecond is how many conditions are written a second at most, as for events about pods: thousands of pods that wait at once would delay the
	// writes that matter.
	perSecond = 50
	// writeTimeout is the deadline of one write.
	writeTimeout = 10 * time.Second
)

// Conditions gives pods that wait behind closed gates the condition PodScheduled=False, once, if they have none: kubectl, dashboards and alerts
// look for it. Its reason is Unschedulable, as after a failed scheduling cycle; SchedulingGated would mean that the pod has spec.schedulingGates.
// Its message says what the pod waits for. It isn't written again when that changes: the pod's events tell of that.
type Conditions struct {
	clock clock.WithTicker
	gate  func(uid types.UID) (closed bool, why string)

	mu    sync.Mutex
	queue []waiting          // in the order of since
	in    map[types.UID]bool // the pods in queue
}

// waiting is a pod whose gate was found closed.
type waiting struct {
	ref   capacity.PodRef
	since time.Time
}

// New returns Conditions that ask gate what a pod waits for.
func New(c clock.WithTicker, gate func(uid types.UID) (closed bool, why string)) *Conditions {
	return &Conditions{clock: c, gate: gate, in: map[types.UID]bool{}}
}

// Add notes a pod whose gate is closed. It is O(1) and writes nothing: the scheduling queue calls it under its lock, for the same pod many times.
func (c *Conditions) Add(pod *corev1.Pod) {
	if !lacks(pod) {
		return
	}
	c.add(capacity.RefOf(pod))
}

func (c *Conditions) add(ref capacity.PodRef) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.in[ref.UID] {
		return
	}
	c.in[ref.UID] = true
	c.queue = append(c.queue, waiting{ref, c.clock.Now()})
}

// Run writes conditions until ctx ends. Only the leader calls it. Elsewhere no gate is closed.
func (c *Conditions) Run(ctx context.Context, client kubernetes.Interface, pods listersv1.PodLister) {
	tick := c.clock.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
		}
		for left := perSecond; left > 0 && ctx.Err() == nil; {
			ref, ok := c.due()
			if !ok {
				break
			}
			if c.tell(ctx, client, pods, ref) {
				left--
			}
		}
	}
}

// due takes the pod that has waited longest out of the queue, if it has waited for long enough.
func (c *Conditions) due() (ref capacity.PodRef, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 || c.clock.Since(c.queue[0].since) < patience {
		return capacity.PodRef{}, false
	}
	ref = c.queue[0].ref
	c.queue = c.queue[1:]
	delete(c.in, ref.UID)
	return ref, true
}

// tell writes the condition if the pod still waits and has none. asked: it has sent a request. The pod may be bound or deleted at any moment: the
// request names the version of the pod that it is about, so that it can't undo what a binding has written.
func (c *Conditions) tell(ctx context.Context, client kubernetes.Interface, pods listersv1.PodLister, ref capacity.PodRef) (asked bool) {
	pod, err := pods.Pods(ref.Namespace).Get(ref.Name)
	if err != nil || pod.UID != ref.UID || pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || objects.Ended(pod) || !lacks(pod) {
		return false
	}
	closed, why := c.gate(pod.UID)
	if !closed {
		return false
	}
	logger := klog.FromContext(ctx)
	switch err := write(ctx, client, pod, why, c.clock.Now()); {
	case err == nil:
		logger.V(3).Info("Wrote what a pod waits for", "pod", klog.KObj(pod), "reason", why)
	case apierrors.IsNotFound(err) || ctx.Err() != nil:
	case apierrors.IsConflict(err):
		c.add(ref) // the informer will have the change by the next attempt
	default:
		logger.Error(err, "Could not write what a pod waits for", "pod", klog.KObj(pod))
		if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			c.add(ref)
		}
	}
	return true
}

func write(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, why string, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	at := metav1.NewTime(now)
	if old := scheduled(pod); old != nil && old.Status == corev1.ConditionFalse {
		at = old.LastTransitionTime
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": pod.UID, "resourceVersion": pod.ResourceVersion},
		"status": map[string]any{"conditions": []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: why,
			ObservedGeneration: pod.Generation, LastTransitionTime: at,
		}}},
	})
	if err != nil {
		return fmt.Errorf("encoding the condition: %w", err)
	}
	_, err = client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// lacks reports whether the pod has no condition that says why it has no node. What the API server writes about spec.schedulingGates stays when the
// last of them has been removed.
func lacks(pod *corev1.Pod) bool {
	c := scheduled(pod)
	return c == nil || c.Status == corev1.ConditionUnknown ||
		c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonSchedulingGated && len(pod.Spec.SchedulingGates) == 0
}

// scheduled returns the pod's condition PodScheduled, or nil.
func scheduled(pod *corev1.Pod) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodScheduled {
			return c
		}
	}
	return nil
}
