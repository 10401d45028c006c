package store

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
)

// mapper knows the kinds without asking the API server: a definition that is missing at start must be found as soon as it is
// installed.
func mapper(class cloudprovider.NodeClassKind) meta.RESTMapper {
	kinds := []karpenter.CustomKind{karpenter.NodePools, karpenter.NodeClaims, karpenter.NodeOverlays, karpenter.NodeClasses(class), karpenter.Provisioners, karpenter.NodeTemplates}
	namespaced := []karpenter.CustomKind{karpenter.CapacityBuffers, karpenter.ProvisioningRequests}
	var versions []schema.GroupVersion
	for _, k := range namespaced {
		versions = append(versions, k.GroupVersion())
	}
	for _, k := range kinds {
		versions = append(versions, k.GroupVersion())
	}
	m := meta.NewDefaultRESTMapper(versions)
	for _, k := range kinds {
		m.AddSpecific(k.GroupVersionKind, k.GroupVersion().WithResource(k.Resource), k.GroupVersion().WithResource(k.Resource), meta.RESTScopeRoot)
	}
	for _, k := range namespaced {
		m.AddSpecific(k.GroupVersionKind, k.GroupVersion().WithResource(k.Resource), k.GroupVersion().WithResource(k.Resource), meta.RESTScopeNamespace)
	}
	return m
}

// informer watches one kind and remembers the error of its last call.
type informer struct {
	karpenter.CustomKind
	cache.SharedIndexInformer
	handled cache.ResourceEventHandlerRegistration
	clock   clock.WithTicker
	// leaves returns why an object belongs to another owner and must not be in the cache, or "".
	leaves func(client.Object) string
	// renamed is called with the name of each object that still has annotations under old names (objects.Renamed).
	renamed func(name string)

	mu   sync.Mutex
	last error // guarded by mu; nil when the last list or watch could be opened
}

func newInformer(k karpenter.CustomKind, leaves func(client.Object) string, c client.WithWatch, handler cache.ResourceEventHandler, clk clock.WithTicker) (*informer, error) {
	i := &informer{CustomKind: k, leaves: leaves, clock: clk, renamed: func(string) {}}
	i.SharedIndexInformer = cache.NewSharedIndexInformer(i.listWatch(c), k.New(), 0, cache.Indexers{})
	// Managed fields aren't used here and make up a third of an object.
	err := i.SetTransform(func(o any) (any, error) {
		if m, ok := o.(metav1.Object); ok {
			m.SetManagedFields(nil)
			if useNewNames(m) {
				i.renamed(m.GetName())
			}
		}
		return o, nil
	})
	if err == nil {
		i.handled, err = i.AddEventHandler(handler)
	}
	if err != nil {
		return nil, fmt.Errorf("setting up the %s informer: %w", k.Kind, err)
	}
	return i, nil
}

// synced reports whether everything listed at the start has also gone through the handler. HasSynced alone only means that it is in
// the cache.
func (i *informer) synced() bool { return i.handled.HasSynced() }

// state returns why the kind can't be read now, or nil; absent means that the API server does not know the kind.
func (i *informer) state() (absent bool, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return noDefinition(i.last), i.last
}

func noDefinition(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }

// absentRetry is how often we check whether a missing definition has been installed.
const absentRetry = 5 * time.Second

// patiently calls f until it succeeds or fails for another reason than a definition that isn't installed. Most clusters lack at least
// one definition, and the reflector would log an error each time.
func (i *informer) patiently(ctx context.Context, f func() error) error {
	for {
		err := i.note(f())
		if !noDefinition(err) || i.Kind == karpenter.NodeClaims.Kind {
			return err
		}
		timer := i.clock.NewTimer(absentRetry)
		select {
		case <-ctx.Done():
			timer.Stop()
			return err
		case <-timer.C():
		}
	}
}

func (i *informer) note(err error) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	// An expired resource version is normal for the reflector: it lists again.
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		i.last = err
	}
	return err
}

