// Package worlds is the fidelity run: random worlds go through the real scheduler and the EC2 simulator, and it is judged
// whether what happened is what was planned: every pod where its node was bought for it, no node that nobody needs, no bind that
// fresh filters would refuse, no pod left behind that some machine could run.
//
// draw draws the worlds, this package lets them happen, check judges. check reads API objects and the simulator's journal and
// shares no code with the product. What the planner alone makes of random worlds is the business of test/fidelity.
package worlds
