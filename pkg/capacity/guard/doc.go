// Package guard decides when to stop buying machines that do no work.
//
// Back-off alone is not enough: a machine that fails after 15 minutes and is bought again five minutes later is paid for three
// quarters of the time, for ever. The guard gives a verdict on every machine that was bought, and opens a breaker where machines
// fail one after the other. While a breaker is open, machines are bought against it only as probes, one at a time and at growing
// intervals, until a probe has served (done the work it was bought for).
//
//	bought -> undecided -> served | failed | neither
//
//	closed --half of a round failed--> open, a probe is due --probe failed--> paused --time, change or retry--> a probe is due
//	   ^                                     |                                                                    |
//	   +-------------probe succeeded---------+--------------------------------------------------------------------+
//
// There are three kinds of breakers (Key). Machine faults concern a node class and image, whatever the pods, and only one zone if
// the image works in another. Pod faults concern one workload in one pool. If three workloads fail in a pool for the same cause,
// their breakers become one breaker of the pool.
//
// The package is a pure state machine: events come in with the time at which they happened, breakers and notices come out. It has
// no lock, clock or goroutine. pkg/spending feeds it, holds a lock around it and stores its records.
package guard
