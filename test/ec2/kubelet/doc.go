// Package kubelet runs light kubelets on the simulator's instances: enough of a kubelet for schedulers and controllers
// to take a node for real, cheap enough for thousands of them in one process.
//
// A kubelet boots after a delay, reads its instance's user data, registers its Node or adopts the one that is there,
// posts status, renews its Lease, announces CSI drivers and device-plugin resources, and runs the pods bound to its
// node: it admits or rejects them as the real one does, reports them running, lets them complete, and deletes them when
// they are deleted. Annotations make containers slow to start, or fail again and again. When the instance ends, the kubelet falls
// silent; its Node stays for somebody else to delete.
//
// All kubelets of a process share one pod informer, one queue and one client. There are no probes, no volumes and no
// eviction for want of resources. Where the kubelet's own code matters, use k8s.io/kubernetes/pkg/kubemark instead.
package kubelet
