// Package check judges what happened in a world, from API objects in the order of their writes and from the EC2 simulator's
// journal. It shares no code with the product: what a claim was planned for is read from its annotation, where pods may go
// is asked of upstream's filters, what machines there are of the simulator's catalogue.
//
// The words it uses:
//
//   - A slot is room for one pod of a class that a claim records. Pods of a class are interchangeable.
//   - A pod is as planned if it is bound to a slot of its class on the node of the claim.
//   - It was replanned if a claim that had a slot for it ended without a node; such pods are counted apart.
//   - It was displaced if pods of a higher priority sit in the room that was planned for its class; counted apart, too.
//   - A node is empty if no pod planned for it was alive when it appeared, idle if no pod ever came and it is
//     still there. What was ended before any pod came was given back: another launch for pods that start together failed.
//   - A node is beyond the plan if it is not the only instance of a claim with slots.
//   - A bind is wrong if fresh filters refuse it at its moment.
//   - A pod is stranded if it was never bound though a node, or a machine that can be bought, could host it.
package check
