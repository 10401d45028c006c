// Package chaos runs the whole product under virtual time and breaks everything around it.
//
// A history is one seed: a workload, a user who changes and deletes things, a cloud in which instances die, and faults of every
// kind on the way between the product and its neighbours. The product is a Program that the test brings; it runs with all its
// goroutines in a synctest bubble, on an API server in memory (test/kubeapi), the EC2 simulator, simulated kubelets, and the
// node lifecycle and pod garbage collection controllers of Kubernetes. A process that is killed loses its connections at that
// very call and everything it knew.
//
// After every step a checker looks at the API objects and the EC2 journal, and at nothing else: it shares no code with the
// product. Its rules are in check.go and endings.go. At the end the faults stop, and what is left must agree within the settle time.
//
// A seed fixes the workload and the plan of faults. It does not fix the order in which goroutines run, so a seed that fails
// may need to be run more than once to fail again.
package chaos
