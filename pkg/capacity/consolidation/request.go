package consolidation

import (
	"errors"
	"time"
)

// ErrDemand is why a move is given up whose capacity is needed for pods that wait.
var ErrDemand = errors.New("pods that wait need its capacity")

// Request asks for one pass over the candidates, and for capacity for the moves that are due.
type Request struct {
	// Candidates are all managed nodes, as Propose needs them.
	Candidates []Candidate
	// Pools are the policies, by pool.
	Pools map[string]Policy
	// ProposeOnly: nothing is reserved; the result says which moves would be made.
	ProposeOnly bool
	// Probe: a node may be launched to find out whether such nodes work, also where the spending guard pauses launches and a probe is due.
	Probe bool
}

// Result is what has become of a Request: each candidate is in one of the moves, or is kept.
type Result struct {
	Kept  []Kept
	Moves []Due
	// Took is for how long it was computed.
	Took time.Duration
}

// Due is a move that is due. Unless the request was to propose only, capacity for all of its pods is reserved, or being launched.
type Due struct {
	Move
	// Key names the move while its capacity is reserved.
	Key string
	// Claims are the NodeClaims of its new nodes, by the IDs of these.
	Claims map[string]string
}
