package main

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/chaos"
)

// Devices of dynamic resource allocation: nothing is published about a node that doesn't exist yet.

const withDevices = "dynamicResources: true"

// gpus creates a node class that declares two devices on its only instance type, and the driver.
func gpus(s *chaos.Stage, publishes func(ready time.Duration) bool) *karpv1.NodePool {
	class, pool := chaos.Class("default"), chaos.Pool("default", "default", corev1.LabelInstanceTypeStable+"=c6i.xlarge")
	class.Annotations = map[string]string{"dovetail.sh/devices": "- {instanceTypes: [c6i.xlarge], driver: gpu.example.com, count: 2}"}
	s.Create(class, pool)
	s.Devices(2, publishes)
	return pool
}

// claiming creates a pod with a device, recreated by its controller.
func claiming(s *chaos.Stage, app string) {
	s.Create(chaos.DeviceClaim(app), chaos.Deployment(1, chaos.Template(app, "100m", "128Mi", chaos.Claiming(app))))
}

// The driver publishes a node's devices a minute after the node is Ready. The pods wait for that, on the nodes that are bought for them, and so
// does one that is created meanwhile and gets the device that is left. The product is killed in between.
func TestSceneDevicesShownLate(t *testing.T) {
	quiet(t, chaos.Scene{Program: withArgs(withDevices), Play: func(s *chaos.Stage) {
		gpus(s, func(ready time.Duration) bool { return ready >= time.Minute })
		want := map[string]int{}
		for i := range 3 {
			app := fmt.Sprintf("train%d", i)
			claiming(s, app)
			want[app] = 1
		}
		s.Start()
		s.Until("the machines are there", 5*time.Minute, func() string {
			if n := s.Ready(); n < 2 {
				return fmt.Sprintf("%d are", n)
			}
			return ""
		})
		s.Pass(20 * time.Second)
		s.Kill()
		s.Start()
		s.Pass(10 * time.Second)
		claiming(s, "last")
		want["last"] = 1
		s.Until("they run", 5*time.Minute, s.Running(want))
		s.Pass(time.Hour)
		s.AtMost("machines for four pods, two on each", s.Launched(), 2)
	}})
}

// The driver never publishes what its class declares: a node is tried, and again now and then, and when the driver is fixed the pod runs.
func TestSceneDevicesNeverShown(t *testing.T) {
	var f chaos.Fault
	play(t, chaos.Scene{Program: withArgs(withDevices), Play: func(s *chaos.Stage) {
		pool := gpus(s, func(time.Duration) bool { return !f.Lasts() })
		claiming(s, "train")
		s.Limit(50)
		s.Start()
		s.Pass(day())
		bill(s)
		s.AtLeast("machines in the day", s.Launched(), 1)
		s.AtMost("machines in the day", s.Launched(), 9)
		f.Mend()
		chaos.Change(s, pool, func(p *karpv1.NodePool) { chaos.Retry(p, "1") })
		s.Until("it runs", mended, s.Running(map[string]int{"train": 1}))
	}})
}

// With the setting off nothing is bought for pods with claims, as ever.
func TestSceneDevicesOff(t *testing.T) {
	play(t, chaos.Scene{Play: func(s *chaos.Stage) {
		gpus(s, func(time.Duration) bool { return true })
		claiming(s, "train")
		s.Start()
		s.Pass(30 * time.Minute)
		s.AtMost("machines", s.Launched(), 0)
	}})
}
