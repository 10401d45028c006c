package karpenter

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

// leases is an API server with leases, in virtual time.
type leases struct {
	t       *testing.T
	api     *fake.Clientset
	i       *ExternalController
	version int
	changes atomic.Int32
}

// inTime runs f in virtual time; after run, a watcher runs beside it.
func inTime(t *testing.T, f func(l *leases)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(&leases{t: t, api: fake.NewClientset()})
	})
}

func (l *leases) run() {
	l.i = NewExternalController(l.api, clock.RealClock{})
	l.i.OnChange(func() { l.changes.Add(1) })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := l.i.Run(ctx); err != nil {
			l.t.Error(err)
		}
	}()
	l.t.Cleanup(func() { cancel(); <-done })
	l.after(time.Second) // the cache is polled until it has synced
}

// write writes a renewal like client-go's leader election, with the writer's clock ahead by some time.
func (l *leases) write(holder string, seconds int32, ahead time.Duration) {
	l.t.Helper()
	l.version++
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: ExternalLease, ResourceVersion: strconv.Itoa(l.version)},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: ptr.To(seconds),
			RenewTime: &metav1.MicroTime{Time: time.Now().Add(ahead)}},
	}
	var err error
	if l.version == 1 {
		_, err = l.api.CoordinationV1().Leases("kube-system").Create(l.t.Context(), lease, metav1.CreateOptions{})
	} else {
		_, err = l.api.CoordinationV1().Leases("kube-system").Update(l.t.Context(), lease, metav1.UpdateOptions{})
	}
	if err != nil {
		l.t.Fatal(err)
	}
}

// lead renews every two seconds for the given time.
func (l *leases) lead(holder string, during, ahead time.Duration) {
	l.t.Helper()
	for end := time.Now().Add(during); time.Now().Before(end); {
		l.write(holder, 15, ahead)
		<-time.After(2 * time.Second)
		synctest.Wait()
	}
}

// held returns why nothing may be done; "" if nothing holds.
func (l *leases) held() string {
	if why := l.i.Hold(); why != nil {
		return why.Error()
	}
	return ""
}

func (l *leases) after(d time.Duration) string {
	<-time.After(d)
	synctest.Wait()
	return l.held()
}

func TestNobodyLeads(t *testing.T) {
	inTime(t, func(l *leases) {
		if why := NewExternalController(l.api, clock.RealClock{}).Hold(); why == nil {
			t.Error("free before the leases have been read")
		}
		l.run()
		if why := l.held(); why != "" || l.changes.Load() != 1 {
			t.Errorf("held: %q, told %d times", why, l.changes.Load())
		}
	})
}

func TestKarpenterLeadsAndGoes(t *testing.T) {
	inTime(t, func(l *leases) {
		l.write("karpenter-7_a", 15, 0)
		l.run()
		for _, want := range []string{"kube-system/karpenter-leader-election", "held by karpenter-7_a"} {
			if why := l.held(); !strings.Contains(why, want) {
				t.Errorf("%q does not say %q", why, want)
			}
		}
		l.lead("karpenter-7_a", time.Minute, 0)
		if n := l.changes.Load(); n != 1 || l.held() == "" {
			t.Errorf("told %d times while Karpenter led, held: %q", n, l.held())
		}
		if why := l.after(12 * time.Second); why == "" {
			t.Error("free before the lease is stale")
		}
		if why := l.after(4 * time.Second); why != "" {
			t.Errorf("held although nobody renews: %q", why)
		}
		l.write("karpenter-7_b", 15, 0)
		if why := l.after(0); why == "" {
			t.Error("free although it is back")
		}
	})
}

func TestLeaseThatWasStaleAtTheStart(t *testing.T) {
	inTime(t, func(l *leases) {
		l.write("karpenter", 15, -time.Hour)
		l.run()
		if why := l.held(); why != "" {
			t.Errorf("held by nobody: %q", why)
		}
	})
}

// A rollout: the old replica releases the lease, the new one acquires it seconds later. In between we must not start.
func TestLeaseIsHandedOn(t *testing.T) {
	inTime(t, func(l *leases) {
		l.write("old", 15, 0)
		l.run()
		l.write("", 1, 0)
		if why := l.after(5 * time.Second); why == "" {
			t.Error("free at once when the lease was let go")
		}
		l.lead("new", 30*time.Second, 0)
		l.write("", 1, 0) // the last replica releases it
		if why := l.after(14 * time.Second); why == "" {
			t.Error("free too soon")
		}
		if why := l.after(2 * time.Second); why != "" {
			t.Errorf("held although it was let go: %q", why)
		}
	})
}

func TestLeaseIsDeleted(t *testing.T) {
	inTime(t, func(l *leases) {
		l.write("karpenter", 15, 0)
		l.run()
		if err := l.api.CoordinationV1().Leases("kube-system").Delete(t.Context(), ExternalLease, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if why := l.after(0); why != "" {
			t.Errorf("held by a lease that is gone: %q", why)
		}
	})
}

func TestOtherLeasesDontMatter(t *testing.T) {
	inTime(t, func(l *leases) {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-scheduler"},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("x"), RenewTime: &metav1.MicroTime{Time: time.Now()}}}
		if err := l.api.Tracker().Add(lease); err != nil {
			t.Fatal(err)
		}
		l.run()
		if why := l.held(); why != "" {
			t.Errorf("held: %q", why)
		}
	})
}

func TestKarpenterWithAnotherClock(t *testing.T) {
	for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			inTime(t, func(l *leases) {
				l.write("karpenter", 15, ahead)
				l.run()
				l.lead("karpenter", 30*time.Second, ahead)
				if l.held() == "" {
					t.Error("free although it renews")
				}
				if why := l.after(15 * time.Second); why != "" {
					t.Errorf("held although nobody renews: %q", why)
				}
			})
		})
	}
}

// The watch delivers nothing any more. Before nodes are launched beside a running Karpenter, the API server is asked.
func TestSilentWatchIsNoEnd(t *testing.T) {
	inTime(t, func(l *leases) {
		l.api.PrependWatchReactor("leases", func(clienttesting.Action) (bool, watch.Interface, error) { return true, watch.NewFake(), nil })
		var refuse atomic.Bool
		l.api.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return refuse.Load(), nil, errors.New("no route to host")
		})
		l.write("karpenter", 15, 0)
		l.run()
		l.lead("karpenter", 2*time.Minute, 0)
		if n := l.changes.Load(); n != 1 || l.held() == "" {
			t.Errorf("told %d times, held: %q", n, l.held())
		}
		refuse.Store(true)
		if why := l.after(time.Minute); !strings.Contains(why, "no route to host") {
			t.Errorf("held: %q, want it said that nobody knows", why)
		}
		refuse.Store(false)
		if why := l.after(time.Minute); why != "" {
			t.Errorf("held although nobody renews: %q", why)
		}
	})
}

func TestLeasesThatMayNotBeRead(t *testing.T) {
	inTime(t, func(l *leases) {
		var refuse atomic.Bool
		refuse.Store(true)
		l.api.PrependReactor("list", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return refuse.Load(), nil, apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "", errors.New("no"))
		})
		l.run()
		if why := l.after(time.Second); !strings.Contains(why, "forbidden") {
			t.Errorf("held: %q, want the reason", why)
		}
		refuse.Store(false)
		if why := l.after(time.Minute); why != "" {
			t.Errorf("held: %q", why)
		}
	})
}
