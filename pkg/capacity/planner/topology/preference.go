package topology

// Step is one preference that can be dropped.
type Step int

// required is no preference.
const required Step = -1

// The steps are in Karpenter's order (PK-5), without its first: alternative required terms are considered together here, not one by one.
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
