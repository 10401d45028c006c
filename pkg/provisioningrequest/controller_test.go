package provisioningrequest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/dovetail-scheduler/dovetail/pkg/bookings"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	provisioningv1 "github.com/dovetail-scheduler/dovetail/pkg/provisioningrequest/v1"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func podTemplate(name, cpu string, change ...func(*corev1.PodSpec)) *corev1.PodTemplate {
	spec := corev1.PodSpec{SchedulerName: "ours", Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}}}}
	for _, f := range change {
		f(&spec)
	}
	return &corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: name}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}}, Spec: spec}}
}

func request(class string, change ...func(*provisioningv1.Spec)) *provisioningv1.ProvisioningRequest {
	pr := &provisioningv1.ProvisioningRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "train", UID: "uid", CreationTimestamp: metav1.NewTime(epoch)},
		Spec: provisioningv1.Spec{ProvisioningClassName: class, PodSets: []provisioningv1.PodSet{{PodTemplateRef: provisioningv1.Reference{Name: "worker"}, Count: 4}}}}
	for _, f := range change {
		f(&pr.Spec)
	}
	return pr
}

// world is what a Controller works with.
type world struct {
	*Controller
	kube   *fake.Clientset
	clock  *testingclock.FakeClock
	all    []*provisioningv1.ProvisioningRequest
	known  bool
	saved  int
	broken error // of writes
	set    []bookings.Request
	sets   int
	states map[types.UID]bookings.State
}

func (w *world) Requests() ([]*provisioningv1.ProvisioningRequest, bool) { return w.all, w.known }

func (w *world) SaveRequestStatus(_ context.Context, base, changed *provisioningv1.ProvisioningRequest) error {
	w.saved++
	if w.broken != nil {
		return w.broken
	}
	for i, pr := range w.all {
		if pr == base {
			w.all[i] = changed
		}
	}
	return nil
}

func (w *world) Set(all []bookings.Request)           { w.set, w.sets = all, w.sets+1 }
func (w *world) Report() map[types.UID]bookings.State { return w.states }

func newWorld(pr *provisioningv1.ProvisioningRequest, objects ...runtime.Object) *world {
	w := &world{kube: fake.NewClientset(objects...), clock: testingclock.NewFakeClock(epoch), known: true, all: []*provisioningv1.ProvisioningRequest{pr}}
	w.Controller = New(Config{Kube: w.kube, Store: w, Bookings: w, Clock: w.clock, Hold: func() error { return nil }, Admit: func(*corev1.Pod) {},
		Ours:  func(s string) bool { return s == "ours" },
		Class: func(pod *corev1.Pod) (*capacity.Class, error) { return capacity.ClassOf(pod, capacity.VolumeInfo{}) }})
	return w
}

// is makes a pass with that state, and returns the conditions after it.
func (w *world) is(s bookings.State) (conditions []string) {
	w.states = map[types.UID]bookings.State{"uid": s}
	w.pass(context.Background())
	for _, c := range w.all[0].Status.Conditions {
		conditions = append(conditions, fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason))
	}
	return conditions
}

func parameter(key, value string) func(*provisioningv1.Spec) {
	return func(s *provisioningv1.Spec) { s.Parameters = map[string]string{key: value} }
}

