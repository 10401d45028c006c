// Package chaos runs the whole product in virtual time and injects faults into everything around it.
//
// A history is one seed: a workload, a user who changes and deletes things, a cloud in which instances die, and faults of every kind
// between the product and its neighbours. The product is a Program that the test provides; it runs with all its goroutines in a
// synctest bubble, on an API server in memory (test/kubeapi), the EC2 simulator, simulated kubelets, and the node lifecycle, disruption
// and pod garbage collection controllers of Kubernetes. A process that is killed loses its connections during that very call, and
// everything it knew.
//
// After every step a checker inspects the API objects and the EC2 journal, and nothing else: it shares no code with the product. Its
// rules are in check.go, room.go and endings.go. At the end the faults stop, and everything must be consistent within the settle time.
//
// A seed determines the workload and the plan of faults. It does not determine the order in which goroutines run, so a failing seed
// may need several runs to fail again.
package chaos
