package integration

import (
	"testing"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/controller/nodelifecycle"
	"k8s.io/kubernetes/pkg/controller/podgc"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// controllers runs the controllers of kube-controller-manager that affect a node's life: taints by condition, and garbage collection
// of pods whose node is gone.
func controllers(t *testing.T, cfg *rest.Config) {
	t.Helper()
	ctx := ktesting.Init(t)
	client := kubernetes.NewForConfigOrDie(cfg)
	f := informers.NewSharedInformerFactory(client, 0)
	nodes, err := nodelifecycle.NewNodeLifecycleController(ctx, f.Coordination().V1().Leases(), f.Core().V1().Pods(), f.Core().V1().Nodes(),
		f.Apps().V1().DaemonSets(), client, 500*time.Millisecond, time.Minute, 50*time.Second, 0.1, 0.01, 50, 0.55)
	if err != nil {
		t.Fatal(err)
	}
	gc := podgc.NewPodGCInternal(ctx, client, f.Core().V1().Pods(), f.Core().V1().Nodes(), 1000, time.Second, 4*time.Second)
	f.Start(ctx.Done())
	f.WaitForCacheSync(ctx.Done())
	go nodes.Run(ctx)
	go gc.Run(ctx)
}
