package disruption

// Reasons of events, Karpenter's names.
const (
	reasonBlocked     = "DisruptionBlocked"
	reasonTerminating = "DisruptionTerminating"

	reasonDryRun  = "DisruptionDryRun"
	reasonReplace = "ReplacementPlanned"
	reasonNoRoom  = "ReplacementMissing"

	reasonRepairBlocked = "NodeRepairBlocked" // Karpenter's, too

	reasonMove             = "ConsolidationPlanned"
	reasonMoveGivenUp      = "ConsolidationGivenUp"
	reasonSurge            = "MovedByRollout"
	reasonSurgeGivenUp     = "MoveByRolloutGivenUp"
	reasonRollOutPaused    = "RollOutPaused"
	reasonUnconsolidatable = "Unconsolidatable"
)
