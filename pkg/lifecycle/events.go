package lifecycle

// Reasons of events; Karpenter's names where it has one.
const (
	reasonUnregisteredTaintMissing = "UnregisteredTaintMissing"
	reasonEvicted                  = "Evicted"
	reasonDisrupted                = "Disrupted"
	reasonFailedDraining           = "FailedDraining"
	reasonAwaitingVolumes          = "AwaitingVolumeDetachment"
	reasonGracePeriodExpiring      = "TerminationGracePeriodExpiring"
	reasonTerminationFailed        = "FailedTermination"
	reasonInconsistent             = "FailedConsistencyCheck"

	reasonOtherName           = "RegisteredUnderOtherName"
	reasonNodeRecreated       = "NodeRecreated"
	reasonLaunchTimeout       = "LaunchTimeout"
	reasonRegistrationTimeout = "RegistrationTimeout"
	reasonInitTimeout         = "InitializationTimeout"
	reasonInstanceEnded       = "InstanceEnded"
	reasonNodeMissing         = "NodeMissing"
	reasonLapsed              = "ReservationOver"
)
