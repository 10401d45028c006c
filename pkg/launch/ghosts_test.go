package launch

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/ledger/backoff"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
)

func (w *world) queued() (pods []ledger.Waiting) {
	w.reservations.Read(func(l ledger.Reader) { pods = l.QueuedPods(l.Queue()) })
	return pods
}

// A pod is deleted or bound while its scheduling cycle still runs: if that cycle submitted it afterwards, no event would ever withdraw it.
func TestPodsThatHaveEndedAreNoDemand(t *testing.T) {
	for name, end := range map[string]func(w *world, pod *corev1.Pod){
		"deleted": func(w *world, pod *corev1.Pod) { w.pending.Handler().OnDelete(pod) },
		"on its way out": func(w *world, pod *corev1.Pod) {
			going := pod.DeepCopy()
			going.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			w.pending.Handler().OnUpdate(pod, going)
		},
		"bound": func(w *world, pod *corev1.Pod) {
			bound := pod.DeepCopy()
			bound.Spec.NodeName = "n"
			w.pending.Handler().OnUpdate(pod, bound)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.build()
			pod := w.pod(0)
			w.pending.Handler().OnAdd(pod, false)
			class, _ := w.pending.Classes.Class(pod)
			end(w, pod)
			if wait, why := w.reservations.Submit(capacity.RefOf(pod), class); wait || why == "" {
				t.Errorf("the cycle is told wait=%t, %q", wait, why)
			}
			w.reservations.SubmitUnknown(capacity.RefOf(pod), class)
			w.reservations.SubmitUnassumed(capacity.RefOf(pod), class)
			if st := w.reservations.Join(capacity.RefOf(pod), class); st != ledger.Unknown || len(w.queued()) > 0 || !w.reservations.Idle() {
				t.Errorf("the pod is %v, %d pods are queued", st, len(w.queued()))
			}
		})
	}
}

// Pods with scheduling gates become demand when these are removed.
func TestPodsWhoseGatesHaveGoneAreDemand(t *testing.T) {
	w := newWorld(t)
	w.build()
	pod := w.pod(0)
	gated := pod.DeepCopy()
	gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "g"}}
	w.pending.Handler().OnAdd(gated, false)
	w.pending.Handler().OnUpdate(gated, pod)
	class, _ := w.pending.Classes.Class(pod)
	if w.reservations.Submit(capacity.RefOf(pod), class); len(w.queued()) != 1 {
		t.Error("not queued")
	}
}

// A pod that waits again is planned for as it is now, whatever made it wait again.
func TestPodsThatHaveChangedSinceTheyWereRefused(t *testing.T) {
	w := newWorld(t)
	w.build()
	w.submit(2)
	again := func() []ledger.Waiting {
		w.reservations.Step(func(l *ledger.Ledger, now time.Time) {
			l.Refuse([]types.UID{"u0", "u1"}, "no", false, now)
			l.Changed()
			for l.TickPods(now.Add(backoff.First)) {
			}
		})
		waiting, _ := w.parts.demand.Gatherer.Gather(t.Context())
		return waiting
	}
	if got := again(); len(got) != 2 || got[0].Class.Key != got[1].Class.Key {
		t.Fatalf("want both of one class: %v", got)
	}
	tolerant := w.pod(1)
	tolerant.ResourceVersion, tolerant.Spec.Tolerations = "2", []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	w.pending.Handler().OnUpdate(w.pod(1), tolerant)
	want, _ := w.pending.Classes.Class(tolerant)
	if got := again(); len(got) != 2 || got[0].Class.Key == want.Key || got[1].Class.Key != want.Key {
		t.Errorf("want the second pod as it has become: %v", got)
	}
	volatile := w.pod(1)
	volatile.ResourceVersion = "3"
	volatile.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{}}}
	w.pending.Handler().OnUpdate(tolerant, volatile)
	if _, err := w.pending.Classes.Class(volatile); err == nil {
		t.Fatal("want a pod that can't be planned for")
	}
	if got := again(); len(got) != 1 || w.reservations.Knows("u1") {
		t.Errorf("want the pod that can't be planned for let go: %v", got)
	}
	w.reservations.Submit(capacity.RefOf(tolerant), want)
	if got, _ := w.parts.demand.Gatherer.Gather(t.Context()); len(got) != 2 {
		t.Errorf("it has come again, and has to wait: %v", got)
	}
}