// What is wrong with a request is said in its condition Failed, with the field and the object.
func TestBadRequestsFail(t *testing.T) {
	for _, tc := range []struct {
		name    string
		change  func(*provisioningv1.Spec)
		objects []runtime.Object
		want    string
	}{
		{"no pods", func(s *provisioningv1.Spec) { s.PodSets = nil }, nil, "spec.podSets: must not be empty"},
		{"none of them", func(s *provisioningv1.Spec) { s.PodSets[0].Count = 0 }, nil, "spec.podSets[0].count: 0 is less than 1"},
		{"too many", func(s *provisioningv1.Spec) { s.PodSets[0].Count = 10_001 }, nil, "at most 10000"},
		{"time", parameter("ValidUntilSeconds", "1h"), nil, `spec.parameters[ValidUntilSeconds]: "1h" is not a number of seconds`},
		{"retry", parameter("noRetry", "yes"), nil, `spec.parameters[noRetry]: "yes" is neither true nor false`},
		{"part", parameter("partialCapacityCheck", "bookPartial"), nil, `spec.parameters[partialCapacityCheck]: "bookPartial" is not supported`},
		{"scheduler", nil, []runtime.Object{podTemplate("worker", "1", func(s *corev1.PodSpec) { s.SchedulerName = "theirs" })}, `spec.podSets[0].podTemplateRef: PodTemplate "worker": pods of its schedulerName, "theirs"`},
		{"pods", nil, []runtime.Object{podTemplate("worker", "1", func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "cores", Operator: corev1.NodeSelectorOpGt, Values: []string{"many"}}}}}}}}
		})}, `spec.podSets[0].podTemplateRef: PodTemplate "worker": its pods can't be planned for`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pr := request(provisioningv1.ClassCheckCapacity)
			if tc.change != nil {
				tc.change(&pr.Spec)
			}
			w := newWorld(pr, tc.objects...)
			w.pass(context.Background())
			c := apimeta.FindStatusCondition(w.all[0].Status.Conditions, provisioningv1.Failed)
			if c == nil || c.Status != metav1.ConditionTrue || c.Reason != reasonBadPods || !strings.Contains(c.Message, tc.want) || !strings.Contains(c.Message, "lab/train") {
				t.Errorf("condition %+v, want one that says %q", c, tc.want)
			}
			if len(w.set) > 0 {
				t.Errorf("capacity is wanted for it: %+v", w.set)
			}
			w.pass(context.Background())
			if w.saved != 1 {
				t.Errorf("%d writes", w.saved)
			}
		})
	}
}

