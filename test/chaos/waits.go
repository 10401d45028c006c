package chaos

import (
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/kubernetes/pkg/controller"
)

// Some of Kubernetes' code waits while it holds a mutex that other goroutines need. In real time they wait a little longer; in a bubble
// they stop the clock, and with it the wait (see watchdog). What must not wait there is listed in this file.

// The node lifecycle controller holds the rate limiter of a zone while it taints a node, and replaces the limiter when the zone's state
// changes. After a conflict it would wait 0.1 to 0.2 s and then read the node again; here it does so at once. Each conflict needs
// another write in between, so there are never many in a row.
func init() { controller.UpdateTaintBackoff = wait.Backoff{Steps: 100} }
