// Package offline builds a cluster in memory from manifests and lets the production code plan which nodes it would launch there.
//
//	manifest.Set -> frozen informers -> the scheduler's cache and its profiles' filters (pkg/simulate)
//	                                 -> controllers that never run (provisioning.Rounds.Propose) -> capacity.Plan -> Report
//
// The package itself does not plan, verify or replan: it turns pods into demand, and a plan into a report.
//
// It is not for running clusters: it sends no requests, writes nowhere, and its cluster doesn't change.
package offline
