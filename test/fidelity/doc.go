// Package fidelity compares the planner with kube-scheduler itself: it plans random worlds and tables of single constraints as the
// product does, and checks the plans with the filters of a real scheduler.
//
// It does not test the simulation of the filters; pkg/simulate compares that with fresh filters.
package fidelity
