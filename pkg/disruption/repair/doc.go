// Package repair decides which nodes are unhealthy, and whether so many are that it isn't the nodes' fault. It knows values only: Nodes, what the
// cloud says of their instances, and the time.
//
// It doesn't replace nodes: pkg/disruption does.
package repair
