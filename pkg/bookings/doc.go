// Package bookings plans capacity for ProvisioningRequests, and keeps it for the pods that name them (docs/design/provisioning-requests.md). It runs
// on the planner's goroutine.
//
// It reads no API object: pkg/provisioningrequest says what is asked for, and tells what has become of it. It keeps no capacity itself: the
// ledger does.
package bookings
