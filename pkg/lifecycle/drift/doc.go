// Package drift sets and clears the condition Drifted of NodeClaims: whether their node is still what their pool would launch now. The reasons, their
// order and what is exempt from them are Karpenter's, so that both agree on what has drifted.
//
// The pool and the annotations of the node class are read from a cache; what only the cloud knows is one question to it
// (cloudprovider.Drift). A claim is compared when something of its pool or class has changed (Round), and every five minutes besides. If
// something isn't known, the condition stays as it is. Nothing here ends a node.
package drift
