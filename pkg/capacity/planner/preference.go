package planner

// step is one preference that can be dropped.
type step int

// required is no preference.
const required step = -1

// The steps are in Karpenter's order (PK-5), without its first: alternative required terms are considered together here, not one by one.
const (
	dropPreferredAffinity step = iota
	dropPreferredAntiAffinity
	dropPreferredTerm
	dropSoftSpread
	toleratePreferNoSchedule
)

// steps are the names of all steps, in order.
var steps = []string{"preferred pod affinity", "preferred pod anti-affinity", "preferred node affinity", "topology spread with ScheduleAnyway",
	"staying off PreferNoSchedule taints"}