// listWatch reads objects without types and converts them one by one.
func (i *informer) listWatch(c client.WithWatch) cache.ListerWatcher {
	untyped := func() *unstructured.UnstructuredList {
		l := &unstructured.UnstructuredList{}
		l.SetGroupVersionKind(i.GroupVersion().WithKind(i.Kind + "List"))
		return l
	}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			got := untyped()
			if err := i.patiently(ctx, func() error {
				return c.List(ctx, got, &client.ListOptions{Raw: &o, Limit: o.Limit, Continue: o.Continue})
			}); err != nil {
				return nil, err
			}
			objects := make([]runtime.Object, 0, len(got.Items))
			for n := range got.Items {
				o := karpenter.Decode(&got.Items[n], i.New)
				if why := i.leaves(o); why != "" {
					leftAlone(o, why)
					continue
				}
				objects = append(objects, o)
			}
			out := i.NewList()
			out.SetResourceVersion(got.GetResourceVersion())
			out.SetContinue(got.GetContinue())
			out.SetRemainingItemCount(got.GetRemainingItemCount())
			return out, meta.SetList(out, objects)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			var w watch.Interface
			if err := i.patiently(ctx, func() (err error) {
				w, err = c.Watch(ctx, untyped(), &client.ListOptions{Raw: &o})
				return err
			}); err != nil {
				return nil, err
			}
			return newDecodingWatch(w, i.New, i.leaves, i.SharedIndexInformer.GetStore()), nil
		},
	}
	return cache.ToListWatcherWithWatchListSemantics(lw, c)
}

// optional reports whether a missing definition of this kind is normal and needn't be reported.
func (i *informer) optional() bool {
	return i.Kind == karpenter.Provisioners.Kind || i.Kind == karpenter.NodeTemplates.Kind
}

// readable returns an error as long as the cache has not been filled: "does not exist" and "not known yet" must not be confused.
func (i *informer) readable() error {
	if i.HasSynced() {
		return nil
	}
	if _, err := i.state(); err != nil {
		// Not wrapped: a definition that is not found must not look like an object that is not found.
		return fmt.Errorf("the cache of %s is not filled: %v", i.Kind, err)
	}
	return fmt.Errorf("the cache of %s is not filled yet", i.Kind)
}

// decodingWatch converts the objects of another watch and leaves out those that are none of ours. (watch.Filter would do, but it leaks a
// goroutine when the reader stops while an event is being delivered.)
type decodingWatch struct {
	watch.Interface
	out  chan watch.Event
	done chan struct{}
	once sync.Once
}

func newDecodingWatch(in watch.Interface, fresh func() client.Object, leaves func(client.Object) string, have cache.KeyGetter) watch.Interface {
	w := &decodingWatch{Interface: in, out: make(chan watch.Event), done: make(chan struct{})}
	go func() {
		defer close(w.out)
		for e := range in.ResultChan() {
			if u, ok := e.Object.(*unstructured.Unstructured); ok {
				e.Object = karpenter.Decode(u, fresh)
			}
			e, matters := withoutForeign(e, leaves, have)
			if !matters {
				continue
			}
			select {
			case w.out <- e:
			case <-w.done:
				return
			}
		}
	}()
	return w
}

func (w *decodingWatch) ResultChan() <-chan watch.Event { return w.out }

func (w *decodingWatch) Stop() {
	w.once.Do(func() { close(w.done) })
	w.Interface.Stop()
}

// withoutForeign returns the event that the cache gets for a watch event; false means none. An object that has ceased to belong to this Dovetail
// is passed on as deleted, so it is removed from the cache; one that now belongs to it is passed on unchanged, and added.
func withoutForeign(e watch.Event, leaves func(client.Object) string, have cache.KeyGetter) (watch.Event, bool) {
	o, ok := e.Object.(client.Object)
	if !ok || e.Type == watch.Bookmark || e.Type == watch.Error {
		return e, true
	}
	why := leaves(o)
	if why == "" {
		return e, true
	}
	if e.Type == watch.Added {
		leftAlone(o, why)
	}
	if _, known, err := have.GetByKey(o.GetName()); err != nil || !known {
		return e, false
	}
	e.Type = watch.Deleted
	return e, true
}

// leftAlone logs an ignored object, once per object and watch: a typing error may be the reason why it belongs to another owner.
func leftAlone(o client.Object, why string) {
	klog.Background().V(2).Info("Not managed here", "object", klog.KObj(o), "reason", why)
}
