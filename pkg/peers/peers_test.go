package peers

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lease returns a Lease that a process holds and has just renewed. With a nil scope it has no record.
func lease(name string, scope *Scope) *coordinationv1.Lease {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: ptr.To(name + "-0"), LeaseDurationSeconds: ptr.To[int32](15), RenewTime: &metav1.MicroTime{Time: epoch}}}
	if scope != nil {
		l.Labels, l.Annotations = map[string]string{objects.LabelManagedBy: scope.Name}, map[string]string{objects.AnnotationScope: scope.Encode()}
	}
	return l
}

// by returns a scope as the replica with that identity records it.
func by(holder string, s *Scope) *Scope {
	out := *s
	out.Holder = holder
	return &out
}

func scope(name string) *Scope {
	return &Scope{Name: name, NodePools: []string{"team=" + name}, Schedulers: []string{name}}
}

type world struct {
	*Peers
	kube  *fake.Clientset
	clock *testingclock.FakeClock
}

// newWorld returns the peers of a Dovetail with that scope, whose Lease is there and has no record yet.
func newWorld(of Scope, others ...runtime.Object) *world {
	w := &world{kube: fake.NewClientset(append(others, lease("ours", nil))...), clock: testingclock.NewFakeClock(epoch)}
	w.Peers = New(Config{Kube: w.kube, Clock: w.clock, Lease: types.NamespacedName{Namespace: "kube-system", Name: "ours"}, Scope: of,
		Pools: func(context.Context) (map[string]labels.Set, error) {
			return map[string]labels.Set{"NodePool apples": {"team": "red", "tier": "cheap"}, "Provisioner plums": {"team": "blue"}}, nil
		}})
	return w
}

func (w *world) lease(t *testing.T, name string) *coordinationv1.Lease {
	t.Helper()
	l, err := w.kube.CoordinationV1().Leases("kube-system").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Whom a Dovetail doesn't go together with, and what it says about that.
func TestConflicts(t *testing.T) {
	with := func(name string, change func(*Scope)) *Scope {
		s := scope(name)
		change(s)
		return s
	}
	for _, tc := range []struct {
		name   string
		ours   *Scope
		theirs *Scope
		want   string // empty: both go together
	}{
		{"pools of their own", scope("red"), scope("blue"), ""},
		{"one without a name beside one with", &Scope{}, scope("blue"),
			`ProvisionArgs: name: Required value: Dovetail "blue" (lease kube-system/theirs, held by theirs-0) manages nodes of this cluster`},
		{"two without", &Scope{}, &Scope{}, "ProvisionArgs: name: Required value: a Dovetail without a name (lease kube-system/theirs, held by theirs-0) manages nodes of this cluster"},
		{"one with a name beside one without", scope("red"), &Scope{}, `ProvisionArgs: name: Invalid value: "red": a Dovetail without a name (lease kube-system/theirs, held by theirs-0) manages all nodes of this cluster`},
		{"the same name", scope("red"), with("red", func(s *Scope) { s.NodePools, s.Schedulers = nil, nil }), `ProvisionArgs: name: Invalid value: "red": Dovetail "red" (lease kube-system/theirs, held by theirs-0) has this name already`},
		{"a scheduler of both", with("red", func(s *Scope) { s.Schedulers = []string{"red", "default-scheduler"} }), with("blue", func(s *Scope) { s.Schedulers = []string{"default-scheduler"} }),
			`ProvisionArgs: schedulerName: Invalid value: "default-scheduler": Dovetail "blue"`},
		{"a queue of both", with("red", func(s *Scope) { s.Queue = "q" }), with("blue", func(s *Scope) { s.Queue = "q" }), `ProvisionArgs: interruptionQueue: Invalid value: "q": Dovetail "blue"`},
		{"two queues", with("red", func(s *Scope) { s.Queue = "q" }), with("blue", func(s *Scope) { s.Queue = "r" }), ""},
		{"no queue", with("red", func(s *Scope) { s.Queue = "" }), with("blue", func(s *Scope) { s.Queue = "" }), ""},
		{"the same selector, although no pool matches", with("red", func(s *Scope) { s.NodePools = []string{"x=y"} }), with("blue", func(s *Scope) { s.NodePools = []string{"x=y"} }), `ProvisionArgs: nodePoolSelector: Invalid value: "x=y": Dovetail "blue"`},
		{"a pool of both", scope("red"), with("blue", func(s *Scope) { s.NodePools = []string{"team=blue", "tier=cheap"} }),
			`ProvisionArgs: nodePoolSelector: Invalid value: "team=red": NodePool apples is also selected by Dovetail "blue" (lease kube-system/theirs, held by theirs-0), whose nodePoolSelector is "tier=cheap"`},
		{"all pools", scope("blue"), with("green", func(s *Scope) { s.NodePools = []string{""} }), `ProvisionArgs: nodePoolSelector: Invalid value: "team=blue": Provisioner plums is also selected by Dovetail "green"`},
		{"a selector of a later version", scope("red"), with("blue", func(s *Scope) { s.NodePools = []string{"{"} }), `ProvisionArgs: nodePoolSelector: Invalid value: "team=red": NodePool apples is also selected`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(*tc.ours, lease("theirs", tc.theirs))
			for what, err := range map[string]error{"Check": w.Check(t.Context()), "Register": w.Register(t.Context())} {
				switch {
				case tc.want == "" && err != nil:
					t.Errorf("%s: %v", what, err)
				case tc.want != "" && (err == nil || !errors.Is(err, ErrConflict) || !strings.HasPrefix(err.Error(), tc.want)):
					t.Errorf("%s: %v, want %s", what, err, tc.want)
				}
			}
			// Only one that acts leaves a record, so that two that gave up don't keep each other from a second try.
			if _, recorded := w.lease(t, "ours").Labels[objects.LabelManagedBy]; recorded != (tc.want == "") {
				t.Errorf("our record is on our lease: %v", recorded)
			}
		})
	}
}

