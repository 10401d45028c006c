// Package records decides what the records on NodeClaims say when a process begins to lead: which launch batch a claim belongs to, and which of the
// recorded reservations are still in force.
//
// It is pure, but for Unanswered. pkg/launch reads claims, pods and nodes, puts these reservations into the ledger, and resumes the launches.
package records
