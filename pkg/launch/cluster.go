package launch

import (
	"context"
	"strings"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// writeTimeout is the deadline of one write to the API server.
const writeTimeout = 10 * time.Second

type apiCluster struct {
	client kubernetes.Interface
	podsOn func(node string) []*corev1.Pod
}

// NewCluster returns a Cluster that writes through a client. podsOn returns the pods that an informer shows bound to a node name.
func NewCluster(c kubernetes.Interface, podsOn func(node string) []*corev1.Pod) Cluster {
	return apiCluster{c, podsOn}
}

func (a apiCluster) PodsOn(node string) []*corev1.Pod { return a.podsOn(node) }

func (a apiCluster) EndPod(ctx context.Context, p *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err := a.client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64), Preconditions: &metav1.Preconditions{UID: &p.UID}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

func (a apiCluster) CreateNode(ctx context.Context, n *corev1.Node) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	_, err := a.client.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{})
	return err
}

func (a apiCluster) TryNode(ctx context.Context, n *corev1.Node) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	_, err := a.client.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

func (a apiCluster) GetNode(ctx context.Context, name string) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return a.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
}

// Events are written at this pace: the events of a thousand pods at once would delay the writes that matter, such as bindings and the
// lease.
const (
	eventsPerSecond = 50
	eventBurst      = 100
	eventBacklog    = 5000
)

// PacedRecorder writes events about pods at a limited pace, warnings first. It drops what exceeds the backlog: the log has everything that
// events say.
type PacedRecorder struct {
	recorder events.EventRecorder
	limit    *rate.Limiter
	// warnings have a queue of their own, so that thousands of events about planned nodes don't crowd out those for pods that get no node.
	warnings, queue chan podEvent
}

type podEvent struct {
	ref                     capacity.PodRef
	eventType, reason, note string
}

// NewRecorder returns a recorder that writes through r while Run runs. r must not block.
func NewRecorder(r events.EventRecorder) *PacedRecorder {
	return &PacedRecorder{recorder: r, limit: rate.NewLimiter(eventsPerSecond, eventBurst),
		warnings: make(chan podEvent, eventBacklog), queue: make(chan podEvent, eventBacklog)}
}

// Pod queues an event and returns at once.
func (p *PacedRecorder) Pod(ref capacity.PodRef, eventType, reason, note string) {
	queue := p.queue
	if eventType == corev1.EventTypeWarning {
		queue = p.warnings
	}
	select {
	case queue <- podEvent{ref, eventType, reason, note}:
	default:
	}
}

// Run writes events until ctx ends.
func (p *PacedRecorder) Run(ctx context.Context) {
	for {
		e, ok := p.next(ctx)
		if !ok || p.limit.Wait(ctx) != nil {
			return
		}
		obj := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: e.ref.Namespace, Name: e.ref.Name, UID: e.ref.UID}
		p.recorder.Eventf(obj, nil, e.eventType, e.reason, "Provisioning", "%s", short(e.note))
	}
}

// next waits for an event and returns false when ctx has ended.
func (p *PacedRecorder) next(ctx context.Context) (podEvent, bool) {
	select {
	case e := <-p.warnings:
		return e, true
	default:
	}
	select {
	case <-ctx.Done():
		return podEvent{}, false
	case e := <-p.warnings:
		return e, true
	case e := <-p.queue:
		return e, true
	}
}

// short turns a note into one line below the API's limit of 1,024 bytes.
func short(note string) string {
	const limit = 1000
	note = objects.OneLine(note)
	if len(note) > limit {
		return strings.ToValidUTF8(note[:limit], "") + " ..."
	}
	return note
}
