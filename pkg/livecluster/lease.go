package livecluster

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Renewed returns when a Lease was last renewed; zero: it can't be read, or nobody has had it yet. An error means that the user may not get it.
func (r *Reader) Renewed(ctx context.Context, namespace, name string) (time.Time, error) {
	raw, err := r.rest.Get().AbsPath("/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases/" + name).Do(ctx).Raw()
	if apierrors.IsForbidden(err) {
		return time.Time{}, fmt.Errorf("you may not get Lease %s/%s, so that it isn't known whether the scheduler runs; a ClusterRole that allows it: docs/why.md", namespace, name)
	}
	lease := &coordinationv1.Lease{}
	if err != nil || json.Unmarshal(raw, lease) != nil || lease.Spec.RenewTime == nil {
		return time.Time{}, nil
	}
	return lease.Spec.RenewTime.Time, nil
}
