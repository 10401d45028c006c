// Package worlds is the fidelity run: random worlds run through the real scheduler and the EC2 simulator, and the run checks that
// everything happened as planned: every pod is on the node that was launched for it, no node is unneeded, no bind is one that fresh
// filters would refuse, and no pod is left pending that an available instance type could run.
//
// Package draw generates the worlds, this package runs them, package check judges them. check reads API objects and the simulator's
// journal and shares no code with the product. What the planner alone does with random worlds is tested in test/fidelity.
package worlds
