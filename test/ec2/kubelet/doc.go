// Package kubelet runs simulated kubelets on the simulator's instances: enough of a kubelet for schedulers and controllers to treat a
// node as a real one, and cheap enough for thousands of them in one process.
//
// A kubelet boots after a delay, reads its instance's user data, registers its Node or adopts an existing one, posts status, renews
// its Lease, announces CSI drivers and device-plugin resources, and runs the pods bound to its node: it admits or rejects them as the
// real one does, reports them running, completes them, and removes deleted ones. Annotations make containers slow to start, or fail
// again and again. When the instance is terminated, the kubelet stops without a message; deleting its Node is left to others.
//
// Nodes may become unhealthy: a kubelet falls silent, or reports that the node isn't Ready, or a node monitoring agent sets a condition.
//
// All kubelets of a process share one pod informer, one queue and one client. There are no probes, no volumes and no node-pressure
// eviction. Where the kubelet's own code matters, use test/realkubelet instead.
package kubelet
