package realkubelet

import (
	"context"
	"sync"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/ec2/kubelet"
	"github.com/dovetail-scheduler/dovetail/test/sandbox"
)

const (
	// patience bounds every wait; waits usually end much sooner.
	patience = 5 * time.Minute
	// registration is how long instances may be without a kubelet. The product creates a Lease 15 s after the Node, and on a busy host
	// a kubelet takes some seconds to start.
	registration = 40 * time.Second
)

// env is a control plane with kube-controller-manager, the Node authorizer and NodeRestriction, the simulator with real kubelets on
// its instances, and the scheduler.
type env struct {
	*sandbox.Sandbox
	machines *Machines

	mu    sync.Mutex
	plans map[string]Plan // by pool
}

func start(t *testing.T) *env {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	plane, err := cluster.Start(ctx, cluster.Options{
		ControllerManager: true,
		APIServerArgs:     []string{"--authorization-mode=Node", "--enable-admission-plugins=NodeRestriction"},
	})
	if err != nil {
		t.Fatal(err)
	}
	e := &env{plans: map[string]Plan{}}
	e.machines = New(Config{Admin: plane.AdminConfig(), Dir: plane.Dir + "/k", Plan: e.plan})
	plane.OnStop(e.machines.Close)
	e.Sandbox = sandbox.ForTest(t, sandbox.Options{
		Plane: plane, NoKubelets: true, EC2: ec2.Config{Speed: 20, Machines: e.machines}, Objects: []client.Object{sandbox.NodeClass("default"), sandbox.NodeClass("another-name")},
		ProvisionArgs: map[string]any{"registrationTimeout": registration.String()},
	})
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("kubelets:\n%s", e.machines.Logs(4000))
		}
	})
	return e
}

// plan returns how the instances of a pool boot. User data names the pool.
func (e *env) plan(_ *ec2.Machine, told *kubelet.Shape) Plan {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.plans[told.Labels[karpv1.NodePoolLabelKey]]
}
