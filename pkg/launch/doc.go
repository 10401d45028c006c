// Package launch is the motor that turns demand into nodes: it lets a burst settle, looks at the cluster, plans, has the
// plan verified by the real filters, writes NodeClaims, buys instances in launch batches, creates the Node objects ahead of their
// kubelets, and opens the gates of the pods that were planned for them.
//
// It owns the ledger behind a lock (Reservations), every goroutine and every retry of a launch. It is not here to decide what to
// buy (pkg/capacity), to know how (pkg/aws), or to end anything but its own failed launches (pkg/lifecycle).
package launch
