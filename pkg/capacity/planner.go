package capacity

// Planner plans. It keeps its catalogue of offers between plans as long as pools and their types stay the same, the types
// by identity: who changes a type hands over a new slice. It is not safe for use by several goroutines at a time.
type Planner struct{ memory memory }

// NewPlanner makes a planner that has seen nothing yet.
func NewPlanner() *Planner { return &Planner{} }

// Decide plans once.
func Decide(view *View, opts Options) *Plan { return NewPlanner().Plan(view, opts) }

// maxAttempts bounds how often a plan is made anew with what the last one has taught.
const maxAttempts = 8

// Plan decides where each pod of the demand goes and what has to be bought for it. It is a pure function of its
// arguments.
//
//  1. Demand is merged into units of identical pods; pools and types into a catalogue of bins.
//  2. Pods and constraints on existing nodes are counted.
//  3. Units fill the room that is there or on its way, in order of the demand.
//  4. What is left is packed on new nodes, pools of the highest weight first.
//  5. Units with something left give up a preference, and it starts again at 3 for them.
//  6. Each new node becomes the set of offers that hold its pods.
//  7. Placements are put in an order in which each is allowed with all nodes present. What that teaches (a domain
//     nobody had thought of, a gang that is short) starts it again at 3 for all.
func (p *Planner) Plan(view *View, opts Options) *Plan {
	r := newRun(view, &opts, &p.memory)
	// What is learned hardly depends on how well nodes are packed, so effort waits until there is nothing to learn.
	hasty := opts.Effort > 0 && r.mayLearn()
	for attempt := 1; ; attempt++ {
		r.reset()
		if r.effort = opts.Effort; hasty {
			r.effort = 0
		}
		r.decide()
		r.shapes()
		order := r.order()
		switch learned := attempt < maxAttempts && r.learn(); {
		case learned:
		case hasty:
			hasty = false
		default:
			return r.emit(order)
		}
	}
}
