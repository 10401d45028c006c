package disruption

import (
	"time"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/interruptions"
)

const (
	reasonInterrupted = "Interrupted"
	// ReasonInstanceEnded is the reason that Config.Ending gets when an instance ends that Dovetail has not terminated.
	ReasonInstanceEnded = "InstanceEnded"
)

// interruption: the cloud takes the instance back, has scheduled maintenance that stops, restarts or retires it, or the instance has ended.
type interruption struct{}

func (interruption) budget() karpv1.DisruptionReason { return "" }

func (interruption) decide(m *candidate, _ time.Time) (*decision, error) {
	at, kind, ok := interruptions.Of(m.claim)
	if !ok {
		return nil, nil
	}
	d := &decision{candidate: m, reason: reasonInterrupted, at: at, cloud: true, forced: kind != capacity.MaintenanceScheduled}
	if d.message = interruptions.Why(kind); d.message == "" {
		d.message = "it is interrupted"
	}
	if kind == capacity.MachineStopping || kind == capacity.MachineTerminating {
		d.ending = ReasonInstanceEnded
	}
	return d, nil
}
