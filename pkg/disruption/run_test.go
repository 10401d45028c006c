package disruption

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// Run terminates what has been due since it began to watch, survives a panic, and leaves nothing behind.
func TestRun(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	w := newWorld(t, pool())
	w.machine("a")
	w.clock.Step(time.Hour)
	hold, mistakes := w.c.passes.hold, 2
	w.c.passes.hold = func() error {
		if mistakes--; mistakes >= 0 {
			panic("a mistake")
		}
		return hold()
	}
	fenced := make(chan struct{}, 1)
	w.interrupt = func(call string) {
		if call == "delete" {
			fenced <- struct{}{}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	informing, stopInforming := context.WithCancel(t.Context())
	w.factory.Start(informing.Done())
	w.factory.WaitForCacheSync(ctx.Done())
	done := make(chan error, 1)
	go func() { done <- w.c.Run(ctx) }()
	for ended, tries := false, 0; !ended; tries++ {
		select {
		case <-fenced:
			ended = true
		case <-time.After(10 * time.Millisecond):
			w.clock.Step(10 * time.Second)
		}
		if tries > 3000 {
			t.Fatal("nothing was ended")
		}
	}
	if w.clock.Since(epoch) < time.Hour+time.Minute {
		t.Errorf("ended %s after the process began to watch", w.clock.Since(epoch)-time.Hour)
	}
	w.c.Changed()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	w.c.Changed()
	stopInforming()
	w.factory.Shutdown()
}

// many lists a number of NodeClaims about which nothing is known.
type many struct {
	client.Reader
	number int
}

func (m many) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if claims, ok := list.(*karpv1.NodeClaimList); ok {
		claims.Items = make([]karpv1.NodeClaim, m.number)
		return nil
	}
	return m.Reader.List(ctx, list, opts...)
}

// Where pods end all the time, one pass over thousands of nodes doesn't follow the other.
func TestPassesOverManyNodesAreFartherApart(t *testing.T) {
	w := newWorld(t, pool())
	for _, tt := range []struct {
		nodes int
		want  time.Duration
	}{{0, 0}, {4000, 2 * time.Second}, {100_000, pollEvery}} {
		w.c.passes.claims = many{w.claims, tt.nodes}
		if _, rest, err := w.c.passes.run(t.Context(), time.Time{}); err != nil || rest != tt.want {
			t.Errorf("after a pass over %d nodes none is made for %v, want %v (%v)", tt.nodes, rest, tt.want, err)
		}
	}

	w.c.passes.claims = many{w.claims, 6000}
	passes := make(chan time.Time)
	ctx, cancel := context.WithCancel(t.Context())
	w.c.passes.hold = func() error {
		select {
		case passes <- w.clock.Now():
		case <-ctx.Done():
		}
		return nil
	}
	w.factory.Start(ctx.Done())
	w.factory.WaitForCacheSync(ctx.Done())
	done := make(chan error, 1)
	go func() { done <- w.c.Run(ctx) }()
	var last time.Time
	for made := 0; made < 4; {
		select {
		case at := <-passes:
			if made++; made > 1 && at.Sub(last) < 3*time.Second {
				t.Errorf("a pass over 6,000 nodes was made %v after the last one", at.Sub(last))
			}
			last = at
		case <-time.After(time.Millisecond):
			w.c.Changed()
			w.clock.Step(100 * time.Millisecond)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	w.factory.Shutdown()
}
