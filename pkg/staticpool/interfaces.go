package staticpool

import (
	"context"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// Claims are the NodeClaims.
type Claims interface {
	// Current returns what is known about a claim, whether or not the API server's watch shows it yet, or nil.
	Current(name string) *capacity.Claim
	// All returns, by name, the cached claims merged with those that only this process knows yet.
	All() map[string]*capacity.Claim
	// Known returns, by name, the claims that this process has written or is about to write.
	Known() map[string]*capacity.Claim
	// StaticClaims asks the API server, past every cache, how many nodes a static pool wants and which claims it has; the value is true for
	// those that are being deleted. there is false if the pool is gone or being deleted.
	StaticClaims(ctx context.Context, pool string) (replicas int64, there bool, claims map[string]bool, err error)
	Delete(ctx context.Context, name, uid string) error
	// TellPool records an event on a NodePool.
	TellPool(pool, eventType, reason, note string)
}
