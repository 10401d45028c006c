package cloudprovider

import (
	"context"
	"time"
)

// DriftReason is why a node is no longer what would be launched now: the reason of a claim's condition Drifted, in Karpenter's words.
type DriftReason string

// The reasons that don't depend on the cloud. A cloud adds its own.
const (
	// NodePoolDrifted: the pool's template has another hash than the one that the claim was made from.
	NodePoolDrifted DriftReason = "NodePoolDrifted"
	// RequirementsDrifted: the pool's requirements don't allow the labels of the claim.
	RequirementsDrifted DriftReason = "RequirementsDrifted"
	// InstanceTypeNotFound: the cloud no longer sells the instance type in the claim's zone and by its capacity type.
	InstanceTypeNotFound DriftReason = "InstanceTypeNotFound"
	// NodeClassDrift: the node class has another hash than the one that the claim was made from.
	NodeClassDrift DriftReason = "NodeClassDrift"
)

// Drift tells whether nodes differ from what their node class is resolved to.
type Drift interface {
	// Drifted returns InstanceTypeNotFound or a reason of the cloud's own; "": the node is what would be launched now. An error is why that
	// can't be told, and wraps capacity.ErrInstanceNotFound if the instance doesn't exist. Drifted answers from memory, except where only the
	// present state of the instance decides.
	Drifted(ctx context.Context, n LaunchedNode) (DriftReason, error)
	// ClusterCA returns the certificate with which nodes verify the API server: it is part of a node class's hash.
	ClusterCA() (ca string, known bool)
}

// LaunchedNode is what a claim says of the node that was launched for it.
type LaunchedNode struct {
	// NodeClass is the one that its pool refers to now.
	NodeClass string
	// InstanceID and ImageID are those of its instance.
	InstanceID, ImageID string
	// Labels are the claim's: instance type, zone, capacity type and whatever else the launch decided.
	Labels map[string]string
	// TypeCounts: the node is old enough for InstanceTypeNotFound.
	TypeCounts bool
}

// TypeDriftAge is how old a claim must be before InstanceTypeNotFound counts, as in Karpenter: what the cloud says of a new type may lag.
const TypeDriftAge = time.Hour
