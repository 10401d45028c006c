// Package manifest reads Kubernetes manifests as a cluster would take them in: documents and lists become objects with the
// API server's defaults, objects that it would refuse are errors, and workloads become the pods that their controllers would
// make, with what admission would have added to them.
//
// It follows the API server's own code wherever that can be linked (defaults and validation of Kubernetes' kinds, schemas and
// rules of Karpenter's); what controllers do is done again in few words, as far as placement depends on it.
//
// It is not for planning, and it asks nobody: what the files don't say isn't there.
package manifest
