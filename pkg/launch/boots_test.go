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
	w.parts.restorer.restore(c, nil, nil)
	w.reservations.Step(func(l *ledger.Ledger, now time.Time) {
		l.Tick(now.Add(time.Second))
		if f := l.InFlight(); len(f) != 1 || f[0].Late {
			t.Errorf("in flight: %+v", f)
		}
	})
}

func TestNodesThatBootAlike(t *testing.T) {
	node := func(os string, devices ...corev1.ResourceName) *capacity.Node {
		n := &capacity.Node{Labels: map[string]string{corev1.LabelOSStable: os}, Allocatable: capacity.Resources{corev1.ResourceCPU: 1}}
		for _, d := range devices {
			n.Allocatable[d] = 1
		}
		return n
	}
	linux := bootsAs("pool", "class", node("linux"))
	for name, other := range map[string]string{
		"another pool":             bootsAs("other", "class", node("linux")),
		"another class":            bootsAs("pool", "other", node("linux")),
		"another operating system": bootsAs("pool", "class", node("windows")),
		"an image with a driver":   bootsAs("pool", "class", node("linux", "nvidia.com/gpu")),
	} {
		if other == linux {
			t.Errorf("%s: boots like the others", name)
		}
	}
	bigger := node("linux")
	bigger.Allocatable[corev1.ResourceCPU] = 64
	if bootsAs("pool", "class", bigger) != linux {
		t.Error("a bigger one boots differently")
	}
}
