package chaos

import (
	"fmt"
	"strings"

	"github.com/dovetail-scheduler/dovetail/test/kubeapi"
)

// point is a moment in a launch or a termination: before a call has its effect, or after it, when its answer is lost.
type point struct {
	call  string // "create nodeclaims", "CreateFleet"
	after bool
}

func (p point) String() string {
	if p.after {
		return "after " + p.call
	}
	return "before " + p.call
}

// points are the moments at which a process is killed: the calls that launches and terminations consist of, in order.
var points = pointsOf(
	// A launch.
	"create nodeclaims", "CreateLaunchTemplate", "patch nodeclaims", "CreateFleet", "patch nodeclaims/status", "DescribeInstances", "create nodes",
	"create pods/binding", "CreateTags",
	// A termination.
	"delete nodeclaims", "patch nodes", "create pods/eviction", "TerminateInstances", "delete nodes", "delete pods",
)

// Points returns the names under which kills at them are counted.
func Points() (out []string) {
	for _, p := range points {
		out = append(out, "kill "+p.String())
	}
	return out
}

func pointsOf(calls ...string) (out []point) {
	for _, c := range calls {
		out = append(out, point{c, false}, point{c, true})
	}
	return out
}

// named returns the name of a call to the API server among points.
func named(c *kubeapi.Call) string {
	return fmt.Sprintf("%s %s", c.Verb, strings.Trim(c.Resource.Resource+"/"+c.Sub, "/"))
}
