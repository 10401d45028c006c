package cloudprovider

import (
	"context"

	"k8s.io/utils/clock"
)

// Cloud is a cloud as its folder exports it, and cmd/scheduler starts with it.
type Cloud struct {
	Name      string // as metrics name it
	NodeClass NodeClassKind
	// New returns the provider. It makes no request.
	New func(ctx context.Context, s Settings) (Provider, error)
}

// Settings are what any cloud's provider is made from.
type Settings struct {
	// ClusterName is a tag of everything that is launched, and so is ManagedBy, the name of this Dovetail, if there are several in the cluster.
	ClusterName, ManagedBy string
	// Region, and how nodes join the cluster, are as in the arguments. What is empty there, the cloud finds out itself.
	Region, ClusterEndpoint, ClusterCABundle, ClusterCIDR string
	// KubernetesVersion is the API server's, major.minor; empty: it couldn't be asked. ServerVersion asks for it again.
	KubernetesVersion string
	ServerVersion     func(ctx context.Context) (string, error)
	// Hold returns why nothing may be changed now, or nil.
	Hold func() error
	// Synced reports whether the provider has been given all node classes.
	Synced func() bool
	Clock  clock.WithTicker
}
