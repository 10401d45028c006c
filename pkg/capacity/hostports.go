package capacity

import (
	corev1 "k8s.io/api/core/v1"
)

// HostPorts returns the ports of a pod that a node can give to one pod only, with their protocol.
func HostPorts(pod *corev1.Pod) []corev1.ContainerPort {
	var out []corev1.ContainerPort
	add := func(c *corev1.Container) {
		for _, p := range c.Ports {
			if p.HostPort > 0 {
				if p.Protocol == "" {
					p.Protocol = corev1.ProtocolTCP
				}
				out = append(out, p)
			}
		}
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(c)
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	return out
}

// PortsConflict reports whether one node can't provide all of the host ports.
func PortsConflict(a, b []corev1.ContainerPort) bool {
	for i := range a {
		for j := range b {
			if PortConflict(&a[i], &b[j]) {
				return true
			}
		}
	}
	return false
}

// PortConflict reports whether one node can't provide both host ports: same number and protocol, and the same or any address
// (k8s.io/kube-scheduler/framework, HostPortInfo: only 0.0.0.0 is any).
func PortConflict(a, b *corev1.ContainerPort) bool {
	return a.HostPort == b.HostPort && protocolOf(a) == protocolOf(b) && (AnyHostIP(a.HostIP) || AnyHostIP(b.HostIP) || a.HostIP == b.HostIP)
}

// AnyHostIP reports whether a host port with this address takes the port on all addresses of the node.
func AnyHostIP(ip string) bool { return ip == "" || ip == "0.0.0.0" }

func protocolOf(p *corev1.ContainerPort) corev1.Protocol {
	if p.Protocol == "" {
		return corev1.ProtocolTCP
	}
	return p.Protocol
}
