package store

import (
	"context"
	"errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sync/atomic"
	"testing"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// A deleted class keeps its finalizer until no claim refers to it and its cloud resources are removed.
func TestAClassEndsAfterItsClaims(t *testing.T) {
	w := newWorld(t, newFakeAPI(testPool("default", plain), readyClass("default"), readyClass("unused"), karpenters("one")))
	var asked, failures atomic.Int32
	failures.Store(2)
	w.OnClassEnd(func(_ context.Context, nc status.Object) error {
		if nc.GetName() == "default" {
			asked.Add(1)
			if failures.Add(-1) >= 0 {
				return errors.New("the cloud does not answer")
			}
		}
		return nil
	})
	w.leading()
	gone := func(name string) func() bool {
		return func() bool {
			w.clock.Step(time.Minute) // failed attempts wait
			return apierrors.IsNotFound(w.api.Get(context.Background(), client.ObjectKey{Name: name}, &ec2nc.EC2NodeClass{}))
		}
	}
	for _, name := range []string{"default", "unused"} {
		w.eventually("the finalizer is on "+name, func() bool { return len(w.getClass(name).Finalizers) == 1 })
		if err := w.api.Delete(w.ctx, w.getClass(name)); err != nil {
			t.Fatal(err)
		}
	}
	w.eventually("a class that nobody uses is gone", gone("unused"))
	w.hears("Normal WaitingOnNodeClaimTermination 1 NodeClaims still use it: one")
	if asked.Load() != 0 || len(w.getClass("default").Finalizers) != 1 {
		t.Error("a class in use was let go")
	}
	if _, err := w.Create(w.ctx, testClaim("default-late")); !errors.Is(err, ErrPoolUnusable) {
		t.Errorf("a claim of a class that is going: %v", err)
	}

	nc := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{Name: "one"}}
	w.edit(nc, func() { nc.Finalizers = nil })
	if err := w.api.Delete(w.ctx, nc); err != nil {
		t.Fatal(err)
	}
	w.eventually("the class is gone with its last claim", gone("default"))
	if got := asked.Load(); got != 3 {
		t.Errorf("asked %d times to remove what was made for it, want 3: two failures and a success", got)
	}
}
