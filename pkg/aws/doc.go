// Package aws is the adapter to EC2. Only it and the packages below it use aws-sdk-go-v2. It knows what can be launched (instance types,
// zones, prices), resolves node classes (subnets, security groups, images, instance profile), launches (launch templates, fleets) and
// manages instances (describe, tag, terminate).
//
// Its results are types of pkg/capacity, and it keeps everything that is read often in memory: InstanceTypes never waits for a
// request. Requests have deadlines, stay below the documented limits of their action, and are batched where EC2 accepts many keys in
// one request.
//
// The packages below it each own a noun. sdk makes the calls and lists them; policy generates the IAM policy that allows them; catalog knows
// what EC2 sells; interruption reads the queue with interruptions. network, placementgroup, capacityreservation and instanceprofile look up
// what node classes refer to, each answer kept as lookup says, and ownership tells which resources belong to this cluster. bootstrap knows how
// an instance becomes a node, nodesize how large that node will be, and drift whether an instance is still what its class would launch;
// launchtemplate and batcher make the requests fewer. unavailable remembers for which offerings there was no capacity.
//
// What is left here joins them: the Provider with classes (node classes and the state of their resolution), launcher and instances.
//
// The package decides nothing: other packages decide which offering to launch, how many, and when to terminate an instance. It knows
// nothing of Pods and Nodes, client-go or the scheduler framework, and it writes nothing to the Kubernetes API: it hands the status of
// a node class to OnNodeClass.
package aws