// Leases that say nothing of a Dovetail that is active are no conflict, and one whose record can't be read is.
func TestWhoIsActive(t *testing.T) {
	released, record := lease("theirs", &Scope{}), lease("theirs", &Scope{})
	released.Spec.HolderIdentity = ptr.To("")
	record.Annotations[objects.AnnotationScope] = "v2:"
	replica := lease("ours", scope("crimson")) // as an earlier leader left it, perhaps with other arguments
	for name, tc := range map[string]struct {
		lease *coordinationv1.Lease
		want  string
	}{
		"a lease without a record":     {lease: lease("theirs", nil)},
		"one that was released":        {lease: released},
		"one that can't be read":       {lease: record, want: "lease kube-system/theirs: annotation dovetail.sh/scope"},
		"another of the same Dovetail": {lease: replica},
	} {
		w := newWorld(*scope("red"))
		if tc.lease == replica {
			w.kube = fake.NewClientset(tc.lease)
		} else {
			w.kube = fake.NewClientset(tc.lease, lease("ours", nil))
		}
		w.Kube = w.kube
		err := w.Register(t.Context())
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
		if err == nil && w.lease(t, "ours").Annotations[objects.AnnotationScope] != by("ours-0", scope("red")).Encode() {
			t.Errorf("%s: our lease says %v", name, w.lease(t, "ours").Annotations)
		}
	}
}

// A Lease that looks old may be that of a process whose clock is behind: only one that isn't renewed for as long as it lasts is a dead one's. A
// record that isn't of the Lease's holder is one of a Dovetail that has stopped, if the holder doesn't write its own within that time.
func TestLeasesThatLookOld(t *testing.T) {
	for name, tc := range map[string]struct {
		age           time.Duration
		record, later *Scope
		renewed, fits bool
	}{
		"dead":                                {time.Hour, &Scope{}, &Scope{}, false, true},
		"its clock is behind":                 {time.Hour, &Scope{}, &Scope{}, true, false},
		"kube-scheduler is back in its place": {0, by("gone", &Scope{}), by("gone", &Scope{}), true, true},
		"its next leader":                     {0, by("gone", &Scope{}), by("theirs-0", &Scope{}), true, false},
	} {
		t.Run(name, func(t *testing.T) {
			renewed := tc.renewed
			old := lease("theirs", tc.record)
			old.Spec.RenewTime.Time = epoch.Add(-tc.age)
			w := newWorld(*scope("red"), old)
			if err := w.Check(t.Context()); err != nil {
				t.Errorf("it isn't known to be active: %v", err)
			}
			result := make(chan error, 1)
			go func() { result <- w.Register(t.Context()) }()
			eventually(t, w.clock.HasWaiters)
			if renewed {
				old.Spec.RenewTime.Time = epoch.Add(-tc.age + 10*time.Second)
				old.Annotations[objects.AnnotationScope] = tc.later.Encode()
				if _, err := w.kube.CoordinationV1().Leases("kube-system").Update(t.Context(), old, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			select {
			case err := <-result:
				t.Fatalf("it doesn't wait: %v", err)
			default:
			}
			w.clock.Step(15 * time.Second)
			if err := <-result; (err == nil) != tc.fits {
				t.Errorf("registering: %v", err)
			}
		})
	}
}

// Whoever can't write the record doesn't act, except one that was alone before there were names: its role may be an older one.
func TestRecordsThatCantBeWritten(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "ours", errors.New("no"))
	for name, tc := range map[string]struct {
		scope Scope
		err   error
		waits bool
	}{
		"without a name, forbidden": {Scope{}, forbidden, false},
		"with a name, forbidden":    {*scope("red"), forbidden, true},
		"without a name, no answer": {Scope{}, errors.New("no answer"), true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(tc.scope)
			fails := true
			w.kube.PrependReactor("patch", "leases", func(clienttesting.Action) (bool, runtime.Object, error) { return fails, nil, tc.err })
			result := make(chan error, 1)
			go func() { result <- w.Register(t.Context()) }()
			if tc.waits {
				eventually(t, w.clock.HasWaiters)
				fails = false
				w.clock.Step(retryEvery)
			}
			if err := <-result; err != nil {
				t.Error(err)
			}
			if _, recorded := w.lease(t, "ours").Labels[objects.LabelManagedBy]; recorded != tc.waits {
				t.Errorf("recorded: %v", recorded)
			}
		})
	}
}

