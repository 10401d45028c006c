package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/test/script"
)

// The stories in testdata/script: events in, effects out. docs/development.md says how to write one. After each step the ledger's
// invariants hold, too.
func TestScripts(t *testing.T) {
	script.Run(t, "testdata/script/*.txt", func(t *testing.T) script.Do {
		s := newStory()
		return func(step script.Step) ([]string, error) {
			lines, err := s.do(step)
			if bad := check(s.ledger); bad != nil {
				t.Errorf("after %s %q: %v\n%s", step.Name, step.Args, bad, s.ledger)
			}
			return lines, err
		}
	})
}

// story is what a script is about: a ledger, and what the API server would have on record.
type story struct {
	ledger  *Ledger
	now     time.Time
	classes map[string]*capacity.Class
	claims  []string                   // in the order in which they were added
	records map[string][]capacity.Slot // of claims
	plans   int
	out     []string // of this step
}

func newStory() *story {
	return &story{ledger: New(), now: time.Unix(0, 0), classes: map[string]*capacity.Class{}, records: map[string][]capacity.Slot{}}
}

// action is one kind of step. least is how many arguments it needs.
type action struct {
	name, usage string
	least       int
	do          func(s *story, args arguments) error
}

// actions are the steps of a script. A pod is called NAME-NUMBER, and its equivalence class NAME. POD@NODE is a pod's placement on a
// Node or on a NodeClaim, next:NAME@NODE one for the next pod that the owner of a class creates; placements joined by + are a group:
// their pods start together.
var actions = []action{
	{"class", "NAME [cpu=500m] [priority=10] [bind=registered|ready|initialized] [tolerates=KEY] [driver=NAME] [owner=UID] [byothers]", 1, (*story).class},

	{"submit", "POD...: the scheduler finds no node for them", 1, (*story).submit},
	{"created", "POD...: their controller has created them, and the scheduler hasn't tried them yet", 1, (*story).created},
	{"join", "POD...: another member of their gang is planned for", 1, (*story).join},
	{"taken", "POD NODE: another scheduler has bound it", 2, (*story).taken},
	{"deleted", "POD...: they were deleted, or have ended", 1, (*story).deleted},

	{"node", "CLAIM [daemon=NAMESPACE/NAME] [cpu=100m]: a NodeClaim is about to be written; cpu is what the DaemonSet's pod requests", 1, (*story).node},
	{"commit", "PLACEMENT...: a plan becomes reservations; existing Nodes in it become known", 1, (*story).commit},
	{"refuse", "POD... REASON [retry]: the plan has nothing for them; retry: the reason may pass by itself", 2, (*story).refuse},
	{"postpone", "POD TIME REASON: preemption, or a later attempt, may help", 3, (*story).postpone},
	{"await", "POD...: they were refused only until a plan's first nodes show whether they work", 1, (*story).await},
	{"changed", ": pools or offerings have changed", 0, (*story).changed},
	{"replan", "POD CLAIM REASON: the claim's node has turned out not to suit the pod", 3, (*story).replan},
	{"reassign", "POD@NODE... [launched]: capacity that has become free goes to pods that wait", 1, (*story).reassign},
	{"replace", "NODE TIME next:NAME@NODE...: capacity for the pods that will replace those of a node, for that time", 3, (*story).replace},
	{"release", "NODE: the node stays; nothing replaces its pods", 1, (*story).release},

	{"buffers", "[BUFFER=N]...: these are all CapacityBuffers, with so many chunks of the class of that name", 0, (*story).buffers},
	{"keep", "BUFFER@NODE...: a plan for chunks becomes reservations", 1, (*story).keep},
	{"shift", "NODE BUFFER@NODE...: the chunks of a node fit on others", 2, (*story).shift},
	{"sift", "BUFFER NODE N [misfit]: so many of its chunks don't fit on the node any more; misfit: no pod took their place", 3, (*story).sift},
	{"giveup", "NODE: it has to end, so its chunks are dropped", 1, (*story).giveup},
	{"state", ": what has become of the chunks", 0, (*story).state},

	{"launch", "CLAIM...: the fleet request for them is about to be sent", 1, (*story).launch},
	{"name", "CLAIM NODE [id=PROVIDERID]: its instance is known, and its Node is about to be created", 2, (*story).name},
	{"cached", "NODE [registered|ready|initialized] [taint=KEY:EFFECT] [driver=NAME] [id=PROVIDERID]: the scheduler's cache has it", 1, (*story).cached},
	{"uncached", "NODE: the Node is gone from the scheduler's cache", 1, (*story).uncached},
	{"lost", "CLAIM REASON [exhausted]: it ends without a usable node; exhausted: the cloud had no capacity", 2, (*story).lost},
	{"cordon", "NODE: nothing may go there", 1, (*story).cordon},
	{"uncordon", "NODE", 1, (*story).uncordon},
	{"remove", "NODE [initialized]: its removal has begun", 1, (*story).remove},
	{"daemon", "NODE NAMESPACE/NAME: the DaemonSet's pod is bound there", 2, (*story).daemon},

	{"cycle", "POD: its scheduling cycle asks where it may go", 1, (*story).cycle},
	{"filter", "POD NODE [used=1] [allocatable=2]: may it go there, as far as the ledger is concerned? In CPUs", 2, (*story).filter},
	{"evicts", "POD: may other pods be evicted for it?", 1, (*story).evicts},
	{"reserve", "POD NODE: the scheduler assumes it there", 2, (*story).reserve},
	{"unreserve", "POD NODE: the binding has failed", 2, (*story).unreserve},
	{"bound", "POD NODE: the binding is written", 2, (*story).bound},
	{"bind", "POD [NODE]: a cycle that succeeds; on that node, if the pod may go to any", 1, (*story).bind},

	{"wait", "TIME: it passes, and the ledger is asked every second what has reached its limit", 1, (*story).wait},
	{"record", ": reservations are written to the NodeClaims, as after each commit to the claims of that plan", 0, (*story).record},
	{"restart", ": another process becomes the leader, and reads the records of claims that were launched", 0, (*story).restart},
	{"show", ": the ledger, a line for each node and pod", 0, (*story).show},
}

