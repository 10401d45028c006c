// Package guard decides when to stop buying machines that do no work.
//
// Back-off alone is no guard: a machine that fails after a quarter of an hour and is bought again five minutes later is paid for
// three quarters of the time, for ever. The guard gives a verdict on every machine that was bought, and opens a breaker where
// machines fail one after the other. While a breaker is open nothing is bought against it but one probe at a time, later each
// time, until a probe has done work.
//
//	bought -> undecided -> served | failed | neither
//
//	closed --half of a round failed--> open, a probe is due --probe failed--> paused --time, change or retry--> a probe is due
//	   ^                                     |                                                                    |
//	   +-------------probe succeeded---------+--------------------------------------------------------------------+
//
// There are three kinds of breakers (Key): machine faults concern a node class and image, whatever pods, narrowed to a zone when
// another zone works; pod faults concern one workload in one pool; three workloads that fail in a pool for the same cause
// become one breaker of the pool.
//
// The package is a step machine of values: what happened comes in with the time at which it happened, breakers and notices come
// out. It has no lock, clock or goroutine. What has to be done about it, and where it is kept, is pkg/launch's.
package guard
