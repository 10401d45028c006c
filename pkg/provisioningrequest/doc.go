// Package provisioningrequest answers ProvisioningRequests (autoscaling.x-k8s.io/v1): it reads which pods they ask capacity for, has it booked, and
// writes their conditions as the Cluster Autoscaler does (docs/design/provisioning-requests.md).
//
// It plans and keeps nothing itself: pkg/bookings does.
package provisioningrequest
