// Package version is the one place that knows which Dovetail this is and which Kubernetes it was built from.
//
// It is not for the version of the API server, nor for what that server supports: see serverVersion in cmd/scheduler.
package version
