package livecluster

import (
	"context"
	"encoding/json"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// Renewed returns when a Lease was last renewed; false: it can't be read, or nobody has had it yet.
func (r *Reader) Renewed(ctx context.Context, namespace, name string) (time.Time, bool) {
	raw, err := r.rest.Get().AbsPath("/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases/" + name).Do(ctx).Raw()
	lease := &coordinationv1.Lease{}
	if err != nil || json.Unmarshal(raw, lease) != nil || lease.Spec.RenewTime == nil {
		return time.Time{}, false
	}
	return lease.Spec.RenewTime.Time, true
}
