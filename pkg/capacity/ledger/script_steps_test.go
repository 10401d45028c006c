package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

func (s *story) class(args arguments) error {
	cpu, err := args.cpu("cpu", "1")
	priority, bad := strconv.Atoi(cmp.Or(args.options["priority"], "0"))
	if err = cmp.Or(err, bad); err != nil {
		return err
	}
	byOthers := args.flag("byothers")
	bind, ok := map[string]capacity.BindTime{"": capacity.BindEarly, "registered": capacity.BindRegistered, "ready": capacity.BindReady,
		"initialized": capacity.BindInitialized}[args.options["bind"]]
	if !ok {
		return fmt.Errorf("pods can't be bound when their node is %s", args.options["bind"])
	}
	c := testClass(args.names[0], cpu, int32(priority))
	c.Bind, c.BindReason, c.ByOthers = bind, "its class says so", byOthers
	if key := args.options["tolerates"]; key != "" {
		c.Tolerations = []corev1.Toleration{{Key: key, Operator: corev1.TolerationOpExists}}
	}
	if driver := args.options["driver"]; driver != "" {
		c.Drivers = []string{driver}
	}
	if owner := args.options["owner"]; owner != "" {
		c.Pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: types.UID(owner), Controller: new(true)}}}}
	}
	s.classes[args.names[0]] = c
	return nil
}

// classOf returns the class of a pod by its name; one that no step described is made of pods of one CPU.
func (s *story) classOf(pod string) *capacity.Class {
	name := pod
	if i := strings.LastIndex(pod, "-"); i > 0 {
		name = pod[:i]
	}
	if s.classes[name] == nil {
		s.classes[name] = testClass(name, 1000, 0)
	}
	return s.classes[name]
}

func refOf(pod string) capacity.PodRef { return capacity.PodRef{UID: types.UID(pod), Name: pod} }

func uids(pods []string) (out []types.UID) {
	for _, pod := range pods {
		out = append(out, types.UID(pod))
	}
	return out
}

func (s *story) submit(args arguments) error {
	for _, pod := range args.names {
		if state, why := s.ledger.Submit(refOf(pod), s.classOf(pod), s.now); state != Queued {
			s.say("%s", strings.TrimSuffix(fmt.Sprintf("%s is %s: %s", pod, state, why), ": "))
		}
	}
	return nil
}

func (s *story) created(args arguments) error {
	for _, pod := range args.names {
		if s.ledger.Adopt(refOf(pod), s.classOf(pod), s.now) {
			s.say("%s takes a reservation of its owner", pod)
		} else {
			s.say("nothing is reserved for %s", pod)
		}
	}
	return nil
}

func (s *story) join(args arguments) error {
	for _, pod := range args.names {
		if state := s.ledger.Join(refOf(pod), s.classOf(pod), s.now); state != Queued {
			s.say("%s is %s", pod, state)
		}
	}
	return nil
}

func (s *story) taken(args arguments) error {
	s.ledger.Bound(uids(args.names[:1])[0], args.names[1], s.now)
	return nil
}

func (s *story) deleted(args arguments) error {
	for _, uid := range uids(args.names) {
		s.ledger.Gone(uid)
	}
	return nil
}

func (s *story) node(args arguments) error {
	var daemons map[string]capacity.Resources
	if name := args.options["daemon"]; name != "" {
		cpu, err := args.cpu("cpu", "100m")
		if err != nil {
			return err
		}
		daemons = map[string]capacity.Resources{name: {corev1.ResourceCPU: cpu}}
	}
	s.ledger.AddNode(args.names[0], &capacity.Node{}, daemons, false, s.now)
	s.claims = append(s.claims, args.names[0])
	return nil
}

