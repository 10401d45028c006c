// Package daemons knows the DaemonSets as plans need them: on which nodes their pods run, and what the next pod of each will request once
// admission has completed it.
//
// It decides nothing: planner, launcher and offline plans read its list. Informers feed it; it has no goroutine of its own.
package daemons
