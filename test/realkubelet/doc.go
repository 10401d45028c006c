// Package realkubelet boots the kubelet's own code on the EC2 simulator's instances: k8s.io/kubernetes/pkg/kubemark's hollow kubelet,
// which is the real one with a fake container runtime, fake hardware information and a stub container manager. How it changes an
// existing Node (labels, taints, extended resources, Lease), which pods it admits and how it stops them is the behaviour of the real
// kubelet.
//
// Each kubelet is a separate process, because kubelets keep state in global variables and can't be stopped: the test binary runs
// itself again (see Main). It talks to the API server as the user of a real kubelet, system:node:NAME, so that the Node authorizer and
// the NodeRestriction admission plugin apply where they are enabled.
//
// There are no cgroups, no containers and no CSI drivers here. For hundreds of nodes, and for volumes, use test/ec2/kubelet.
package realkubelet
