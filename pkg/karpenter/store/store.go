package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity/guard"
	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter/derived"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter/guardmap"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/observe"
)

// Store watches and writes Karpenter's objects.
//
//	New -> On... -> Run (every replica) -> WaitForSync
//	                     RunStatus (the leader)
//
// Claims contains what the store itself has written to NodeClaims before the watch delivers it. Claims and pools that the store returns
// are shared and must not be changed.
//
// Lock order: no callback runs and no request is made under mu.
type Store struct {
	live     client.WithWatch
	cached   *cachedClient
	recorder events.EventRecorder
	clock    clock.WithTicker

	pools, claims, overlays, classes *informer
	provisioners, templates          *informer
	// derived holds the pools and classes that are derived from Provisioners and profiles' arguments.
	derived *derived.Objects
	// nodeClass is the cloud's kind of node class.
	nodeClass cloudprovider.NodeClassKind

	mu sync.RWMutex
	// known holds the NodeClaims by name, each as of the latest watch event or our own last write.
	known map[string]*knownClaim
	// creating holds the names of claims whose create request is not answered yet; true if the watch has already seen the claim
	// deleted.
	creating map[string]bool
	// used sums up the resources of known claims, and of claims that are about to be written, against the limits of their pools.
	used karpenter.Usage
	// parsed holds the pools by name, converted once per version of the object.
	parsed map[string]*parsedPool
	// deleted are pools and classes that were deleted since this process began. If one is created again, the guard must hear of it as a change.
	deleted map[guard.Owner]bool

	// The callbacks are registered before Run and only read afterwards.
	onClaim    []func(*capacity.Claim, bool)
	onPool     []func()
	onClass    []func(status.Object, bool)
	onClassEnd []func(context.Context, status.Object) error
	onGuard    []func(guard.Owner, bool)

	sources  Sources
	guardMap *guardmap.Map
	budgets  map[string]string // the text that says which budget a pool has reached, by pool; guarded by mu

	overlaid      *karpenter.Overlays
	batches       karpenter.Batches
	undeclared    undeclared
	architectures architectures
	status        *poolStatus
	// delayed holds, by name, node classes with a resolved status that is written when writes are no longer paused; guarded by mu.
	delayed map[string]status.Object
	// former is the set of objects, by statusKey, that were seen with annotations under old names, which the leader has yet to rename.
	former sync.Map
}

type parsedPool struct {
	object *karpv1.NodePool
	pool   *capacity.Pool
}

// Sources holds the settings of a Store, and the funcs by which it asks other parts of the program. All have to be set. No func is called before
// Run.
type Sources struct {
	// Limits hold for the nodes of all pools together, in addition to those of each pool; a resource not listed is not limited.
	Limits capacity.Resources
	// Hold returns why writes to pools, overlays and classes are paused (another controller owns them), or nil.
	Hold func() error
	// Shared returns why a pool with these labels may not be used, because another Dovetail selects it, too, or "".
	Shared func(labels map[string]string) string
	// ClusterCA returns the certificates that nodes verify the API server with. They are part of a node class's hash: until they are known,
	// classes get no hash.
	ClusterCA func() (ca string, known bool)
	// InstanceTypes returns the instance types that a node class can run, so that overlays are checked even when nothing is planned.
	InstanceTypes func(nodeClass string) ([]*capacity.InstanceType, error)
	// Kube and GuardNamespace are for the ConfigMap with records of the spending guard.
	Kube           kubernetes.Interface
	GuardNamespace string
}

// New returns a store for a cloud's kind of node class. It makes no request; the API server and the definitions may be missing.
func New(cfg *rest.Config, class cloudprovider.NodeClassKind, sources Sources, recorder events.EventRecorder, clk clock.WithTicker) (*Store, error) {
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("making an HTTP client for the API server: %w", err)
	}
	others, err := apiutil.NewDynamicRESTMapper(cfg, httpClient)
	if err != nil {
		return nil, fmt.Errorf("making a REST mapper: %w", err)
	}
	live, err := client.NewWithWatch(cfg, client.Options{
		HTTPClient: httpClient,
		Scheme:     karpenter.Scheme(class),
		Mapper:     meta.FirstHitRESTMapper{MultiRESTMapper: meta.MultiRESTMapper{mapper(class), others}},
	})
	if err != nil {
		return nil, fmt.Errorf("making a client for the API server: %w", err)
	}
	return newStore(live, class, sources, recorder, clk)
}

