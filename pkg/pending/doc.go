// Package pending knows the pods that wait for a node: which they are, what they need (their equivalence classes), which workload and which
// group they belong to, and how many more their controllers are about to create. It tells the ledger when one is bound or deleted.
//
// It decides nothing and launches nothing. Informer handlers feed it; it has no goroutine of its own.
package pending
