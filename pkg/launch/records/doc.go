// Package records decides what the records on NodeClaims say when a process begins to lead: which launch batch a claim belongs to, and which of the
// recorded reservations hold.
//
// It is pure, but for Unanswered. pkg/launch reads claims, pods and nodes, puts what holds into the ledger, and resumes the launches.
package records
