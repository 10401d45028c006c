package ec2

import (
	"net/http"
	"strings"
	"time"
)

// managedResources is the path of the resources that Application Recovery Controller manages.
const managedResources = "/managedresources/"

// Shift is a zonal shift of the cluster's traffic.
type Shift struct {
	ZoneID string
	// Expires is when it ends; zero: it is an autoshift of AWS's, which ends when AWS says so.
	Expires time.Time
	// NotApplied: another shift is.
	NotApplied bool
}

// SetShifts replaces the zonal shifts of the cluster.
func (s *Sim) SetShifts(shifts ...Shift) {
	s.with(func(w *world) { w.shifts = shifts })
}

func (w *world) getManagedResource(r *Request) (any, error) {
	arn := strings.TrimPrefix(r.path, managedResources)
	if arn != w.arn("eks", "cluster/"+w.cfg.Cluster) {
		return nil, &apiError{Code: "ResourceNotFoundException", Message: "The resource " + arn + " is not registered.", Status: http.StatusNotFound}
	}
	weights, zonal, auto := map[string]float64{}, []any{}, []any{}
	for _, z := range w.shifts {
		status := "APPLIED"
		if z.NotApplied {
			status = "NOT_APPLIED"
		} else {
			weights[z.ZoneID] = 0
		}
		switch {
		case z.Expires.IsZero():
			auto = append(auto, map[string]any{"awayFrom": z.ZoneID, "appliedStatus": status, "startTime": float64(w.now.Unix())})
		case z.Expires.After(w.now):
			zonal = append(zonal, map[string]any{"awayFrom": z.ZoneID, "appliedStatus": status, "startTime": float64(w.now.Unix()),
				"expiryTime": float64(z.Expires.UnixMilli()) / 1000, "comment": "simulated", "resourceIdentifier": arn, "zonalShiftId": z.ZoneID})
		}
	}
	return map[string]any{"arn": arn, "name": w.cfg.Cluster, "appliedWeights": weights, "zonalShifts": zonal, "autoshifts": auto}, nil
}
