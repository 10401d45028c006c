package guard

import (
	"slices"
	"strings"
	"time"
)

// Purchase is what a machine was bought for, as recorded on its NodeClaim.
type Purchase struct {
	// Round names the plan that bought the machine. A breaker opens when half of a round has failed.
	Round string `json:"round"`
	// Workloads are those whose pods it was bought for; empty: no pod (NoPod).
	Workloads []Workload `json:"workloads,omitempty"`
	// Moves: the machine is a replacement; its pods still run on other nodes.
	Moves bool `json:"moves,omitempty"`
	// Probes are the keys of the breakers that it is a probe of.
	Probes []Key `json:"probes,omitempty"`
	// When is the time of the purchase, in seconds since 1970: a user's NodeClaim may be much older than its machine. Zero: when the
	// NodeClaim was created.
	When int64 `json:"at,omitempty"`
}

// Bought describes a machine at the time of its purchase.
type Bought struct {
	Purchase
	Pool, Class string
	// Images and Zones are those it may get. Once it is launched it has one of each (Locate).
	Images, Zones []string
	At            time.Time
}

// Fault is why a machine failed.
type Fault struct {
	// Machine: the machine itself failed, whatever pods it was bought for.
	Machine bool
	// Cause names the fault, so that faults of different workloads can be compared: "taint example.com/agent". Message is for people.
	Cause, Message string
	// Workloads are those whose pods were thrown off; empty: all that it was bought for.
	Workloads []Workload
	// Refused: the API server refused its Node.
	Refused bool
	// Chance: the failure may be chance, so for each key up to this number of rounds are forgiven within an hour; 0: it isn't chance.
	Chance int
	// Overtaken: the plan was right when it was made, but the cluster had changed by the time the machine was there. That counts as chance,
	// and tells nothing about a breaker that the machine is a probe of.
	Overtaken bool
	// Waited: a pod that was planned on the machine's node has waited, until a time limit, for something that it needs there, such as a device. That
	// is a failure for its workload even if the machine has served other workloads.
	Waited bool
}

// Deleted returns the fault of a machine that was deleted before it served. People delete nodes, so one round is forgiven; a second one
// within the hour is hardly a coincidence.
func Deleted(message string) *Fault { return &Fault{Cause: "deleted", Message: message, Chance: 1} }

// CauseUninitialized is the prefix of the causes for nodes that did not become initialized.
const CauseUninitialized = "not initialized"

// Uninitialized reports whether a cause begins with CauseUninitialized: the node did not become initialized.
func Uninitialized(cause string) bool { return strings.HasPrefix(cause, CauseUninitialized) }

type machine struct {
	Bought
	image, zone string
	// served and failed are the verdict. broken: it failed for a machine fault; otherwise faults are the keys it failed for.
	served, failed, broken bool
	ready                  bool // its node has been Ready at some time
	faults                 []Key
	// worked are the workloads it has served, ran those whose pods were Running there.
	worked, ran           []Workload
	initialized, failedAt time.Time
	over                  bool // it is gone, or nothing more is reported about it (End)
}

// keys returns the keys that a fault of the machine counts for.
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

// failedOf reports whether the machine has failed for what the key is about.
func (m *machine) failedOf(k Key) bool {
	if k.Machine() {
		return m.broken && m.of(k)
	}
	return slices.Contains(m.faults, k)
}

// up reports whether the machine looks well as far as the key is concerned: for machine faults its node is initialized, otherwise a pod
// runs there.
func (m *machine) up(k Key) bool {
	switch {
	case k.Machine():
		return !m.initialized.IsZero()
	case k.PoolWide():
		return len(m.ran) > 0
	}
	return slices.Contains(m.ran, k.Workload)
}

// forPods reports whether the machine was bought for pods.
func (m *machine) forPods() bool {
	return slices.ContainsFunc(m.Workloads, func(w Workload) bool { return w.Namespace != "" })
}

// of reports whether the machine counts for a key.
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
