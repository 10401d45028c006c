// Package aws is the only package that uses aws-sdk-go-v2. It knows what can be launched (instance types, zones, prices), resolves
// node classes (subnets, security groups, images, instance profile), launches (launch templates, fleets) and manages instances
// (describe, tag, terminate).
//
// Its results are types of pkg/capacity, and it keeps everything that is read often in memory: InstanceTypes never waits for a
// request. Requests have deadlines, stay below the documented limits of their action, and are batched where EC2 accepts many keys in
// one request.
//
// sdk.go lists every call that is made; package policy generates the IAM policy that allows them.
//
// The package decides nothing: other packages decide which offering to launch, how many, and when to terminate an instance. It knows
// nothing of Pods and Nodes, client-go or the scheduler framework, and it writes nothing to the Kubernetes API: it hands the status of
// a node class to OnNodeClass.
package aws
