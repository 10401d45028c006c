package topology

// Step is one preference that can be dropped.
type Step int

// required is no preference.
const required Step = -1

// The steps are in Karpenter's order. Its first step is missing: it drops required node terms one by one, while here all are considered together.
const (
	dropPreferredAffinity Step = iota
	dropPreferredAntiAffinity
	DropPreferredTerm
	dropSoftSpread
	ToleratePreferNoSchedule
)

// Steps are the names of all steps, in order.
var Steps = []string{"preferred pod affinity", "preferred pod anti-affinity", "preferred node affinity", "topology spread with ScheduleAnyway",
	"staying off PreferNoSchedule taints"}
