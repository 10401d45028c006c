// Package ledger keeps every planned node and every reservation of node capacity, and decides when a waiting pod may be scheduled.
//
// It is a pure state machine: events in (methods), effects out (Take). It has no lock, no clock and no goroutine: pkg/reservations
// serializes the calls and passes in the time, and pkg/provisioning (Effects) carries out the effects.
//
// The states of a pod:
//
//	          Submit              Commit                nodes there            Pin, Assume          Bound
//	unknown ----------> Queued ------------> Planned ----------------> Open ---------------> Assumed ------> forgotten
//	   ^                  | ^                   |                        |                      |
//	   |           Refuse | | Retry, Reopen     | node lost              | Failed               | Unassume: Open, same slot
//	   +---- Gone ---- Refused <----------------+------------------------+
//
// The gate of a pod is closed while it is Queued or Planned. A pod is opened when it gets from Planned to Open.
//
// A slot is a reservation: capacity on one node for one pod of an equivalence class. Pods of a class are interchangeable: a pod
// that is Planned or Open is entitled to one slot of its class, and gets the first ready one in plan order when its scheduling
// cycle begins. A slot becomes ready when its node is in the scheduler's cache and may take pods of the class; the slots of a
// group become ready together, when that holds for all of them.
//
// Invariants (checked by the property test):
//   - per class, slots not yet given to a pod = entitled pods without a slot + slots reserved for an owner;
//   - a pod has at most one slot, a slot at most one pod;
//   - open pods without a slot never outnumber ready slots that are free;
//   - a node without slots and chunks is forgotten unless it is fenced, in flight, not initialized yet, or kept for DaemonSet or assumed pods.
package ledger