// placements reads POD@NODE and next:NAME@NODE; those joined by + get a group.
func (s *story) placements(words []string) (out []capacity.Placement, err error) {
	for g, word := range words {
		parts := strings.Split(word, "+")
		for _, part := range parts {
			what, node, ok := strings.Cut(part, "@")
			if !ok {
				return nil, fmt.Errorf("%s is no placement: POD@NODE", part)
			}
			pl := capacity.Placement{Node: node}
			if len(parts) > 1 {
				pl.Group = g + 1
			}
			if name, next := strings.CutPrefix(what, "next:"); next {
				pl.Class = s.classOf(name + "-0")
				if pl.Owner, _ = ownersOf(pl.Class); pl.Owner == "" {
					return nil, fmt.Errorf("pods of class %s have no owner", name)
				}
			} else {
				pl.Class, pl.Pod = s.classOf(what), refOf(what)
			}
			if !s.ledger.Has(node) && !s.ledger.Watches(node) {
				s.ledger.Existing(node, NodeStatus{})
			}
			out = append(out, pl)
		}
	}
	return out, nil
}

func (s *story) commit(args arguments) error {
	placements, err := s.placements(args.names)
	if err != nil {
		return err
	}
	s.plans++
	s.ledger.Commit(strconv.Itoa(s.plans), placements, s.now)
	for _, pl := range placements {
		if slices.Contains(s.claims, pl.Node) {
			s.records[pl.Node] = s.ledger.Slots(pl.Node)
		}
	}
	return nil
}

func (s *story) refuse(args arguments) error {
	retry := args.flag("retry")
	why := args.last()
	s.ledger.Refuse(uids(args.names), why, retry, s.now)
	return nil
}

func (s *story) postpone(args arguments) error {
	d, err := time.ParseDuration(args.names[1])
	s.ledger.Postpone(types.UID(args.names[0]), args.names[2], s.now.Add(d), s.now)
	return err
}

func (s *story) await(args arguments) error {
	s.ledger.Await(uids(args.names))
	return nil
}

func (s *story) changed(arguments) error {
	changed(s.ledger, s.now)
	return nil
}

func (s *story) replan(args arguments) error {
	s.ledger.Replan(types.UID(args.names[0]), args.names[1], args.names[2], s.now)
	return nil
}

func (s *story) reassign(args arguments) error {
	launched := args.flag("launched")
	placements, err := s.placements(args.names)
	s.ledger.Reassign(placements, launched)
	return err
}

func (s *story) replace(args arguments) error {
	d, err := time.ParseDuration(args.names[1])
	if err != nil {
		return err
	}
	placements, err := s.placements(args.names[2:])
	leaving := slices.Repeat(args.names[:1], len(placements))
	s.plans++
	s.ledger.Move(strconv.Itoa(s.plans), placements, leaving, s.now.Add(d), s.now)
	return err
}

func (s *story) release(args arguments) error {
	s.ledger.Release(args.names[0])
	return nil
}

func (s *story) launch(args arguments) error {
	for _, claim := range args.names {
		if !s.ledger.Launching(claim, s.now) {
			s.say("%s is not launched: no pod needs it", claim)
		}
	}
	return nil
}

func (s *story) name(args arguments) error {
	s.ledger.Named(args.names[0], args.names[1], args.options["id"])
	return nil
}

func (s *story) cached(args arguments) error {
	st := NodeStatus{Managed: true, ProviderID: args.options["id"]}
	st.Initialized = args.flag("initialized")
	st.Ready = args.flag("ready") || st.Initialized
	st.Registered = args.flag("registered") || st.Ready
	st.KubeletReady = st.Ready
	if key, effect, ok := strings.Cut(args.options["taint"], ":"); ok {
		st.Taints = []corev1.Taint{{Key: key, Effect: corev1.TaintEffect(effect)}}
	}
	if driver := args.options["driver"]; driver != "" {
		st.Drivers = []string{driver}
	}
	s.ledger.Cached(args.names[0], st, s.now)
	return nil
}

func (s *story) uncached(args arguments) error {
	s.ledger.Uncached(args.names[0], args.options["id"], s.now)
	return nil
}

