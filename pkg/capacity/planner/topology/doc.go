// Package topology knows the constraints among pods: topology spread, pod affinity and anti-affinity, and host ports. It counts pods by
// topology domain, in groups, and says where a batch of pods may be. It places no pods and knows nothing of what can be bought.
//
// constraint.go has the questions that a kind of constraint answers, and lists the kinds; each is one file. batch.go asks them for a
// batch of pods. group.go counts; topology.go and topologycount.go make the groups of a plan and count the pods that exist.
package topology
