// Package provisioning turns demand into plans: its Provisioner waits until a burst settles, gathers the pods that wait, takes a view of the
// cluster, has the planner decide what to buy and the scheduler's own filters verify it (Decider), and plans once more without what they
// refuse. Effects opens the gates of the pods that were planned for.
//
// What carries a plan out are interfaces of this package (Purchases, Committer), which pkg/launch implements: nothing is launched here.
package provisioning
