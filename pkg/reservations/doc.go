// Package reservations keeps the ledger behind a lock: plugins ask it in the scheduling cycle, views read it, and the controllers that launch
// and end nodes change it step by step. Package ledger (pkg/capacity/ledger) has the rules and knows only values.
//
// It starts no goroutine and writes no object: the goroutine that waits on Wake (pkg/provisioning, Effects) takes the effects and carries them out.
package reservations
