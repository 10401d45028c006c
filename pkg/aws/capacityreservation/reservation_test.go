package capacityreservation

import (
	"testing"
	"time"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"k8s.io/utils/ptr"
)

func TestReservationOf(t *testing.T) {
	now := time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name     string
		c        ec2types.CapacityReservation
		ok       bool
		expiring bool
		market   ec2types.MarketType
	}{
		{"plain", ec2types.CapacityReservation{}, true, false, ""},
		{"a block with an hour left", ec2types.CapacityReservation{ReservationType: "capacity-block", EndDate: ptr.To(now.Add(61 * time.Minute))}, true, false, "capacity-block"},
		{"a block about to end", ec2types.CapacityReservation{ReservationType: "capacity-block", EndDate: ptr.To(now.Add(59 * time.Minute))}, true, true, "capacity-block"},
		{"a plain one about to end", ec2types.CapacityReservation{EndDate: ptr.To(now.Add(time.Minute))}, true, false, ""},
		{"interruptible", ec2types.CapacityReservation{Interruptible: ptr.To(true)}, true, false, "interruptible-capacity-reservation"},
		{"of a kind to come", ec2types.CapacityReservation{ReservationType: "moon"}, false, false, ""},
	} {
		r, _, ok := reservationOf(&tt.c, now)
		if ok != tt.ok || ok && (r.Expiring != tt.expiring || r.Market() != tt.market) {
			t.Errorf("%s: ok %v, expiring %v, market %q", tt.name, ok, r.Expiring, r.Market())
		}
	}
}
