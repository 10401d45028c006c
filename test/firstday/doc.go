// Package firstday is the rehearsal of docs/first-day.md: what somebody with an AWS account runs against a cluster on which Dovetail has just been
// installed, to see whether it does there what it does in tests. Each step says what it expects, and what it has found.
//
// It changes nothing that it hasn't made, and removes what it has made. cmd/firstday runs it, also against the simulator.
package firstday
