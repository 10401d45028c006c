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
	reasonTaggingFailed            = "FailedTagging"
	reasonInconsistent             = "FailedConsistencyCheck"

	reasonOtherName           = "RegisteredUnderOtherName"
	reasonNodeRecreated       = "NodeRecreated"
	reasonNodeDeleted         = "NodeDeleted"
	reasonLaunchTimeout       = "LaunchTimeout"
	reasonLaunchDelayed       = "LaunchDelayed" // of a claim's Launched condition: the message is that of the last failed launch call
	reasonPaused              = "Paused"        // of a claim's Launched condition: the spending guard doesn't let it be launched
	reasonRegistrationTimeout = "RegistrationTimeout"
	reasonInitTimeout         = "InitializationTimeout"
	reasonInitDelayed         = "InitializationDelayed"
	reasonInstanceEnded       = "InstanceEnded"
	reasonNodeMissing         = "NodeMissing"
	reasonLapsed              = "ReservationOver"
)
