// Package cloudprovider is what the rest of the program asks of a cloud. A cloud is a folder that implements Provider, describes its node
// classes and exports both as a Cloud, and one line in cmd. pkg/aws has arguments of its own, which cmd/scheduler/aws.go reads.
//
// Provider is the cloud itself: what can be bought, how it is launched, what there is, and how node classes are resolved.
//
// NodeClassKind is a cloud's kind of node class: its names in the API, and the few facts that depend on what is inside its objects (the
// hash, the images). pkg/karpenter/store watches and writes node classes of any kind, with their finalizers, hashes, conditions and events;
// the cloud resolves them.
//
// The package knows no cloud, no client of an API server and no scheduler, so that clouds, controllers and adapters can all import it.
package cloudprovider
