package guard

import (
	"slices"
	"strings"
	"time"
)

// Purchase is what a machine was bought for, as it is recorded on its NodeClaim.
type Purchase struct {
	// Round names the plan that bought it. A breaker opens when half of a round has failed.
	Round string `json:"round"`
	// Workloads whose pods it was bought for; empty: for no pod (NoPod).
	Workloads []Workload `json:"workloads,omitempty"`
	// Moves: these pods run elsewhere, and are to move there.
	Moves bool `json:"moves,omitempty"`
	// Probes are the breakers it is a probe of.
	Probes []Key `json:"probes,omitempty"`
	// When is the time, in seconds since 1970: a NodeClaim of a user may be much older than its machine. Zero: with its NodeClaim.
	When int64 `json:"at,omitempty"`
}

// Bought is a machine as it was bought.
type Bought struct {
	Purchase
	Pool, Class string
	// Images and Zones it may become; one of each once it is launched (Located).
	Images, Zones []string
	At            time.Time
}

// Fault is why a machine failed.
type Fault struct {
	// Machine: the machine itself was no good, whatever pods it was bought for.
	Machine bool
	// Cause names the fault so that those of different workloads can be compared: "taint example.com/agent". Message is for people.
	Cause, Message string
	// Workloads whose pods were thrown off; empty: all it was bought for.
	Workloads []Workload
	// Refused: the API server refused its Node.
	Refused bool
	// Chance: it may be chance. So many rounds of a key are forgiven within an hour.
	Chance int
	// Overtaken: the plan was right when it was made, and something else was true when its machine came. That is chance, and says nothing
	// about a breaker that the machine is a probe of.
	Overtaken bool
}

// Deleted is the fault of a machine that somebody has deleted before it had done work. People delete nodes: what does so again within the
// hour is no person's whim.
func Deleted(message string) *Fault { return &Fault{Cause: "deleted", Message: message, Chance: 1} }

// CauseUninitialized begins the cause of faults of nodes that did not become initialized.
const CauseUninitialized = "not initialized"

// Uninitialized says that a fault's cause is one of these.
func Uninitialized(cause string) bool { return strings.HasPrefix(cause, CauseUninitialized) }

type machine struct {
	Bought
	image, zone string
	// served and failed are the verdict; broken: it failed of a machine fault, otherwise faults are the keys it failed for.
	served, failed, broken bool
	ready                  bool // its node has been Ready
	faults                 []Key
	// worked are the workloads it has done work for, ran those whose pods were Running there.
	worked, ran           []Workload
	initialized, failedAt time.Time
	over                  bool
}

// keys are what a fault of the machine counts for.
func (m *machine) keys(f *Fault, narrow func(m *machine, image string) Key) []Key {
	if f.Machine {
		images := []string{m.image}
		if m.image == "" && len(m.Images) > 0 {
			images = m.Images
		}
		var out []Key
		for _, image := range images {
			out = append(out, narrow(m, image))
		}
		return out
	}
	workloads := f.Workloads
	if len(workloads) == 0 {
		workloads = m.Workloads
	}
	var out []Key
	for _, w := range workloads {
		if k := PodKey(m.Pool, w); !slices.Contains(out, k) {
			out = append(out, k)
		}
	}
	return out
}

// failedOf says that the machine failed of what the key is about.
func (m *machine) failedOf(k Key) bool {
	if k.Machine() {
		return m.broken && m.of(k)
	}
	return slices.Contains(m.faults, k)
}

// up says that the machine looks well to who cares for the key: its node is initialized, or a pod runs there.
func (m *machine) up(k Key) bool {
	switch {
	case k.Machine():
		return !m.initialized.IsZero()
	case k.PoolWide():
		return len(m.ran) > 0
	}
	return slices.Contains(m.ran, k.Workload)
}

// forPods says that the machine was bought for pods.
func (m *machine) forPods() bool {
	return slices.ContainsFunc(m.Workloads, func(w Workload) bool { return w.Namespace != "" })
}

// of says that the machine counts for a key.
func (m *machine) of(k Key) bool {
	switch {
	case k.Machine():
		image := k.Image == "" || k.Image == m.image || m.image == "" && slices.Contains(m.Images, k.Image)
		zone := k.Zone == "" || k.Zone == m.zone || m.zone == "" && slices.Contains(m.Zones, k.Zone)
		return k.Class == m.Class && image && zone
	case k.Pool != m.Pool:
		return false
	}
	return k.PoolWide() || slices.Contains(m.Workloads, k.Workload)
}
