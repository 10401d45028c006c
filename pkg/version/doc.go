// Package version is the only place that knows the version of Dovetail and of the Kubernetes it was built from.
//
// It is not for the version of the API server, nor for what that server supports: see serverVersion in cmd/scheduler.
package version
