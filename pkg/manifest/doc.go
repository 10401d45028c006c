// Package manifest reads Kubernetes manifests as a cluster would accept them: documents and lists become objects with the API server's
// defaults, objects that it would refuse are errors, and workloads become the pods that their controllers would create, with what
// admission would have added to them.
//
// It uses the API server's own code wherever that can be linked (defaults and validation of Kubernetes' kinds, schemas and rules of
// Karpenter's); what controllers do is reimplemented briefly, as far as placement depends on it.
//
// The package plans nothing and queries nothing: what isn't in the files doesn't exist.
package manifest
