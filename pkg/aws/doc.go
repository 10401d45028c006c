// Package aws is the one home of aws-sdk-go-v2: what can be bought (instance types, zones, prices), what a node class
// means (subnets, security groups, images, instance profile), buying it (launch templates, fleets) and what became of
// it (describe, tag, terminate).
//
// It answers in the words of pkg/capacity and keeps everything that is read often in memory: InstanceTypes never waits
// for a request. Requests have deadlines, stay below the documented limits of their action, and are batched where EC2
// lets many callers share one.
//
// sdk.go lists every call that is made; package policy makes the IAM policy that allows them.
//
// It is not here to decide anything: which offer, how many, when to end an instance is said by others. It knows nothing
// of Pods and Nodes, of client-go or the scheduler framework, and it writes nothing to the Kubernetes API: the status
// of a node class is handed to OnNodeClass.
package aws