// Leases that may not be listed stop one with a name. One without a name was alone before there were names, and goes on with its older role.
func TestLeasesThatMayNotBeListed(t *testing.T) {
	for name, sc := range map[string]Scope{"without a name": {}, "with a name": *scope("red")} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(sc)
			fails := true
			w.kube.PrependReactor("list", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
				return fails, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "", errors.New("no"))
			})
			result := make(chan error, 1)
			go func() { result <- w.Register(t.Context()) }()
			if sc.Name != "" {
				eventually(t, w.clock.HasWaiters)
				fails = false
				w.clock.Step(retryEvery)
			}
			if err := <-result; err != nil {
				t.Error(err)
			}
		})
	}
}

// While we act, a pool may be labelled so that another Dovetail selects it, too. Neither uses it then. A Lease that is deleted takes our record
// with it, and gets it back when it is there again.
func TestWhileActing(t *testing.T) {
	w := newWorld(*scope("red"), lease("theirs", scope("blue")))
	changed := make(chan struct{}, 10)
	w.OnChange(func() { changed <- struct{}{} })
	if err := w.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	watching := w.watched()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	<-changed
	<-watching // the fake API server forgets what happens between a list and the watch that follows it
	if why := w.Shared(map[string]string{"team": "red"}); why != "" {
		t.Errorf("our pool: %s", why)
	}
	const want = `Dovetail "blue" (lease kube-system/theirs, held by theirs-0) selects it, too (nodePoolSelector "team=blue"): neither launches nodes there`
	if why := w.Shared(map[string]string{"team": "blue"}); why != want {
		t.Errorf("their pool: %s, want %s", why, want)
	}
	leases := w.kube.CoordinationV1().Leases("kube-system")
	if err := leases.Delete(ctx, "ours", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, w.clock.HasWaiters) // there is no lease to write to
	if _, err := leases.Create(ctx, lease("ours", nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.clock.Step(retryEvery)
	eventually(t, func() bool {
		return w.lease(t, "ours").Annotations[objects.AnnotationScope] == by("ours-0", scope("red")).Encode()
	})

	// Its next holder has yet to write a record: what is known of it lasts a little longer, and isn't prolonged.
	theirs := lease("theirs", by("theirs-0", scope("blue")))
	theirs.Spec.HolderIdentity = ptr.To("theirs-1")
	for range 2 {
		w.observe(theirs, false)
		if why := w.Shared(map[string]string{"team": "blue"}); why == "" {
			t.Error("their pool is free while their leader changes")
		}
		w.clock.Step(10 * time.Second)
	}
	w.clock.Step(time.Hour)
	w.observe(theirs, false)
	if why := w.Shared(map[string]string{"team": "blue"}); why != "" {
		t.Errorf("an hour later it isn't active any more: %s", why)
	}
	if err := leases.Delete(ctx, "theirs", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	<-changed
}

// watched returns a channel that is closed when Leases are watched.
func (w *world) watched() <-chan struct{} {
	begun := make(chan struct{})
	var once sync.Once
	w.kube.PrependWatchReactor("leases", func(a clienttesting.Action) (bool, watch.Interface, error) {
		if o := a.(clienttesting.WatchActionImpl).ListOptions; o.SendInitialEvents != nil && *o.SendInitialEvents {
			return false, nil, nil // in place of a list
		}
		got, err := w.kube.Tracker().Watch(a.GetResource(), a.GetNamespace())
		once.Do(func() { close(begun) })
		return true, got, err
	})
	return begun
}

func eventually(t *testing.T, f func() bool) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 20*time.Second, true, func(context.Context) (bool, error) { return f(), nil }); err != nil {
		t.Fatal("it never happens")
	}
}
