// Package kubeapi is a Kubernetes API server in memory, for tests under virtual time: it uses no socket and no process, and waits only
// for the clock.
//
// Clients reach it through an http.RoundTripper, so that real clients, informers and their reconnections run against it. Everything
// that concurrent writers and watchers depend on behaves as in kube-apiserver: resource versions and conflicts, preconditions,
// finalizers and graceful deletion, the status subresource, merge and strategic merge patches, watches from a version with selectors,
// bookmarks and expiry, bindings, and evictions that respect disruption budgets. A budget's status is written by Kubernetes' disruption
// controller if one runs; otherwise the server counts pods. A test compares it with a real kube-apiserver step by step.
//
// It has no authentication, no defaulting, almost no validation and no admission but the functions added by Admit, does not convert
// between versions, and does not collect garbage.
package kubeapi
