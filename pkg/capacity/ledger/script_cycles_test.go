package ledger

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The steps of a pod's scheduling cycle.

func (s *story) cycle(args arguments) error {
	if node := s.pin(args.names[0]); node != "" {
		s.say("pinned to %s", node)
	}
	return nil
}

// pin returns the node that a scheduling cycle of the pod has to use; if there is none, it says why.
func (s *story) pin(pod string) string {
	if closed, why := s.ledger.Gate(types.UID(pod)); closed {
		s.say("gated: %s", why)
		return ""
	}
	node, wait := s.ledger.Pin(types.UID(pod))
	switch {
	case wait != "":
		s.say("not now: %s", wait)
	case node == "":
		s.say("may go to any node")
	}
	return node
}

// amounts are what the scheduler counts on a node, in milli-CPUs.
type amounts struct{ used, allocatable int64 }

func (a amounts) Requested(corev1.ResourceName) int64   { return a.used }
func (a amounts) Allocatable(corev1.ResourceName) int64 { return a.allocatable }
func (amounts) Volumes(string) int64                    { return 0 }
func (amounts) Daemon(string) bool                      { return false }

func (s *story) filter(args arguments) error {
	used, err := args.cpu("used", "0")
	allocatable, bad := args.cpu("allocatable", "100")
	if err = cmp.Or(err, bad); err != nil {
		return err
	}
	class := s.classOf(args.names[0])
	ask := &Ask{UID: types.UID(args.names[0]), Class: class, Apart: s.ledger.Apart(class, false)}
	if err := s.ledger.Object(args.names[1], ask, amounts{used, allocatable}); err != nil {
		s.say("%v", err)
	} else {
		s.say("passes")
	}
	return nil
}

func (s *story) evicts(args arguments) error {
	switch uid := types.UID(args.names[0]); {
	case !s.ledger.Refused(uid):
		s.say("no: capacity for it is planned, or will be")
	case s.ledger.PlannedSoon(uid, s.now):
		s.say("no: it is planned for again in a moment")
	default:
		s.say("yes")
	}
	return nil
}

func (s *story) reserve(args arguments) error {
	if why := s.ledger.Assume(types.UID(args.names[0]), args.names[1], false); why != nil {
		s.say("refused: %s", why)
	}
	return nil
}

func (s *story) unreserve(args arguments) error {
	s.ledger.Unassume(types.UID(args.names[0]), args.names[1], s.now)
	return nil
}

func (s *story) bound(args arguments) error {
	where := map[Room]string{RoomPlanned: "as planned", RoomFound: "free capacity", RoomOther: "elsewhere than planned"}
	s.say("bound to %s, %s", args.names[1], where[s.ledger.Settled(types.UID(args.names[0]), args.names[1])])
	return nil
}

func (s *story) bind(args arguments) error {
	node := s.pin(args.names[0])
	if len(args.names) > 1 {
		node = cmp.Or(node, args.names[1])
	}
	if node == "" {
		return nil
	}
	if why := s.ledger.Assume(types.UID(args.names[0]), node, false); why != nil {
		s.say("refused on %s: %s", node, why)
		return nil
	}
	return s.bound(arguments{names: []string{args.names[0], node}})
}
