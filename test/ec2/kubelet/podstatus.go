package kubelet

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// podConditions returns the conditions that the kubelet owns; PodScheduled is the scheduler's and is not changed.
func podConditions(status corev1.ConditionStatus, reason string, at metav1.Time) []corev1.PodCondition {
	var out []corev1.PodCondition
	for _, t := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady} {
		c := corev1.PodCondition{Type: t, Status: status, Reason: reason, LastTransitionTime: at}
		if t == corev1.PodInitialized {
			c.Status = corev1.ConditionTrue
		}
		out = append(out, c)
	}
	return out
}

func runningStatus(p *corev1.Pod, state *podState, hostIP string, now time.Time) corev1.PodStatus {
	at := metav1.NewTime(now)
	out := corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: ptr.To(metav1.NewTime(state.starting)), HostIP: hostIP, HostIPs: []corev1.HostIP{{IP: hostIP}}, PodIP: state.ip,
		PodIPs: []corev1.PodIP{{IP: state.ip}}, Conditions: podConditions(corev1.ConditionTrue, "", at),
	}
	run := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}}
	for _, c := range p.Spec.InitContainers {
		state := run
		if ptr.Deref(c.RestartPolicy, "") != corev1.ContainerRestartPolicyAlways {
			state = exited(0, "Completed", at)
		}
		out.InitContainerStatuses = append(out.InitContainerStatuses, containerStatus(p, c, state))
	}
	for _, c := range p.Spec.Containers {
		out.ContainerStatuses = append(out.ContainerStatuses, containerStatus(p, c, run))
	}
	return out
}

// creatingStatus returns the status of a pod whose image is still being pulled.
func creatingStatus(p *corev1.Pod, hostIP string, now time.Time) corev1.PodStatus {
	at := metav1.NewTime(now)
	out := corev1.PodStatus{Phase: corev1.PodPending, StartTime: &at, HostIP: hostIP, HostIPs: []corev1.HostIP{{IP: hostIP}}, Conditions: podConditions(corev1.ConditionFalse, "ContainersNotReady", at)}
	for _, c := range p.Spec.Containers {
		out.ContainerStatuses = append(out.ContainerStatuses, containerStatus(p, c, waiting("ContainerCreating")))
	}
	return out
}

func waiting(reason string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
}

func succeededStatus(p *corev1.Pod, now time.Time) corev1.PodStatus {
	return endedStatus(p, corev1.PodSucceeded, exited(0, "Completed", metav1.NewTime(now)), now)
}

func stoppedStatus(p *corev1.Pod, now time.Time) corev1.PodStatus {
	if p.Spec.RestartPolicy == corev1.RestartPolicyAlways { // a server exits normally when it is asked to stop
		return endedStatus(p, corev1.PodSucceeded, exited(0, "Completed", metav1.NewTime(now)), now)
	}
	return endedStatus(p, corev1.PodFailed, exited(137, "Error", metav1.NewTime(now)), now)
}

func endedStatus(p *corev1.Pod, phase corev1.PodPhase, state corev1.ContainerState, now time.Time) corev1.PodStatus {
	reason := "PodCompleted"
	if phase == corev1.PodFailed {
		reason = "PodFailed"
	}
	out := corev1.PodStatus{Phase: phase, Conditions: podConditions(corev1.ConditionFalse, reason, metav1.NewTime(now))}
	for _, c := range p.Spec.Containers {
		out.ContainerStatuses = append(out.ContainerStatuses, containerStatus(p, c, state))
	}
	return out
}

func failedStatus(r *rejection, now time.Time) corev1.PodStatus {
	return corev1.PodStatus{Phase: corev1.PodFailed, Reason: r.reason, Message: "Pod was rejected: " + r.message, StartTime: ptr.To(metav1.NewTime(now))}
}

func exited(code int32, reason string, at metav1.Time) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, StartedAt: at, FinishedAt: at}}
}

func containerStatus(p *corev1.Pod, c corev1.Container, state corev1.ContainerState) corev1.ContainerStatus {
	runs := state.Running != nil
	if state.Waiting != nil {
		return corev1.ContainerStatus{Name: c.Name, Image: c.Image, State: state, Started: ptr.To(false)}
	}
	return corev1.ContainerStatus{
		Name: c.Name, Image: c.Image, ImageID: c.Image, ContainerID: "containerd://" + string(p.UID) + "-" + c.Name, State: state, Ready: runs || state.Terminated.ExitCode == 0,
		Started: ptr.To(runs),
	}
}
