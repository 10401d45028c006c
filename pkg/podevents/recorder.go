package podevents

import (
	"context"
	"strings"
	"sync"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Events are written at this pace: the events of a thousand pods at once would delay the writes that matter, such as bindings and the
// lease.
const (
	eventsPerSecond = 50
	eventBurst      = 100
	eventBacklog    = 5000
)

// Events that report a success, such as Nominated, are written at this rate for each reason; further ones are left out and counted. A burst of
// thousands of pods would cause thousands of requests, minutes late, and a user who looks at a few pods of a burst finds enough events.
const (
	successesPerSecond = 5
	successBurst       = 250
)

// Recorder writes events about pods at a limited pace, warnings first. Of other events it writes a sample under load (successesPerSecond), and it
// drops what exceeds the backlog of either. Which pods the events that were left out are about isn't recorded: a metric counts them, by reason.
type Recorder struct {
	recorder events.EventRecorder
	limit    *rate.Limiter
	// warnings have a queue of their own, so that thousands of events about planned nodes don't crowd out those for pods that get no node.
	warnings, queue chan event
	// successes limits the events that are no warnings, by reason. mu guards it.
	mu        sync.Mutex
	successes map[string]*rate.Limiter
}

type event struct {
	ref                     capacity.PodRef
	eventType, reason, note string
}

// New returns a recorder that writes through r while Run runs. r must not block.
func New(r events.EventRecorder) *Recorder {
	return &Recorder{recorder: r, limit: rate.NewLimiter(eventsPerSecond, eventBurst),
		warnings: make(chan event, eventBacklog), queue: make(chan event, eventBacklog), successes: map[string]*rate.Limiter{}}
}

// Pod queues an event and returns at once.
func (p *Recorder) Pod(ref capacity.PodRef, eventType, reason, note string) {
	queue := p.warnings
	if eventType != corev1.EventTypeWarning {
		if queue = p.queue; !p.sampled(reason) {
			leftOut.WithLabelValues(reason).Inc()
			return
		}
	}
	select {
	case queue <- event{ref, eventType, reason, note}:
	default:
		leftOut.WithLabelValues(reason).Inc()
	}
}

// sampled reports whether an event that is no warning is written. Reasons are few: they are constants.
func (p *Recorder) sampled(reason string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	limit := p.successes[reason]
	if limit == nil {
		limit = rate.NewLimiter(successesPerSecond, successBurst)
		p.successes[reason] = limit
	}
	return limit.Allow()
}

// Run writes events until ctx ends.
func (p *Recorder) Run(ctx context.Context) {
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
func (p *Recorder) next(ctx context.Context) (event, bool) {
	select {
	case e := <-p.warnings:
		return e, true
	default:
	}
	select {
	case <-ctx.Done():
		return event{}, false
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
