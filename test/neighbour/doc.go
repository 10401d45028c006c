// Command neighbour moves a cluster from Dovetail to Karpenter and back, with Karpenter itself:
//
//	make neighbour
//	make neighbour NEIGHBOUR_HOLD=2m
//
// Karpenter is the main of karpenter-provider-aws, built from its Go module (tools/neighbour/go.mod names the version). It and
// dovetail-scheduler are processes that use the same kube-apiserver, the same EC2 simulator, the same NodePools and the same EC2NodeClass,
// one after the other. kube-scheduler and kube-controller-manager are processes too; the kubelets are the EC2 simulator's light ones.
//
//  1. Dovetail launches 50 nodes for pods of three Deployments and a DaemonSet. It is stopped.
//  2. Karpenter starts. Its metrics count 50 nodes and claims.
//  3. It launches a node for a new pod.
//  4. It ends a node whose pod was deleted.
//  5. For the hold (30 minutes, so that it checks each claim for drift several times) it replaces no node, no claim is lost, and none is
//     Drifted.
//  6. Dovetail starts beside it, and is paused until Karpenter stops. Then it holds all nodes, among them the one that Karpenter launched,
//     for a tenth of the time.
//  7. Dovetail launches a node for a new pod, and ends Karpenter's node when it is empty.
//
// After each step the claims, the nodes and EC2's instances must be the same machines, and a claim's annotations (hashes, instance profile) those of its
// pool and its class. The command prints what it has seen, and exits with 1 if anything is wrong.
//
// It doesn't show that Karpenter's own RBAC and IAM policies are enough: Karpenter has all permissions here.
package main