func newStore(live client.WithWatch, class cloudprovider.NodeClassKind, sources Sources, recorder events.EventRecorder, clk clock.WithTicker) (*Store, error) {
	s := &Store{
		live: renaming{live}, recorder: recorder, clock: clk,
		known: map[string]*knownClaim{}, creating: map[string]bool{}, used: karpenter.NewUsage(sources.Limits), overlaid: karpenter.NewOverlays(), parsed: map[string]*parsedPool{}, deleted: map[guard.Owner]bool{},
		nodeClass: class, sources: sources, guardMap: guardmap.New(sources.Kube, sources.GuardNamespace, class.ManagedBy),
		delayed: map[string]status.Object{}, budgets: map[string]string{},
		architectures: architectures{pools: map[string][]openWorkload{}},
	}
	s.derived = derived.New(derived.Parts{Class: class, Provisioner: s.provisioner, Template: s.template, PoolChanged: s.poolChanged,
		ClassChanged: s.classChanged, StatusChanged: func(name string) { s.status.originChanged(name) }})
	var errs []error
	for _, k := range []struct {
		karpenter.CustomKind
		at      **informer
		handler cache.ResourceEventHandler
	}{
		{karpenter.NodePools, &s.pools, observe.Changes(s.poolChanged)},
		{karpenter.NodeClaims, &s.claims, observe.Changes(s.claimChanged)},
		{karpenter.NodeOverlays, &s.overlays, observe.Changes(s.overlayChanged)},
		{karpenter.NodeClasses(class), &s.classes, observe.Changes(s.classChanged)},
		{karpenter.Provisioners, &s.provisioners, observe.Changes(s.provisionerChanged)},
		{karpenter.NodeTemplates, &s.templates, observe.Changes(s.templateChanged)},
	} {
		i, err := newInformer(k.CustomKind, s.leaves, live, k.handler, clk)
		errs = append(errs, err)
		if err == nil {
			i.renamed = func(name string) { s.sawFormer(statusKey{k.Kind, name}) }
		}
		*k.at = i
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	s.cached = newCachedClient(s.live, s.derived, s.informers()...)
	s.recorder = originRecorder{recorder, s}
	var err error
	s.status, err = newPoolStatus(s)
	return s, err
}

// OnClaim registers f for every NodeClaim that is added, changed or deleted. Register all callbacks before Run; they are called one
// after the other from the watch and must not block.
func (s *Store) OnClaim(f func(c *capacity.Claim, gone bool)) { s.onClaim = append(s.onClaim, f) }

// OnPool registers f to be called when Pools may return something else because API objects have changed.
func (s *Store) OnPool(f func()) { s.onPool = append(s.onPool, f) }

// OnNodeClass registers f for every node class that is added or deleted, whose spec has changed, or whose deletion has begun.
// Objects that can't be read are not passed on: Pools reports what is wrong with them.
func (s *Store) OnNodeClass(f func(nc status.Object, gone bool)) {
	s.onClass = append(s.onClass, f)
}

// OnClassEnd registers f to remove the cloud resources of a class that was deleted and that no claim refers to any more. The class
// keeps its finalizer until f has succeeded; f may be called again after that.
func (s *Store) OnClassEnd(f func(ctx context.Context, nc status.Object) error) {
	s.onClassEnd = append(s.onClassEnd, f)
}

// Client returns a client that reads the store's kinds from memory and everything else from the API server.
func (s *Store) Client() client.Client { return s.cached }

// Live returns a client that reads everything from the API server.
func (s *Store) Live() client.Client { return s.live }

// Informer returns the informer of a kind that the store watches, by the kind's name; nil for others. It has the objects of the API, without
// those that are derived from other objects, and they must not be changed. Add handlers before Run. That of CapacityBuffers has objects only while
// this process leads.
func (s *Store) Informer(kind string) cache.SharedIndexInformer {
	for _, i := range append(s.informers(), s.status.bufferInformer) {
		if i.Kind == kind {
			return i
		}
	}
	return nil
}

func (s *Store) informers() []*informer {
	return []*informer{s.pools, s.claims, s.overlays, s.classes, s.provisioners, s.templates}
}

// Run watches until ctx ends.
func (s *Store) Run(ctx context.Context) error {
	s.derived.DeriveArgs()
	var all wait.Group
	for _, i := range s.informers() {
		all.StartWithContext(ctx, i.RunWithContext)
	}
	all.StartWithContext(ctx, s.complain)
	all.Wait()
	return nil
}

// complain logs when a kind can't be read and when it can again.
func (s *Store) complain(ctx context.Context) {
	logger := klog.FromContext(ctx)
	said := map[string]string{}
	tick := s.clock.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		for _, i := range s.informers() {
			now := ""
			if absent, err := i.state(); err != nil && !(absent && i.optional()) {
				now = err.Error()
			}
			if now != said[i.Kind] {
				said[i.Kind] = now
				if now == "" {
					logger.Info("Custom resource can be read again", "kind", i.Kind)
				} else {
					logger.Info("Custom resource can't be read; retrying", "kind", i.Kind, "reason", now)
				}
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C():
		}
	}
}

// Synced reports whether the store knows what the API server knows: the claims have been read, and of every other kind either the
// objects or the fact that its definition is not installed.
func (s *Store) Synced() bool {
	for _, i := range s.informers() {
		if absent, _ := i.state(); !i.synced() && (!absent || i == s.claims) {
			return false
		}
	}
	return true
}

// WaitForSync waits for Synced; it returns false if ctx ended first. While the NodeClaim definition is missing it waits; Problem
// reports that.
func (s *Store) WaitForSync(ctx context.Context) bool {
	return wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(context.Context) (bool, error) { return s.Synced(), nil }) == nil
}

