// Package podconditions writes the condition PodScheduled of pods that wait behind closed gates. kube-scheduler writes it after a failed
// scheduling cycle, and these pods may have had none. It doesn't decide who waits, or for what.
package podconditions
