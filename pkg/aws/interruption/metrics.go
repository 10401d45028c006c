package interruption

import (
	"strconv"
	"time"

	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/karpentermetrics"
)

// Types of messages that aren't an interruption, as metrics name them.
const (
	messageOther   = "no_op"
	messageUnknown = "unknown"
)

var confirmations = metrics.NewCounterVec(&metrics.CounterOpts{
	Namespace: "dovetail", Subsystem: "aws", Name: "interruption_confirmations_total",
	Help: "What EC2 says about messages of the interruption queue, by kind and outcome (confirmed; foreign: not an instance of this cluster; unconfirmed: EC2 can't tell, and the message was believed; delayed: not believed yet, because too many were; denied: EC2 says otherwise, the message will be received again; refuted: EC2 still says otherwise, the message was ignored).", StabilityLevel: metrics.ALPHA,
}, []string{"kind", "outcome"})

func init() { legacyregistry.MustRegister(confirmations) }

// messageTypes are the names of interruptions in Karpenter's metrics.
var messageTypes = map[capacity.InterruptionKind]string{
	capacity.SpotInterrupted: "spot_interrupted", capacity.SpotRebalance: "rebalance_recommendation",
	capacity.ReservationInterrupted: "capacity_reservation_interrupted", capacity.MaintenanceScheduled: "scheduled_change",
	capacity.MachineStopping: "instance_stopped", capacity.MachineTerminating: "instance_terminated",
}

// sentAt is the attribute with the time at which a message was sent.
const sentAt = sqstypes.MessageSystemAttributeNameSentTimestamp

// ages returns for how long the messages have been on the queue, of those that say when they were sent.
func ages(messages []sqstypes.Message, now time.Time) []time.Duration {
	out := make([]time.Duration, 0, len(messages))
	for i := range messages {
		if ms, err := strconv.ParseInt(messages[i].Attributes[string(sentAt)], 10, 64); err == nil {
			out = append(out, max(0, now.Sub(time.UnixMilli(ms))))
		}
	}
	return out
}

// countDeleted counts messages that were handled and deleted.
func (q *Queue) countDeleted(messages []sqstypes.Message) {
	karpentermetrics.MessagesDeleted(len(messages), ages(messages, q.clock.Now()))
}
