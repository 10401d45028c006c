// Package realkubelet boots the kubelet's own code on the EC2 simulator's instances: k8s.io/kubernetes/pkg/kubemark's hollow
// kubelet, which is the real one over a fake container runtime, a fake machine and a stub container manager. What a kubelet
// does to a Node that is there already (labels, taints, extended resources, Lease), which pods it admits and how it ends
// them is what the real one does.
//
// Each kubelet is a process of its own, since kubelets keep state in global variables and can't be stopped: the test binary
// started once more (see Main). It talks to the API server as the user that a real one is, system:node:NAME, so that the
// Node authorizer and the NodeRestriction admission plugin, where they are on, have their say.
//
// There are no cgroups, no containers and no CSI drivers here. For hundreds of nodes, and for volumes, use test/ec2/kubelet.
package realkubelet
