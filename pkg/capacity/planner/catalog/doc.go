// Package catalog lists what can be bought, as offering candidates: an offering of a pool, with one choice of the labels that the pool
// leaves open. It finds the candidates that satisfy what a pod requires of a node, what DaemonSets leave of them, and what several of them have
// in common. It knows nothing of other pods, and decides nothing.
package catalog
