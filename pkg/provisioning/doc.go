// Package provisioning makes plans: a Decider has the planner decide what to buy, has the scheduler's own filters verify it, and plans once
// more without what they refuse.
//
// It launches nothing (see pkg/launch).
package provisioning
