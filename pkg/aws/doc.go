// Package aws is the adapter to EC2. Only it and the packages below it use aws-sdk-go-v2. It knows what can be launched (instance types,
// zones, prices), resolves node classes (subnets, security groups, images, instance profile), launches (launch templates, fleets) and
// manages instances (describe, tag, terminate).
//
// Its results are types of pkg/capacity, and it keeps everything that is read often in memory: InstanceTypes never waits for a
// request. Requests have deadlines, stay below the documented limits of their action, and are batched where EC2 accepts many keys in
// one request.
//
// Package sdk makes the calls and lists them; package policy generates the IAM policy that allows them. Package catalog knows what EC2
// sells. The Provider joins types that each own what they know: classes (what node classes refer to), launcher, instances, exhausted
// (offerings without capacity) and clusterReader (how nodes join). Package interruption reads the queue with interruptions.
//
// An image family is a file, such as bottlerocket.go, and a line in the table of families in family.go.
//
// The package decides nothing: other packages decide which offering to launch, how many, and when to terminate an instance. It knows
// nothing of Pods and Nodes, client-go or the scheduler framework, and it writes nothing to the Kubernetes API: it hands the status of
// a node class to OnNodeClass.
package aws
