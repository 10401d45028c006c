package observe

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/core"
	corev1 "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// SharePods returns the factory with another informer for pods. Handlers that are added to this informer before its first event get their events
// one after the other from one goroutine; an ordinary informer has two goroutines and two channels for each handler, and with many handlers waking
// them takes longer than what the handlers do. One that blocks holds up the others. A handler that is added later gets goroutines of its own. Add
// handlers before the informer is started: one that is added between that and the first event takes its registration for synced too early.
func SharePods(f informers.SharedInformerFactory) informers.SharedInformerFactory {
	return factory{f, &sharing{SharedIndexInformer: f.Core().V1().Pods().Informer()}}
}

type factory struct {
	informers.SharedInformerFactory
	pods *sharing
}

func (f factory) Core() core.Interface { return group{f.SharedInformerFactory.Core(), f.pods} }

type group struct {
	core.Interface
	pods *sharing
}

func (g group) V1() corev1.Interface { return version{g.Interface.V1(), g.pods} }

type version struct {
	corev1.Interface
	pods *sharing
}

func (v version) Pods() corev1.PodInformer { return podInformer{v.Interface.Pods(), v.pods} }

type podInformer struct {
	corev1.PodInformer
	pods *sharing
}

func (p podInformer) Informer() cache.SharedIndexInformer { return p.pods }

// sharing is an informer with one handler for all that were added before the first event.
type sharing struct {
	cache.SharedIndexInformer

	mu       sync.Mutex
	shared   cache.ResourceEventHandlerRegistration // nil before there is a handler
	handlers []cache.ResourceEventHandler           // none is added after begun, so that events need no lock
	begun    atomic.Bool                            // there was an event
}

// AddEventHandler implements cache.SharedInformer.
func (s *sharing) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.begun.Load() {
		return s.SharedIndexInformer.AddEventHandler(h)
	}
	if s.shared == nil {
		registration, err := s.SharedIndexInformer.AddEventHandler(events{s})
		if err != nil {
			return nil, fmt.Errorf("watching pods: %w", err)
		}
		s.shared = registration
	}
	s.handlers = append(s.handlers, h)
	return s.shared, nil
}

// RemoveEventHandler implements cache.SharedInformer, except for handlers that share their goroutine.
func (s *sharing) RemoveEventHandler(r cache.ResourceEventHandlerRegistration) error {
	s.mu.Lock()
	shared := s.shared
	s.mu.Unlock()
	if r == shared {
		return errors.New("a handler of pods that was added before the first event can't be removed")
	}
	return s.SharedIndexInformer.RemoveEventHandler(r)
}

// all returns the handlers for an event.
func (s *sharing) all() []cache.ResourceEventHandler {
	if !s.begun.Load() {
		s.mu.Lock()
		s.begun.Store(true)
		s.mu.Unlock()
	}
	return s.handlers
}

// events is the handler that all share.
type events struct{ *sharing }

func (e events) OnAdd(o any, initial bool) {
	for _, h := range e.all() {
		h.OnAdd(o, initial)
	}
}

func (e events) OnUpdate(before, after any) {
	for _, h := range e.all() {
		h.OnUpdate(before, after)
	}
}

func (e events) OnDelete(o any) {
	for _, h := range e.all() {
		h.OnDelete(o)
	}
}
