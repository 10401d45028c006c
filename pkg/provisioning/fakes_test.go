package provisioning

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/pending"
	"github.com/dovetail-scheduler/dovetail/pkg/reservations"
)

// unscheduled returns a pod of a ReplicaSet that wants one CPU.
func unscheduled(i int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint("u", i)),
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", UID: "rs", Controller: ptr.To(true)}}},
		Spec: corev1.PodSpec{SchedulerName: "s", Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}}}},
	}
}

// smallType returns an instance type with one CPU and without offerings.
func smallType() *capacity.InstanceType {
	size := capacity.Resources{corev1.ResourceCPU: 1000, corev1.ResourcePods: 10}
	return &capacity.InstanceType{Name: "small", Capacity: size, Allocatable: size, Labels: map[string]string{}}
}

// world is pods that wait, with a ledger and the events that they get.
type world struct {
	clock        *clocktesting.FakeClock
	reservations *reservations.Ledger
	pending      *pending.Pods
	notes        []string
}

func newWorld() *world {
	w := &world{clock: clocktesting.NewFakeClock(time.Unix(1_000_000, 0))}
	w.reservations = reservations.New(w.clock)
	w.pending = pending.New(pending.Config{Schedulers: []string{"s"}, Others: []string{"theirs"}, Events: w}, w.reservations,
		pending.NewClasses(informers.NewSharedInformerFactory(fake.NewClientset(), 0)))
	return w
}

// Pod records an event.
func (w *world) Pod(ref capacity.PodRef, _, reason, note string) {
	w.notes = append(w.notes, ref.Name+" "+reason+" "+note)
}

func (w *world) refusals() *Refusals {
	return &Refusals{reservations: w.reservations, pending: w.pending, events: w}
}

func (w *world) namespaces() *Namespaces {
	return &Namespaces{pending: w.pending, refusals: w.refusals(), triggers: newTriggers(w.reservations)}
}

func (w *world) replacements() *Replacements {
	return &Replacements{reservations: w.reservations, pending: w.pending, namespaces: w.namespaces(), triggers: newTriggers(w.reservations), clock: w.clock, moves: map[string]*move{}}
}

// claims are NodeClaims by name, and the taints that nodes of all pools get.
type claims struct {
	Claims
	of       map[string]*capacity.Claim
	expected []corev1.Taint
}

func (c *claims) All() map[string]*capacity.Claim      { return c.of }
func (c *claims) Current(name string) *capacity.Claim  { return c.of[name] }
func (c *claims) ExpectedTaints(string) []corev1.Taint { return c.expected }
