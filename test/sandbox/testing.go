package sandbox

import (
	"context"
	"flag"
	"testing"
	"time"

	"k8s.io/client-go/discovery"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
)

// controlPlane is for tests against other versions of Kubernetes (make compat).
var controlPlane = flag.String("control-plane", "", "binary of the control plane (default: built from this module)")

// ForTest starts a sandbox that is stopped with the test, and logs the last lines of the scheduler's log if the test has failed.
func ForTest(t *testing.T, o Options) *Sandbox {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if o.Cluster.ControlPlane == "" {
		o.Cluster.ControlPlane = *controlPlane
	}
	s, err := Start(ctx, o)
	if err != nil {
		t.Fatalf("starting the sandbox: %v", err)
	}
	if *controlPlane != "" {
		version, err := discovery.NewDiscoveryClientForConfigOrDie(s.AdminConfig()).ServerVersion()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("the API server is %s", version.GitVersion)
	}
	t.Cleanup(func() {
		if t.Failed() && s.Scheduler != nil {
			t.Logf("end of the scheduler's log:\n%s", cluster.Tail(s.Scheduler.LogPath, 20000))
		}
		s.Stop()
	})
	return s
}