// Problem returns why nothing may be launched, because no NodeClaim could be written; nil when all is well.
func (s *Store) Problem() error {
	absent, err := s.claims.state()
	switch {
	case absent:
		return fmt.Errorf("CustomResourceDefinition %s.%s is not installed: nothing can be launched", s.claims.Resource, s.claims.Group)
	case err != nil:
		return fmt.Errorf("NodeClaims can't be read: %w", err)
	case !s.claims.synced():
		return errors.New("NodeClaims have not been read yet")
	}
	return nil
}

// Pools returns the pools in the order in which they are tried, each with the instance types that types returns for its node class, as
// changed by NodeOverlays, and with what its claims use. Pools that can't be used are included, with the reason in Unready.
func (s *Store) Pools(types func(nodeClass string) ([]*capacity.InstanceType, error)) []*capacity.Pool {
	s.mu.RLock()
	parsed, total := make([]*capacity.Pool, 0, len(s.parsed)), s.used.Total()
	for name, one := range s.parsed {
		p := *one.pool
		p.Used, p.Total = maps.Clone(s.used.Takes(name)), total
		p.Unready = cmp.Or(p.Unready, s.sources.Shared(one.object.Labels))
		parsed = append(parsed, &p)
	}
	s.mu.RUnlock()
	out := karpenter.WithTypes(parsed, s.nodeClass.Kind, s.class, types)
	for _, name := range s.overlaid.Apply(out) {
		s.status.changed(karpenter.NodeOverlays, name)
	}
	return out
}

// class returns the node class with that name, or nil. It must not be changed.
func (s *Store) class(name string) status.Object {
	if karpenter.Derived(name) {
		return s.derived.Class(name)
	}
	o, ok, err := s.classes.GetStore().GetByKey(name)
	if !ok || err != nil {
		return nil
	}
	return o.(status.Object)
}