// The class of a pod is also renewed when its reservation was released, but not when its own scheduling cycle has submitted a newer one.
func TestPodsThatHaveSpokenForThemselves(t *testing.T) {
	w := newWorld(t)
	w.build()
	w.submit(2)
	class, _ := w.pending.Classes.Class(w.pod(0))
	w.reservations.Step(func(l *ledger.Ledger, now time.Time) {
		l.Existing("n", ledger.NodeStatus{})
		l.Commit("1", []capacity.Placement{{Class: class, Pod: capacity.RefOf(w.pod(0)), Node: "n"}}, now)
		l.Refuse([]types.UID{"u1"}, "no", false, now)
		l.Tick(now)
	})
	tolerant := w.pod(1)
	tolerant.ResourceVersion, tolerant.Spec.Tolerations = "2", []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	want, _ := w.pending.Classes.Class(tolerant)
	w.pending.Handler().OnUpdate(w.pod(1), tolerant)
	w.pending.Handler().OnDelete(w.pod(0)) // its capacity is released
	w.reservations.Step(func(l *ledger.Ledger, now time.Time) { l.Tick(now.Add(backoff.First)) })
	if got, _ := w.parts.demand.Gatherer.Gather(t.Context()); len(got) != 1 || got[0].Class.Key != want.Key {
		t.Errorf("want it as it has become: %v", got)
	}
	plain := w.pod(1)
	plain.ResourceVersion = "3"
	class, _ = w.pending.Classes.Class(plain)
	w.reservations.Step(func(l *ledger.Ledger, now time.Time) {
		l.Refuse([]types.UID{"u1"}, "no", false, now)
		l.Changed()
		for l.TickPods(now.Add(backoff.First)) {
		}
	})
	w.reservations.Submit(capacity.RefOf(plain), class) // the scheduler's queue has the new version, Pending doesn't yet
	if got, _ := w.parts.demand.Gatherer.Gather(t.Context()); len(got) != 1 || got[0].Class.Key != class.Key {
		t.Errorf("want it as its cycle said: %v", got)
	}
}

// Preemption had its time, and the scheduler has found a node for the pod meanwhile: it is at Permit or PreBind.
func TestPodsBeingBoundAreNoDemand(t *testing.T) {
	w := newWorld(t)
	c := testingclock.NewFakeClock(time.Now())
	w.clock = c
	w.build()
	pod := w.pod(0)
	w.pending.Handler().OnAdd(pod, false)
	class, _ := w.pending.Classes.Class(pod)
	w.reservations.SubmitLater(capacity.RefOf(pod), class)
	if why := w.reservations.Assume(pod.UID, "old", false); why != nil {
		t.Fatal(why)
	}
	c.Step(time.Minute)
	w.reservations.SubmitUnassumed(capacity.RefOf(pod), class)
	w.reservations.SubmitUnknown(capacity.RefOf(pod), class)
	if n := len(w.queued()); n > 0 {
		t.Errorf("%d pods are queued", n)
	}
}

type gangOfTwo struct{}

func (gangOfTwo) Min(pending.Group) (int, bool) { return 2, true }

// A gang that can't be placed backs off: otherwise each of its members would cause another plan for all of them.
func TestRefusedGangRests(t *testing.T) {
	w := newWorld(t)
	w.clock = testingclock.NewFakeClock(time.Now())
	w.gangs = gangOfTwo{}
	w.build()
	m := w.parts
	w.capacity["small"], w.capacity["large"] = 0, 0
	for i := range 2 {
		pod := w.pod(i)
		pod.Labels = map[string]string{pending.LabelGroup: "g"}
		w.pending.Handler().OnAdd(pod, false)
		c, _ := w.pending.Classes.Class(pod)
		w.reservations.Submit(capacity.RefOf(pod), c)
	}
	m.Rounds.Round(t.Context())
	// The members' own back-off ends, and no pool has changed: only the gang's is left.
	w.reservations.Step(func(l *ledger.Ledger, now time.Time) {
		l.Relieved()
		for l.TickPods(now.Add(backoff.First)) {
		}
	})
	if n := len(w.queued()); n != 2 {
		t.Fatalf("%d pods are queued, want both that were refused", n)
	}
	if waiting, gangs := m.demand.Gatherer.Gather(t.Context()); len(waiting)+len(gangs) > 0 {
		t.Errorf("nothing keeps it from being planned for again at once: %d pods, %d gangs", len(waiting), len(gangs))
	}
}

