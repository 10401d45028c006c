package kubelet

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A container that keeps failing is restarted after ten seconds, then twenty, and so on up to five minutes.
const firstBackOff, maxBackOff = 10 * time.Second, 5 * time.Minute

func backOff(restarts int32) time.Duration {
	return min(firstBackOff<<min(restarts, 10), maxBackOff)
}

// markedWith returns the duration in an annotation.
func markedWith(p *corev1.Pod, annotation string) (time.Duration, bool) {
	text, ok := p.Annotations[annotation]
	if !ok {
		return 0, false
	}
	d, err := time.ParseDuration(text)
	return max(d, time.Millisecond), err == nil
}

// crash makes the main container fail once it has run for the given time, and restarts it when its back-off is over. A pod that isn't
// restarted fails.
func (k *Kubelets) crash(ctx context.Context, n *node, p *corev1.Pod, state *podState, after time.Duration, now time.Time) (time.Duration, error) {
	if state.down.IsZero() {
		if left := state.up.Add(after).Sub(now); left > 0 {
			return left, nil
		}
		failed := exited(1, "Error", metav1.NewTime(now))
		if p.Spec.RestartPolicy == corev1.RestartPolicyNever {
			return 0, k.patchPod(ctx, p, endedStatus(p, corev1.PodFailed, failed, now))
		}
		status := runningStatus(p, state, n.machine.PrivateIP, now)
		status.Conditions = podConditions(corev1.ConditionFalse, "ContainersNotReady", metav1.NewTime(now))
		loop(status.ContainerStatuses, failed, state.restarts)
		if err := k.patchPod(ctx, p, status); err != nil {
			return 0, err
		}
		state.down = now
	}
	if left := state.down.Add(backOff(state.restarts)).Sub(now); left > 0 {
		return left, nil
	}
	status := runningStatus(p, state, n.machine.PrivateIP, now)
	for i := range status.ContainerStatuses {
		status.ContainerStatuses[i].RestartCount = state.restarts + 1
	}
	if err := k.patchPod(ctx, p, status); err != nil {
		return 0, err
	}
	state.restarts, state.down, state.up = state.restarts+1, time.Time{}, now
	return after, nil
}

// crashInit does the same with the first init container; the pod stays pending.
func (k *Kubelets) crashInit(ctx context.Context, n *node, p *corev1.Pod, state *podState, after time.Duration, now time.Time) (time.Duration, error) {
	if state.up.IsZero() {
		state.up = now
	}
	if state.down.IsZero() {
		if left := state.up.Add(after).Sub(now); left > 0 {
			return left, nil
		}
		status := creatingStatus(p, n.machine.PrivateIP, now)
		status.StartTime = &metav1.Time{Time: state.starting}
		for i := range status.Conditions {
			if status.Conditions[i].Type == corev1.PodInitialized {
				status.Conditions[i].Status, status.Conditions[i].Reason = corev1.ConditionFalse, "ContainersNotInitialized"
			}
		}
		for _, c := range p.Spec.InitContainers {
			status.InitContainerStatuses = append(status.InitContainerStatuses, containerStatus(p, c, waiting("PodInitializing")))
		}
		if len(status.InitContainerStatuses) > 0 {
			loop(status.InitContainerStatuses[:1], exited(1, "Error", metav1.NewTime(now)), state.restarts)
		}
		if err := k.patchPod(ctx, p, status); err != nil {
			return 0, err
		}
		state.down = now
	}
	if left := state.down.Add(backOff(state.restarts)).Sub(now); left > 0 {
		return left, nil
	}
	state.restarts, state.down, state.up = state.restarts+1, time.Time{}, now
	return after, nil
}

func loop(statuses []corev1.ContainerStatus, last corev1.ContainerState, restarts int32) {
	for i := range statuses {
		s := &statuses[i]
		s.State, s.LastTerminationState, s.RestartCount, s.Ready = waiting("CrashLoopBackOff"), last, restarts, false
		started := false
		s.Started = &started
	}
}
