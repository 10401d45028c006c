package lifecycle

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func TestReservationOver(t *testing.T) {
	reserved := map[string]string{
		"karpenter.sh/capacity-type": "reserved", "karpenter.k8s.aws/capacity-reservation-id": "cr-1",
		"karpenter.k8s.aws/capacity-reservation-type": "default", "karpenter.k8s.aws/capacity-reservation-interruptible": "false",
	}
	onDemand := map[string]string{"karpenter.sh/capacity-type": "on-demand"}
	for _, tc := range []struct {
		name  string
		shown func(*capacity.Instance)
		age   time.Duration
		want  map[string]string
	}{
		{"over", func(i *capacity.Instance) { i.CapacityType = "on-demand" }, lapseAge, onDemand},
		{"not over", func(i *capacity.Instance) { i.CapacityType = "reserved" }, time.Hour, reserved},
		{"too young to be sure", func(i *capacity.Instance) { i.CapacityType = "on-demand" }, lapseAge - time.Second, reserved},
		{"booting", func(i *capacity.Instance) { i.CapacityType, i.State = "on-demand", capacity.InstancePending }, time.Hour, reserved},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.up("a", func(c *karpv1.NodeClaim) { maps.Copy(c.Labels, reserved) })
			tc.shown(w.cloud.instances["i-a"])
			w.clock.Step(tc.age)
			for range 2 {
				w.sync()
				if _, err := w.c.reconcile(w.ctx, key{}); err != nil {
					t.Fatal(err)
				}
			}
			w.step()
			claim, node := w.claim("a"), w.node(w.cloud.instances["i-a"].NodeName)
			for what, labels := range map[string]map[string]string{"claim": claim.Labels, "Node": node.Labels} {
				got := map[string]string{}
				for k, v := range labels {
					if _, about := reserved[k]; about {
						got[k] = v
					}
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("labels of the %s (-want +got):\n%s", what, diff)
				}
				if labels[karpv1.NodePoolLabelKey] != "default" {
					t.Errorf("the %s lost its other labels: %v", what, labels)
				}
			}
			told := 0
			for _, e := range w.events {
				if e == "a Normal ReservationOver: Reservation cr-1 no longer covers the instance: it is an on-demand one now" {
					told++
				}
			}
			if over := tc.want["karpenter.sh/capacity-type"] == "on-demand"; over != (told == 1) || told > 1 {
				t.Errorf("told %d times; events %q", told, w.events)
			}
		})
	}
}
