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

	reasonOtherName           = "RegisteredUnderOtherName"
	reasonNodeRecreated       = "NodeRecreated"
	reasonLaunchTimeout       = "LaunchTimeout"
	reasonRegistrationTimeout = "RegistrationTimeout"
	reasonInstanceEnded       = "InstanceEnded"
	reasonNodeMissing         = "NodeMissing"
	reasonGarbage             = "InstanceCollected"
)
