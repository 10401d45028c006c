package kubelet

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// podState is what the kubelet knows about a pod that it admitted.
type podState struct {
	requests requests
	// starting is when its containers began to start, running when they were running; zero: not yet.
	starting, running time.Time
	ip                string
	// restarts counts those of its main container, or of its first init container while that hasn't completed; down is when it last
	// crashed, zero while it runs.
	restarts int32
	down     time.Time
	up       time.Time
	creating bool // the status ContainerCreating has been reported
}

// syncPod does what is due for a pod:
//  1. stop it if it is to be deleted, or release its requests if it has ended,
//  2. admit or reject it if it is new,
//  3. report it running once its node's network is up and its containers had time to start,
//  4. complete it once it has run for its time.
func (k *Kubelets) syncPod(ctx context.Context, key string) (time.Duration, error) {
	obj, exists, err := k.pods.GetIndexer().GetByKey(key)
	if err != nil || !exists {
		return 0, err
	}
	p := obj.(*corev1.Pod)
	n := k.nodeOf(p)
	if n == nil || k.healthOf(n.machine.ID).silent {
		return 0, nil
	}
	now := k.clock.Now()
	switch ended := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed; {
	case p.DeletionTimestamp != nil:
		return k.stopPod(ctx, n, p, ended, now)
	case ended:
		n.forget(p.UID)
		return 0, nil
	}
	state, rejection := n.admit(p, k.shownNode(n), now)
	if rejection != nil {
		klog.FromContext(ctx).V(2).Info("Rejecting a pod", "pod", klog.KObj(p), "node", n.name, "reason", rejection.reason, "message", rejection.message)
		return 0, k.patchPod(ctx, p, failedStatus(rejection, now))
	}
	if state.running.IsZero() {
		return k.startPod(ctx, n, p, state, now)
	}
	if after, crashes := markedWith(p, CrashAfter); crashes {
		return k.crash(ctx, n, p, state, after, now)
	}
	lasts, ends := k.lasts(p)
	if !ends {
		return 0, nil
	}
	if left := state.running.Add(lasts).Sub(now); left > 0 {
		return left, nil
	}
	n.free(p.UID) // its containers stop before the status reports it
	return 0, k.patchPod(ctx, p, succeededStatus(p, now))
}

func (k *Kubelets) startPod(ctx context.Context, n *node, p *corev1.Pod, state *podState, now time.Time) (time.Duration, error) {
	if n.at() < ready && !p.Spec.HostNetwork {
		return 0, nil // its network isn't up; wakePods queues the pod again
	}
	if state.starting.IsZero() {
		state.starting = now
	}
	start := k.cfg.scaled(k.cfg.PodStart)
	if pull, slow := markedWith(p, PullFor); slow {
		start = pull
		if !state.creating {
			if err := k.patchPod(ctx, p, creatingStatus(p, n.machine.PrivateIP, now)); err != nil {
				return 0, err
			}
			state.creating = true
		}
	}
	if left := state.starting.Add(start).Sub(now); left > 0 {
		return left, nil
	}
	if after, crashes := markedWith(p, InitCrashAfter); crashes {
		return k.crashInit(ctx, n, p, state, after, now)
	}
	if state.ip == "" {
		state.ip = n.machine.PrivateIP
		if !p.Spec.HostNetwork {
			state.ip = k.newPodIP()
		}
	}
	if err := k.patchPod(ctx, p, runningStatus(p, state, n.machine.PrivateIP, now)); err != nil {
		return 0, err
	}
	state.running, state.up = now, now
	if after, crashes := markedWith(p, CrashAfter); crashes {
		return after, nil
	}
	if lasts, ends := k.lasts(p); ends {
		return max(lasts, time.Millisecond), nil
	}
	return 0, nil
}

// stopPod gives containers time to stop and deletes the pod.
func (k *Kubelets) stopPod(ctx context.Context, n *node, p *corev1.Pod, ended bool, now time.Time) (time.Duration, error) {
	grace := time.Duration(ptr.Deref(p.DeletionGracePeriodSeconds, 0)) * time.Second
	asked := p.DeletionTimestamp.Add(-grace)
	_, admitted := n.state(p.UID)
	if left := asked.Add(min(grace, k.cfg.scaled(k.cfg.PodStop))).Sub(now); left > 0 && admitted && !ended {
		return left, nil
	}
	n.free(p.UID) // its containers stop before the status reports it: after that, the scheduler gives its capacity to other pods
	// The final phase is reported before the pod is deleted.
	if !ended && (admitted || len(p.Finalizers) > 0) {
		if err := k.patchPod(ctx, p, stoppedStatus(p, now)); err != nil {
			return 0, err
		}
	}
	if grace > 0 || len(p.Finalizers) == 0 {
		err := k.client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{
			GracePeriodSeconds: ptr.To[int64](0), Preconditions: &metav1.Preconditions{UID: &p.UID},
		})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return 0, fmt.Errorf("deleting pod %s/%s: %w", p.Namespace, p.Name, err)
		}
	}
	n.forget(p.UID)
	return 0, nil
}

// lasts returns how long a pod runs, and false if it doesn't end by itself.
func (k *Kubelets) lasts(p *corev1.Pod) (time.Duration, bool) {
	if p.Spec.RestartPolicy == corev1.RestartPolicyAlways {
		return 0, false
	}
	if d, ok := markedWith(p, RunFor); ok {
		return d, true
	}
	return k.cfg.JobTime, slices.ContainsFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "Job" })
}

// patchPod patches the pod's status, unless the name belongs to another pod by now.
func (k *Kubelets) patchPod(ctx context.Context, p *corev1.Pod, status any) error {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.UID}, "status": status})
	if err != nil {
		return fmt.Errorf("writing the status of pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	_, err = k.client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("writing the status of pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return nil
}

// newPodIP returns the next address of 100.64.0.0/10.
func (k *Kubelets) newPodIP() string {
	i := k.nextIP.Add(1)
	return fmt.Sprintf("100.%d.%d.%d", 64+i>>16&63, i>>8&255, i&255)
}
