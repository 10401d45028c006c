// Package launch turns demand into nodes: its Launcher waits until a burst settles, takes a view of the cluster, plans, has the plan verified
// by the scheduler's own filters, writes NodeClaims, launches instances in launch batches, creates the Node objects ahead of their
// kubelets, and opens the gates of the pods that were planned for them.
//
// It owns every goroutine and every retry of a launch, and carries out the ledger's effects (pkg/reservations). It does not decide what to buy
// (pkg/capacity), does not know how to buy it (pkg/aws), and ends nothing but its own failed launches (see pkg/lifecycle).
package launch
