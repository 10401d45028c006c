package provisioning

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// World is the scheduler's view of the cluster and its real filters. Only one goroutine may use it at a time.
type World interface {
	Filters
	Refresh(ctx context.Context) error
	// Has reports whether the snapshot has a Node of that name.
	Has(node string) bool
	// Nodes returns the snapshot's nodes, each as decorate returns it.
	Nodes(decorate func(*capacity.Node, *corev1.Node) *capacity.Node) []*capacity.Node
}

// Claims are the NodeClaims, written before each launch (the intent log), and the pools they belong to. Their answers come from memory.
type Claims interface {
	// Current returns what is known about a claim, whether or not the log shows it yet, or nil.
	Current(name string) *capacity.Claim
	// All returns all claims that are known, by name.
	All() map[string]*capacity.Claim
	// Problem returns why nothing can be launched at all (a missing CRD), or nil.
	Problem() error
	// Pools returns the pools in the order in which they are tried, each with its usage of its limits.
	Pools(types func(nodeClass string) ([]*capacity.InstanceType, error)) []*capacity.Pool
	// ExpectedTaints returns the taints that nodes of the pool are known to get.
	ExpectedTaints(pool string) []corev1.Taint
	// ArchitecturesOpen records the workloads for which planned nodes may be arm64 although neither pool nor pods say so.
	ArchitecturesOpen([]capacity.OpenArchitecture)
}

// Recorder writes events.
type Recorder interface {
	Pod(ref capacity.PodRef, eventType, reason, note string)
}

// Purchases asks the spending guard what it would say.
type Purchases interface {
	// Preview returns the nodes of a proposal that the spending guard doesn't let us buy, and why. It reserves nothing, but leaves out
	// offers of the other nodes that the guard keeps for later, and notes budgets that are reached.
	Preview(p *Proposal) map[string]capacity.Removal
}

// Requester knows what a claim's instance is needed for. Its methods return at once.
type Requester interface {
	// Needed is asked before a request is recorded; if it reports false, the claim is given up, and why says for what reason.
	Needed(claim string) (yes bool, why string)
	// Failed hears that the claim's launch has failed. It reports whether the claim stays: then the requester tries again.
	Failed(ctx context.Context, c *capacity.Claim, reason, why string) (stays bool)
}

// Committer carries plans out. It is the only way to launch.
type Committer interface {
	// Commit removes from the proposal's plan what can't be launched, writes the rest to the ledger, and launches the new nodes in the
	// background.
	Commit(ctx context.Context, p *Proposal) Outcome
}

// Ownership knows whether anything may be launched now.
type Ownership interface {
	// Hold returns why nothing may be launched because another controller owns nodes and claims, or nil.
	Hold() error
	// TakesOver reports whether what another controller has launched must be read before anything is planned.
	TakesOver() bool
	// RefuseHeld refuses pods while another controller owns nodes and claims.
	RefuseHeld(ctx context.Context, uids []types.UID, why error)
	// LogBroken hears that demand is refused because the intent log is broken.
	LogBroken()
}

// Launches are what is under way for claims. Its methods return at once.
type Launches interface {
	// Cancel deletes a claim that no pod needs any more.
	Cancel(ctx context.Context, claim string)
	// EndUnused terminates instances of a gang that can't be placed, which no other pods took.
	EndUnused(ctx context.Context, claims []string)
}

// Queue puts pods whose gate has opened into the scheduling queue.
type Queue interface {
	Activate(pods []*corev1.Pod)
}

// Recovery takes over what other controllers have launched.
type Recovery interface {
	Readopt(ctx context.Context)
}
