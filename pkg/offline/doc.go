// Package offline makes a small world of what manifests say and asks the production path what it would buy there.
//
//	manifest.Set -> frozen informers -> the scheduler's cache and the default profile's filters (pkg/simulate)
//	                                 -> a launcher that never runs (launch.Motor.Propose) -> capacity.Plan -> Report
//
// Nothing of planning, verifying or replanning is done here: pods become demand, and a plan becomes a report.
//
// It is not for clusters: it asks nobody, writes nowhere, and its world doesn't change.
package offline