func (s *story) do(step script.Step) ([]string, error) {
	i := slices.IndexFunc(actions, func(a action) bool { return a.name == step.Name })
	if i < 0 {
		var all strings.Builder
		for _, a := range actions {
			fmt.Fprintf(&all, "\n    %s %s", a.name, a.usage)
		}
		return nil, fmt.Errorf("there is no such step, but there are:%s", all.String())
	}
	args := parseArguments(step.Args)
	if len(args.names) < actions[i].least {
		return nil, fmt.Errorf("usage: %s %s", actions[i].name, actions[i].usage)
	}
	s.out = nil
	err := actions[i].do(s, args)
	s.effects("")
	return s.out, err
}

// effects says what the caller of the ledger has to do now.
func (s *story) effects(when string) {
	say := func(what string, names ...string) {
		if len(names) > 0 {
			s.say("%s%s %s", when, what, strings.Join(names, " "))
		}
	}
	pods := func(refs []capacity.PodRef) (names []string) {
		for _, ref := range refs {
			names = append(names, ref.Name)
		}
		return names
	}
	e := s.ledger.Take()
	say("activate", pods(e.Activate)...)
	say("delete the unlaunched", e.Cancel...)
	say("terminate", e.End...)
	if e.Plan {
		var queued []capacity.PodRef
		for _, w := range InOrder(s.ledger.QueuedPods(s.ledger.Queue())) {
			queued = append(queued, w.Ref)
		}
		say("plan for", pods(queued)...)
	}
	if e.Buffers {
		s.say("%slook after chunks", when)
	}
	for _, w := range e.Words {
		s.say("%sevent on %s: %s", when, w.Ref.Name, w.Note)
	}
	for _, w := range e.Waits {
		s.say("%s%s waits: %s", when, w.Ref.Name, w.Note)
	}
	for _, t := range e.Tainted {
		s.say("%sundeclared taint on %s: %s", when, t.Claim, t.Taint.ToString())
	}
	for _, r := range s.ledger.TakeRejected() {
		s.say("%s%s was refused on the node launched for it: %s", when, r.Pod.Name, r.Reason)
	}
}

func (s *story) say(format string, args ...any) { s.out = append(s.out, fmt.Sprintf(format, args...)) }

// arguments are names, and options like cpu=1.
type arguments struct {
	names   []string
	options map[string]string
}

func parseArguments(words []string) arguments {
	a := arguments{options: map[string]string{}}
	for _, w := range words {
		if key, value, ok := strings.Cut(w, "="); ok && !strings.Contains(key, " ") {
			a.options[key] = value
		} else {
			a.names = append(a.names, w)
		}
	}
	return a
}

// flag removes a name that says yes, and reports whether it was there.
func (a *arguments) flag(name string) bool {
	i := slices.Index(a.names, name)
	if i < 0 {
		return false
	}
	a.names = slices.Delete(slices.Clone(a.names), i, i+1)
	return true
}

// last removes the last name and returns it.
func (a *arguments) last() string {
	text := a.names[len(a.names)-1]
	a.names = a.names[:len(a.names)-1]
	return text
}

// cpu returns an option in milli-CPUs.
func (a *arguments) cpu(option, usual string) (int64, error) {
	q, err := resource.ParseQuantity(cmp.Or(a.options[option], usual))
	return q.MilliValue(), err
}
