package cloudprovider

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// RepairPolicy says by which condition of their Node nodes are unhealthy, and for how long that is tolerated.
type RepairPolicy struct {
	Condition  corev1.NodeConditionType
	Status     corev1.ConditionStatus
	Toleration time.Duration
}

// InstanceStatus is the Condition of the policy for instances that the cloud calls impaired. No Node has such a condition: Health tells it.
const InstanceStatus corev1.NodeConditionType = "InstanceStatus"

// Health tells which instances fail the cloud's own checks.
type Health interface {
	// Impaired returns the instances that fail a check now, by their IDs, from memory. Nobody may change it.
	Impaired() map[string]Impairment
}

// Impairment is what the cloud says of an instance that fails its checks.
type Impairment struct {
	// Check is what fails, as a clause for people: "its system status check".
	Check string
	Since time.Time
}
