package livecluster

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Renewed returns when a Lease was last renewed; false: it can't be read, or nobody has had it yet. A missing right is a warning.
func (r *Reader) Renewed(ctx context.Context, into *Snapshot, namespace, name string) (time.Time, bool) {
	raw, err := r.rest.Get().AbsPath("/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases/" + name).Do(ctx).Raw()
	if apierrors.IsForbidden(err) {
		into.Warnings = append(into.Warnings, fmt.Sprintf("you may not get Lease %s/%s, so that it isn't known whether the scheduler runs", namespace, name))
	}
	lease := &coordinationv1.Lease{}
	if err != nil || json.Unmarshal(raw, lease) != nil || lease.Spec.RenewTime == nil {
		return time.Time{}, false
	}
	return lease.Spec.RenewTime.Time, true
}