func (s *story) lost(args arguments) error {
	exhausted := args.flag("exhausted")
	why := args.last()
	for _, claim := range args.names {
		s.ledger.ClaimGone(claim, why, exhausted, s.now)
		delete(s.records, claim)
		s.claims = slices.DeleteFunc(s.claims, func(c string) bool { return c == claim })
	}
	return nil
}

func (s *story) cordon(args arguments) error {
	if !s.ledger.Fence(args.names[0]) {
		s.say("not cordoned: pods are planned for %s, or are being bound there", args.names[0])
	}
	return nil
}

func (s *story) uncordon(args arguments) error {
	s.ledger.Unfence(args.names[0])
	return nil
}

func (s *story) remove(args arguments) error {
	initialized := args.flag("initialized")
	st := NodeStatus{Managed: true, Registered: initialized, Initialized: initialized, ProviderID: args.options["id"]}
	if s.ledger.Close(args.names[0], st, s.now) {
		s.say("the drain waits for pods that are being bound there")
	}
	return nil
}

func (s *story) daemon(args arguments) error {
	s.ledger.DaemonBound(args.names[0], args.names[1])
	return nil
}

func (s *story) wait(args arguments) error {
	d, err := time.ParseDuration(args.names[0])
	if err != nil {
		return err
	}
	begin := s.now
	for s.now.Before(begin.Add(d)) {
		s.now = s.now.Add(time.Second)
		s.ledger.Tick(s.now)
		s.effects(fmt.Sprintf("after %v: ", s.now.Sub(begin)))
	}
	return nil
}

func (s *story) record(arguments) error {
	maps.Copy(s.records, s.ledger.AllSlots(s.claims))
	return nil
}

func (s *story) restart(arguments) error {
	old := s.ledger
	s.ledger = New()
	var restored []Restored
	orders := 0
	for _, claim := range s.claims {
		n := old.nodes[claim]
		if n == nil || !n.launched {
			s.say("%s was not launched: it is deleted", claim)
			delete(s.records, claim)
			continue
		}
		s.ledger.RecoverNode(claim, n.template, n.daemons, s.now)
		for _, r := range s.records[claim] {
			orders = max(orders, r.Order)
			if r.Owner == "" {
				restored = append(restored, Restored{Slot: r, Node: claim, Class: s.classOf(r.Pod.Name)})
			}
		}
	}
	s.claims = slices.DeleteFunc(s.claims, func(claim string) bool { return !s.ledger.Has(claim) })
	s.ledger.Restore(restored, orders, s.now)
	for _, claim := range s.claims {
		var pods []string
		for _, r := range s.ledger.Slots(claim) {
			pods = append(pods, r.Pod.Name)
		}
		s.say("%s is reserved for: %s", claim, strings.Join(pods, " "))
	}
	return nil
}

func (s *story) show(arguments) error {
	for n := range s.ledger.nodesIn(func(*node) bool { return true }) {
		line := "node " + n.key
		if n.name != n.key {
			line = strings.TrimSuffix(line+" as "+n.name, " as ")
		}
		if n.cached {
			line += ", cached"
		}
		if n.late {
			line += ", late"
		}
		if n.fenced {
			line += ", cordoned"
		}
		holders := s.ledger.Slots(n.key)
		for i, one := range n.slots {
			line += fmt.Sprintf("; reserved for %s", cmp.Or(holders[i].Pod.Name, "the next pod of "+string(one.owner)))
			if one.ready {
				line += " (ready)"
			}
		}
		s.say("%s", line)
	}
	for p := range s.ledger.podsIn(func(*pod) bool { return true }) {
		s.say("%s", strings.TrimSuffix(fmt.Sprintf("pod %s is %s: %s", p.ref.Name, p.state, s.ledger.Explain(p.ref.UID)), ": "))
	}
	return nil
}
