// Package kubeapi is a Kubernetes API server in memory, for tests under virtual time: no socket, no process, nothing that
// waits for anything but the clock.
//
// It is reached through an http.RoundTripper, so that real clients, informers and their reconnections run against it. What
// concurrent writers and watchers depend on behaves as in kube-apiserver: resource versions and conflicts, preconditions,
// finalizers and graceful deletion, status as a part of its own, merge and strategic merge patches, watches from a version with
// selectors, bookmarks and expiry, bindings, and evictions that respect disruption budgets. A test compares it with a real
// kube-apiserver, step by step.
//
// It has no authentication, no admission, no defaulting and next to no validation, converts nothing between versions, and
// collects no garbage.
package kubeapi
