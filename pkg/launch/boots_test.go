package launch

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
)

// The process was down for an hour. A node that was launched before may have registered meanwhile, which this process has not seen yet: if
// it were considered late, another node would be bought for the next pods.
func TestNodeOfBeforeTheRestartIsNotLate(t *testing.T) {
	w := newWorld(t)
	w.build()
	c := &capacity.Claim{Name: "c", Pool: "pool", CreatedAt: time.Now().Add(-time.Hour), Launched: true, Allocatable: capacity.Resources{corev1.ResourceCPU: 1000}}
	w.parts.restorer.node(c, nil, nil)
	w.reservations.Step(func(l *ledger.Ledger, now time.Time) {
		l.Tick(now.Add(time.Second))
		if f := l.InFlight(); len(f) != 1 || f[0].Late {
			t.Errorf("in flight: %+v", f)
		}
	})
}
