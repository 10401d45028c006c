// Package launch carries plans out: it writes NodeClaims, launches instances in launch batches, creates the Node objects ahead of their
// kubelets, and takes over what an earlier leader left. It also launches standalone NodeClaims.
//
// Its Launcher runs the goroutines of this package and those of pkg/provisioning and pkg/staticpool, which decide what to launch. It does
// not know how an instance is launched (pkg/aws), and ends nothing but its own failed launches (see pkg/lifecycle).
package launch
