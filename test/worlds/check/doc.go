// Package check judges what happened in a world, from API objects in the order of their writes and from the EC2 simulator's journal.
// It shares no code with the product: it reads what a NodeClaim was planned for from its annotation, decides with upstream's filters
// where pods may be placed, and takes the instance types from the simulator's catalogue.
//
// The words it uses:
//
//   - A slot is capacity for one pod of a class that a NodeClaim records. Pods of a class are interchangeable.
//   - A pod is as planned if it is bound to a slot of its class on the NodeClaim's node.
//   - It was replanned if a NodeClaim that had a slot for it was deleted without a node; such pods are counted separately.
//   - It was displaced if pods of a higher priority use the capacity that was planned for its class; also counted separately.
//   - It was short of memory if the node that it was planned for turned out to have less than planned when its kubelet registered, too little for it; also
//     counted separately.
//   - A node is empty if no pod planned for it was alive when it appeared, idle if no pod was ever bound to it and it
//     still exists. A node that was deleted before any pod was bound to it was given back: another launch for pods that
//     start together failed. One that turned out to be too small for the pods that it was launched for is counted, too.
//   - A node is beyond the plan if it is not the only instance of a NodeClaim with slots.
//   - A bind is wrong if fresh filters refuse it at its time.
//   - A disruption is wrong if JudgeConsolidation says so.
//   - A pod is stranded if it was never bound though a node, or a node that can be launched, could host it.
package check