// Victims that never end (a dead kubelet, a finalizer) don't keep a pod from its node for ever.
func TestVictimsThatNeverEnd(t *testing.T) {
	w := newWorld(t)
	c := testingclock.NewFakeClock(time.Now())
	w.clock = c
	w.build()
	m := w.parts
	victim := w.pod(7)
	victim.Spec.NodeName = "n"
	w.pending.Handler().OnAdd(victim, false)
	going := victim.DeepCopy()
	going.DeletionTimestamp = &metav1.Time{Time: c.Now()}
	w.pending.Handler().OnUpdate(victim, going)
	pod := w.pod(0)
	pod.Status.NominatedNodeName = "n"
	w.pending.Handler().OnAdd(pod, false)
	class, _ := w.pending.Classes.Class(pod)
	w.reservations.Submit(capacity.RefOf(pod), class)
	if waiting, _ := m.demand.Gatherer.Gather(t.Context()); len(waiting) > 0 {
		t.Error("planned for while its victim ends")
	}
	for range 2 {
		c.Step(31 * time.Second)
		w.reservations.Step(func(l *ledger.Ledger, now time.Time) { l.Tick(now) })
		if waiting, _ := m.demand.Gatherer.Gather(t.Context()); len(waiting) > 0 {
			return
		}
	}
	t.Error("not planned for a minute after its victim was to end")
}

// A pod is nominated before its victims are deleted, which takes seconds while the API server throttles: no instance is bought for it
// meanwhile.
func TestVictimsThatAreDeletedLate(t *testing.T) {
	for name, tc := range map[string]struct {
		deleted time.Duration // when the victim is seen terminating; zero: never
		gone    time.Duration // when it is gone
		planned time.Duration // when a plan is made for the pod
		grace   time.Duration // the victim's grace period
	}{
		"it ends late, and the room is no use":           {deleted: 8 * time.Second, gone: 20 * time.Second, planned: 45 * time.Second},
		"it ends late, and takes its time":               {deleted: 8 * time.Second, planned: 45 * time.Second},
		"it is never deleted":                            {planned: 15 * time.Second},
		"it ends at once, and the room is no use":        {deleted: time.Nanosecond, gone: 10 * time.Second, planned: 30 * time.Second},
		"it has the default grace period, and is late":   {deleted: time.Nanosecond, planned: 40 * time.Second, grace: 30 * time.Second},
		"it has a long grace period, and needs it":       {deleted: time.Nanosecond, planned: 130 * time.Second, grace: 2 * time.Minute},
		"it has a long grace period, and needs less":     {deleted: time.Nanosecond, gone: 50 * time.Second, planned: time.Minute, grace: 2 * time.Minute},
		"its grace period is longer than a launch takes": {deleted: time.Nanosecond, planned: 3 * time.Minute, grace: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			start := time.Now()
			c := testingclock.NewFakeClock(start)
			w.clock = c
			w.build()
			m := w.parts
			victim := w.pod(7)
			victim.Spec.NodeName = "n"
			w.pending.Handler().OnAdd(victim, false)
			going := victim.DeepCopy()
			going.DeletionTimestamp = &metav1.Time{Time: start.Add(tc.grace)}
			pod := w.pod(0)
			pod.Status.NominatedNodeName = "n"
			w.pending.Handler().OnAdd(pod, false)
			class, err := w.pending.Classes.Class(pod)
			if err != nil {
				t.Fatal(err)
			}
			w.reservations.Submit(capacity.RefOf(pod), class)
			planned := time.Duration(-1)
			for at := time.Duration(0); at < 5*time.Minute && planned < 0; at += time.Second {
				if tc.deleted > at-time.Second && tc.deleted <= at && tc.deleted > 0 || tc.deleted == time.Nanosecond && at == 0 {
					w.pending.Handler().OnUpdate(victim, going)
				}
				if at == tc.gone && at > 0 {
					w.pending.Handler().OnDelete(going)
				}
				w.reservations.Step(func(l *ledger.Ledger, now time.Time) { l.Tick(now) })
				if waiting, _ := m.demand.Gatherer.Gather(t.Context()); len(waiting) > 0 {
					planned = at
				}
				c.Step(time.Second)
			}
			if planned != tc.planned {
				t.Errorf("planned for after %v, want %v", planned, tc.planned)
			}
		})
	}
}

