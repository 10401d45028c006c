// Package fidelity holds the planner against kube-scheduler itself: random worlds and tables of single constraints, planned
// the way the product plans and judged by the filters of a real scheduler.
//
// It is not for the filters' simulation, which pkg/simulate compares with fresh filters.
package fidelity
