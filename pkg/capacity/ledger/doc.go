// Package ledger knows every planned node and every promise of room on a node, and says when a waiting pod may go.
//
// It is a pure step machine: events in (methods), effects out (Take). It has no lock, no clock and no goroutine; the
// motor that owns it (pkg/launch) serializes calls, tells the time, and runs the effects.
//
// A pod:
//
//	          Submit              Commit                nodes there            Pin, Assume          Bound
//	unknown ----------> Queued ------------> Planned ----------------> Open ---------------> Assumed ------> forgotten
//	   ^                  | ^                   |                        |                      |
//	   |           Refuse | | Retry, Reopen     | node lost              | Failed               | Unassume: Open, same slot
//	   +---- Gone ---- Refused <----------------+------------------------+
//
// The gate of a pod is closed while it is Queued or Planned.
//
// A slot is room for one pod of a class on one node. Pods of a class are interchangeable: a pod that is Planned or Open is
// entitled to one slot of its class, and gets the first ready one in plan order when its cycle begins. A slot becomes
// ready when its node is in the scheduler's cache and may take pods of the class, and, if it belongs to a group, when
// that holds for every slot of the group.
//
// Invariants (checked by the property test):
//   - per class, slots not yet handed out = entitled pods without a slot + slots held by an owner;
//   - a pod has at most one slot, a slot at most one pod;
//   - open pods without a slot never outnumber ready slots that are free;
//   - a node without slots that is not watched, fenced or in flight is not remembered.
package ledger
