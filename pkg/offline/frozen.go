package offline

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// frozen is an informer whose objects all exist from the start and never change. It needs no goroutine: when a call that adds a
// handler returns, the handler has received all objects.
type frozen struct{ indexer cache.Indexer }

var _ cache.SharedIndexInformer = frozen{}

// freeze makes the factory return a frozen informer with these objects for every later request for the type's informer or lister.
func freeze[T runtime.Object](f informers.SharedInformerFactory, example T, objects []T) error {
	i := frozen{cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})}
	for _, o := range objects {
		if err := i.indexer.Add(o); err != nil {
			return err
		}
	}
	f.InformerFor(example, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer { return i })
	return nil
}

func (i frozen) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	for _, o := range i.indexer.List() {
		h.OnAdd(o, true)
	}
	return syncedRegistration{}, nil
}

func (i frozen) AddEventHandlerWithResyncPeriod(h cache.ResourceEventHandler, _ time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(h)
}

func (i frozen) AddEventHandlerWithOptions(h cache.ResourceEventHandler, _ cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(h)
}

func (frozen) RemoveEventHandler(cache.ResourceEventHandlerRegistration) error { return nil }

func (i frozen) GetStore() cache.Store                     { return i.indexer }
func (i frozen) GetIndexer() cache.Indexer                 { return i.indexer }
func (i frozen) AddIndexers(indexers cache.Indexers) error { return i.indexer.AddIndexers(indexers) }

func (frozen) GetController() cache.Controller                                          { return nil }
func (frozen) Run(stop <-chan struct{})                                                 { <-stop }
func (frozen) RunWithContext(ctx context.Context)                                       { <-ctx.Done() }
func (frozen) HasSynced() bool                                                          { return true }
func (frozen) HasSyncedChecker() cache.DoneChecker                                      { return syncedRegistration{} }
func (frozen) LastSyncResourceVersion() string                                          { return "" }
func (frozen) SetWatchErrorHandler(cache.WatchErrorHandler) error                       { return nil }
func (frozen) SetWatchErrorHandlerWithContext(cache.WatchErrorHandlerWithContext) error { return nil }
func (frozen) SetTransform(cache.TransformFunc) error                                   { return nil }
func (frozen) IsStopped() bool                                                          { return false }

// syncedRegistration is the registration of a handler that has received everything.
type syncedRegistration struct{}

var closed = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func (syncedRegistration) HasSynced() bool                     { return true }
func (syncedRegistration) HasSyncedChecker() cache.DoneChecker { return syncedRegistration{} }
func (syncedRegistration) Name() string                        { return "offline" }
func (syncedRegistration) Done() <-chan struct{}               { return closed }