// The end of a claim by a scale-down is no failed launch, however often it is reported.
func TestShrinkingIsNoFailure(t *testing.T) {
	w := newWorld(t)
	w.build()
	m := w.parts
	claim := func(name string) {
		w.claims[name] = &capacity.Claim{Name: name, UID: name, Pool: "pool", Deleting: true, LaunchBatch: &capacity.LaunchBatch{For: capacity.ForPool}}
	}
	claim("x")
	m.statics.End("x")
	for range 3 {
		m.Claims.ClaimGone("x", "its NodeClaim was deleted")
	}
	if s := m.statics.Backoff("pool"); s.Failed > 0 {
		t.Errorf("it counts as %d failed launches", s.Failed)
	}
	claim("y")
	c := testingclock.NewFakeClock(time.Now())
	m.calls.clock = c
	for range 3 {
		m.Claims.ClaimGone("y", "its NodeClaim was deleted")
		c.Step(time.Hour)
	}
	if s := m.statics.Backoff("pool"); s.Failed != 1 {
		t.Error("one that failed doesn't count once")
	}
}

// slowClaims delays the creation of the first claim.
type slowClaims struct {
	*world
	write, deleted chan bool
}

func (s slowClaims) Create(ctx context.Context, c *capacity.Claim) (*capacity.Claim, error) {
	<-s.write
	return s.world.Create(ctx, c)
}

func (s slowClaims) Delete(ctx context.Context, name, uid string) error {
	err := s.world.Delete(ctx, name, uid)
	s.deleted <- true
	return err
}

// A static pool is scaled down before its last claim is written.
func TestShrinkBeforeTheClaimIsWritten(t *testing.T) {
	w := newWorld(t)
	w.build()
	m := w.parts
	s := slowClaims{w, make(chan bool), make(chan bool, 10)}
	m.claims.ClaimLog = s
	ctx, cancel := context.WithCancel(context.Background())
	replicas := func(n int64) {
		w.mu.Lock()
		w.replicas = &n
		w.mu.Unlock()
	}
	replicas(1)
	m.staticPools.Keep(ctx)
	replicas(0)
	m.staticPools.Keep(ctx)
	<-s.deleted
	close(s.write)
	<-s.deleted // given up once it was written
	w.until("no claim", func() bool { return len(w.claims) == 0 })
	if n := len(w.instances); n > 0 {
		t.Errorf("%d instances", n)
	}
	cancel()
	m.calls.wg.Wait()
}

// Pods of two Jobs wait as one class. Before they are planned for, a pod comes that must not share a node with one of the Jobs.
func TestPodsOfJobsThatAnotherPodSelects(t *testing.T) {
	w := newWorld(t)
	w.build()
	for i, job := range []string{"a", "b"} {
		pod := w.pod(i)
		pod.Labels = map[string]string{"job-name": job}
		w.pending.Handler().OnAdd(pod, false)
		class, err := w.pending.Classes.Class(pod)
		if err != nil {
			t.Fatal(err)
		}
		w.reservations.Submit(capacity.RefOf(pod), class)
	}
	waiting := func() []ledger.Waiting {
		waiting, _ := w.parts.demand.Gatherer.Gather(t.Context())
		return waiting
	}
	if got := waiting(); len(got) != 2 || got[0].Class.Key != got[1].Class.Key {
		t.Fatalf("want both of one class: %v", got)
	}
	selecting := w.pod(2)
	selecting.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
		{TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"job-name": "b"}}}}}}
	w.pending.Handler().OnAdd(selecting, false)
	if got := waiting(); len(got) != 2 || got[0].Class.Labels["job-name"] != "a" || got[1].Class.Labels["job-name"] != "b" {
		t.Errorf("want each with the name of its Job: %v", got)
	}
}
