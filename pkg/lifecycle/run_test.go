package lifecycle

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// Run sees Nodes and claims through its watches, survives panics, and leaves nothing behind.
func TestRun(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	w := newWorld(t)
	claim, inst := w.launched("a")
	w.createNode(nodeFor(claim, *inst))
	if err := w.c.nodes.informer.SetTransform(HideEphemeralTaints(ownClass)); err != nil {
		t.Fatal(err)
	}
	working, release := make(chan struct{}), make(chan struct{})
	var block atomic.Bool
	var odd atomic.Int32 // an object that makes the program panic, for a while
	odd.Store(3)
	w.c.hold = func() error {
		if odd.Add(-1) >= 0 {
			panic("a mistake")
		}
		if block.CompareAndSwap(true, false) {
			close(working)
			<-release
		}
		return nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	informing, stopInforming := context.WithCancel(t.Context())
	w.factory.Start(informing.Done())
	w.factory.WaitForCacheSync(ctx.Done())
	done := make(chan error, 1)
	go func() { done <- w.c.Run(ctx) }()

	w.kubelet(inst.NodeName)
	err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		w.c.ClaimChanged("a")
		return conditionTrue(w.claim("a"), karpv1.ConditionTypeInitialized), nil
	})
	if err != nil {
		t.Errorf("not initialized: %+v", w.claim("a").Status.Conditions)
	}

	// When ctx ends, Run waits for everything under way.
	block.Store(true)
	w.c.ClaimChanged("a")
	<-working
	cancel()
	select {
	case err := <-done:
		close(release)
		t.Fatalf("Run returned while a worker was at work: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
	w.c.ClaimChanged("a")
	stopInforming()
	w.factory.Shutdown()
}

// unsteady is a client whose lists fail for a while.
type unsteady struct {
	client.Client
	failures int
}

func (u *unsteady) List(ctx context.Context, l client.ObjectList, opts ...client.ListOption) error {
	if u.failures--; u.failures >= 0 {
		return errors.New("the API server is starting")
	}
	return u.Client.List(ctx, l, opts...)
}

// If the API server doesn't answer at the start, Run waits for it: nodes must not be without a lifecycle controller.
func TestRunWaitsForTheClaims(t *testing.T) {
	w := newWorld(t)
	w.launched("a")
	w.c.claims.Client = &unsteady{w.c.claims.Client, 3}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got int
	done := make(chan error, 1)
	go func() {
		all, err := w.c.allClaims(ctx)
		got = len(all.Items)
		done <- err
	}()
	for {
		select {
		case err := <-done:
			if err != nil || got != 1 {
				t.Errorf("%d claims (%v), want one", got, err)
			}
			return
		case <-time.After(time.Millisecond):
			w.clock.Step(listPause)
		}
	}
}