func (s *Store) poolChanged(before, after *karpv1.NodePool) {
	if after == nil {
		s.mu.Lock()
		delete(s.parsed, before.Name)
		delete(s.budgets, before.Name)
		s.deleted[guard.Owner{Pool: before.Name}] = true
		s.mu.Unlock()
		s.status.health.forget(before.UID)
		s.undeclared.forget(before.Name)
		s.architectures.forget(before.Name)
		s.status.changed(karpenter.NodePools, before.Name)
		s.tellPool()
		return
	}
	s.mu.RLock()
	have := s.parsed[after.Name]
	s.mu.RUnlock()
	one := &parsedPool{object: after}
	same := have != nil && karpenter.SameIntent(have.object, after) && maps.Equal(have.object.Labels, after.Labels) &&
		have.object.Annotations[objects.AnnotationMaxDollarsPerHour] == after.Annotations[objects.AnnotationMaxDollarsPerHour] &&
		have.object.Annotations[objects.AnnotationZoneBalance] == after.Annotations[objects.AnnotationZoneBalance]
	if same {
		one.pool = have.pool
	} else {
		one.pool = s.derived.PoolFor(after)
	}
	owner := guard.Owner{Pool: after.Name}
	s.mu.Lock()
	s.parsed[after.Name] = one
	again := s.deleted[owner]
	delete(s.deleted, owner)
	s.mu.Unlock()
	s.undeclared.observe(after)
	s.status.changed(karpenter.NodePools, after.Name)
	switch {
	case have != nil:
		s.tellGuard(owner, have.object, after, same || onlyReplicas(have.object, after))
	case again:
		s.tellGuard(owner, after, after, false)
	}
	if !same {
		s.tellPool()
	}
}

// onlyReplicas reports whether nothing but a pool's replicas differs. The guard isn't notified of that: it can't make failing launches work.
func onlyReplicas(a, b *karpv1.NodePool) bool {
	before := a.Spec
	before.Replicas = b.Spec.Replicas
	return a.UID == b.UID && equality.Semantic.DeepEqual(before, b.Spec)
}

// sameImages reports whether a class is resolved to the same images in both versions, or was not resolved in the first.
func (s *Store) sameImages(a, b status.Object) bool {
	before := slices.Sorted(slices.Values(s.nodeClass.Images(a)))
	after := slices.Sorted(slices.Values(s.nodeClass.Images(b)))
	return len(before) == 0 || slices.Equal(slices.Compact(before), slices.Compact(after))
}

func (s *Store) tellPool() {
	s.TypesChanged()
	for _, f := range s.onPool {
		f()
	}
}

// poolObject returns the NodePool with that name, or nil. It must not be changed.
func (s *Store) poolObject(name string) *karpv1.NodePool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if p := s.parsed[name]; p != nil {
		return p.object
	}
	return nil
}

func (s *Store) classChanged(before, after status.Object) {
	name, gone := "", after == nil
	if gone {
		name = before.GetName()
	} else {
		name = after.GetName()
	}
	s.status.classChanged(name)
	same := before != nil && !gone && karpenter.SameIntent(before, after)
	owner := guard.Owner{Class: name}
	s.mu.Lock()
	again := s.deleted[owner]
	if delete(s.deleted, owner); gone {
		s.deleted[owner] = true
	}
	s.mu.Unlock()
	switch {
	case gone:
	case before != nil:
		s.tellGuard(owner, before, after, same && s.sameImages(before, after))
	case again:
		s.tellGuard(owner, after, after, false)
	}
	if same && !sameReadiness(before, after) {
		s.tellPool()
	}
	if same && sameNotes(before, after) {
		return
	}
	if !same {
		s.tellPool()
	}
	nc := after
	if gone {
		nc = before
	} else if karpenter.Malformed(after) != "" {
		return
	}
	for _, f := range s.onClass {
		f(nc, gone)
	}
}