// Kueue creates a request first and its templates afterwards. An API server without an answer is asked again.
func TestTemplatesAreAwaited(t *testing.T) {
	w := newWorld(request(provisioningv1.ClassBestEffortAtomic))
	if w.pass(context.Background()); len(w.set) > 0 || w.saved > 0 {
		t.Fatalf("without a template: %+v, %d writes", w.set, w.saved)
	}
	w.kube.PrependReactor("get", "podtemplates", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no answer") })
	w.clock.Step(2 * templateTime)
	if w.pass(context.Background()); len(w.set) > 0 || w.saved > 0 {
		t.Fatalf("without an answer: %+v, %d writes", w.set, w.saved)
	}
	w.kube.ReactionChain = w.kube.ReactionChain[1:]
	created := newWorld(request(provisioningv1.ClassBestEffortAtomic), podTemplate("worker", "2"))
	created.pass(context.Background())
	if len(created.set) != 1 || !created.set[0].Buys || created.set[0].Pods() != 4 || created.set[0].Sets[0].Class.Request != "train" || created.set[0].Sets[0].Class.Requests["cpu"] != 2000 {
		t.Errorf("wanted: %+v", created.set)
	}
	if w.pass(context.Background()); !apimeta.IsStatusConditionTrue(w.all[0].Status.Conditions, provisioningv1.Failed) {
		t.Errorf("a template is awaited for ever: %+v", w.all[0].Status)
	}
}

// The conditions of a request from its acceptance to its end.
func TestConditions(t *testing.T) {
	accepted := "Accepted=True Accepted"
	for _, tc := range []struct {
		name   string
		class  string
		change func(*provisioningv1.Spec)
		states []bookings.State
		after  time.Duration // before the last one
		want   []string
		keep   bool // it is wanted still
	}{
		{name: "nothing was looked for yet", states: []bookings.State{{}}, want: []string{accepted}, keep: true},
		{name: "capacity is there", states: []bookings.State{{Phase: bookings.Ready, Tried: true}}, want: []string{accepted, "Provisioned=True CapacityIsFound"}, keep: true},
		{name: "none is there for now", states: []bookings.State{{Tried: true, Why: "full"}}, want: []string{accepted, "Provisioned=False CapacityIsNotFound"}, keep: true},
		{name: "no retry", class: provisioningv1.ClassCheckCapacity, change: parameter("noRetry", "true"), states: []bookings.State{{Tried: true, Why: "full"}},
			want: []string{accepted, "Failed=True CapacityIsNotFound"}},
		{name: "nodes are launched", states: []bookings.State{{Phase: bookings.Launching, Tried: true, Bought: true}}, want: []string{accepted, "Provisioned=False NodesAreLaunched"}, keep: true},
		{name: "they are there", states: []bookings.State{{Phase: bookings.Launching, Tried: true, Bought: true}, {Phase: bookings.Ready, Tried: true, Bought: true}},
			want: []string{accepted, "Provisioned=True CapacityIsProvisioned"}, keep: true},
		{name: "they can't be had", states: []bookings.State{{Phase: bookings.GivenUp, Tried: true}}, want: []string{accepted, "Failed=True CapacityIsNotFound"}},
		{name: "not in time", change: parameter("ValidUntilSeconds", "60"), states: []bookings.State{{Tried: true}, {Tried: true}}, after: time.Minute,
			want: []string{accepted, "Provisioned=False CapacityIsNotFound", "Failed=True Expired"}},
		{name: "not within a week", states: []bookings.State{{Tried: true}, {Tried: true}}, after: 7 * 24 * time.Hour,
			want: []string{accepted, "Provisioned=False CapacityIsNotFound", "Failed=True Expired"}},
		{name: "just in time", change: parameter("ValidUntilSeconds", "60"), states: []bookings.State{{}, {Phase: bookings.Ready}}, after: time.Minute,
			want: []string{accepted, "Provisioned=True CapacityIsFound"}, keep: true},
		{name: "its time is nearly over", states: []bookings.State{{Phase: bookings.Ready}, {Phase: bookings.Ready}}, after: bookings.KeptFor - time.Second,
			want: []string{accepted, "Provisioned=True CapacityIsFound"}, keep: true},
		{name: "its time is over", states: []bookings.State{{Phase: bookings.Ready}, {Phase: bookings.Ready}}, after: bookings.KeptFor,
			want: []string{accepted, "Provisioned=True CapacityIsFound", "BookingExpired=True CapacityReservationTimeExpired"}},
		{name: "all pods have come", states: []bookings.State{{Phase: bookings.Ready}, {Phase: bookings.Consumed}}, after: time.Minute,
			want: []string{accepted, "Provisioned=True CapacityIsFound", "BookingExpired=True CapacityBookingConsumed"}},
		{name: "it was lost", states: []bookings.State{{Phase: bookings.Ready}, {Phase: bookings.Revoked, Why: "the node was deleted"}}, after: time.Minute,
			want: []string{accepted, "Provisioned=True CapacityIsFound", "CapacityRevoked=True CapacityLost"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			class := provisioningv1.ClassBestEffortAtomic
			if tc.class != "" {
				class = tc.class
			}
			pr := request(class)
			if tc.change != nil {
				tc.change(&pr.Spec)
			}
			w := newWorld(pr, podTemplate("worker", "1"))
			var got []string
			for i, s := range tc.states {
				if i == len(tc.states)-1 {
					w.clock.Step(tc.after)
				}
				got = w.is(s)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			if kept := len(w.set) == 1; kept != tc.keep {
				t.Errorf("wanted still: %t, want %t", kept, tc.keep)
			}
			writes := w.saved
			if w.is(tc.states[len(tc.states)-1]); w.saved != writes {
				t.Errorf("%d writes of a status that hasn't changed", w.saved-writes)
			}
			if len(w.set) == 1 && w.set[0].Until.IsZero() == apimeta.IsStatusConditionTrue(w.all[0].Status.Conditions, provisioningv1.Provisioned) {
				t.Errorf("booked until %v, status %+v", w.set[0].Until, w.all[0].Status)
			}
		})
	}
}

// A new leader that can't read at once what a request asks for ends nothing that was booked for it, and says nothing wrong of it.
func TestRequestsThatTheLastLeaderAnswered(t *testing.T) {
	told := func() *provisioningv1.ProvisioningRequest {
		pr := request(provisioningv1.ClassBestEffortAtomic)
		apimeta.SetStatusCondition(&pr.Status.Conditions, metav1.Condition{Type: provisioningv1.Provisioned, Status: metav1.ConditionTrue, Reason: reasonFound, LastTransitionTime: metav1.NewTime(epoch)})
		return pr
	}
	w := newWorld(told(), podTemplate("worker", "1"))
	w.kube.PrependReactor("get", "podtemplates", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("no answer") })
	if w.pass(context.Background()); w.sets > 0 || w.saved > 0 {
		t.Errorf("without an answer: set %d times, %d writes", w.sets, w.saved)
	}
	w.kube.ReactionChain = w.kube.ReactionChain[1:]
	if w.pass(context.Background()); len(w.set) != 1 {
		t.Errorf("with an answer: %+v", w.set)
	}

	gone := newWorld(told())
	gone.clock.Step(bookings.KeptFor / 2)
	for _, condition := range gone.is(bookings.State{Phase: bookings.Ready}) { // what bookings says of a request without pods
		if strings.HasPrefix(condition, provisioningv1.Failed+"=True") {
			t.Errorf("its template was deleted after its pods were made: %s", condition)
		}
	}
}

// Where there are several Dovetails, a request is answered by the one that schedules the pods of its first pod set. It refuses pods of others.
func TestAnotherDovetailsRequest(t *testing.T) {
	theirs := func(s *corev1.PodSpec) { s.SchedulerName = "theirs" }
	two := func(first, second string) func(*provisioningv1.Spec) {
		return func(s *provisioningv1.Spec) {
			s.PodSets = []provisioningv1.PodSet{{PodTemplateRef: provisioningv1.Reference{Name: first}, Count: 1}, {PodTemplateRef: provisioningv1.Reference{Name: second}, Count: 1}}
		}
	}
	for name, tc := range map[string]struct {
		first, second string
		answered      bool
	}{"all theirs": {"b", "b", false}, "the first is theirs": {"b", "a", false}, "the second is theirs": {"a", "b", true}, "all ours": {"a", "a", true}} {
		w := newWorld(request(provisioningv1.ClassCheckCapacity, two(tc.first, tc.second)), podTemplate("a", "1"), podTemplate("b", "1", theirs))
		w.Several = true
		if got := w.is(bookings.State{}); (len(got) > 0) != tc.answered {
			t.Errorf("%s: conditions %v", name, got)
		}
		if ours := tc.second == "a" && tc.answered; (len(w.set) > 0) != ours {
			t.Errorf("%s: %d requests are booked", name, len(w.set))
		}
	}
}

// Requests of other classes are others' business, and a write that fails is made again.
func TestWhoseRequestItIs(t *testing.T) {
	w := newWorld(request("queued-provisioning.example.com"), podTemplate("worker", "1"))
	if w.pass(context.Background()); w.saved > 0 || len(w.set) > 0 {
		t.Errorf("a request of another class: %d writes, wanted %v", w.saved, w.set)
	}
	w = newWorld(request(provisioningv1.ClassCheckCapacity), podTemplate("worker", "1"))
	w.broken = errors.New("conflict")
	w.pass(context.Background())
	w.broken = nil
	if got := w.is(bookings.State{}); len(got) != 1 || w.saved != 2 {
		t.Errorf("%v after %d writes", got, w.saved)
	}
	w.known = false
	w.set = nil
	if w.pass(context.Background()); w.set != nil {
		t.Error("bookings are set before the requests are known: all of them would end")
	}
}
