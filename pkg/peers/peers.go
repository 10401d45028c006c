package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	coordinformers "k8s.io/client-go/informers/coordination/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
	"github.com/dovetail-scheduler/dovetail/pkg/observe"
)

const (
	// leastLease is the shortest time that a renewed lease counts as held.
	leastLease = 15 * time.Second
	// retryEvery is how often registering is tried again if the API server doesn't answer.
	retryEvery = 2 * time.Second
	// checkTime bounds the first look.
	checkTime = 5 * time.Second
)

// ErrConflict is wrapped by errors that name the argument that conflicts with another Dovetail. Trying again won't help.
var ErrConflict = errors.New("ProvisionArgs")

// Config holds the parts of Peers.
type Config struct {
	Kube  kubernetes.Interface
	Clock clock.WithTicker
	// Lease is that of our leader election; without a name there is no leader election.
	Lease types.NamespacedName
	// Scope is what we manage.
	Scope Scope
	// Pools returns the labels of the pools that the API server has now.
	Pools func(context.Context) (map[string]labels.Set, error)
}

// Peers knows the other Dovetails of the cluster.
//
//	New -> Check (every replica, at its start) -> Register (a replica that has begun to lead, before it acts)
//	    -> Run (every replica)
//
// Each of two that start at the same moment writes its record before it reads the other's. So at least one of them finds a conflict; if both do,
// both give up, and the one that is restarted first stays.
type Peers struct {
	Config
	onChange []func()      // set before Run
	lost     chan struct{} // our record isn't on our Lease any more

	mu         sync.Mutex
	registered bool
	others     map[string]seen // by the key of their Lease
}

// seen is another Dovetail whose Lease was renewed at that time.
type seen struct {
	peer
	at time.Time
}

// New returns Peers that know no other.
func New(cfg Config) *Peers {
	return &Peers{Config: cfg, lost: make(chan struct{}, 1), others: map[string]seen{}}
}

// OnChange registers f to be called when what Shared returns may have changed. Call it before Run; f must not block.
func (p *Peers) OnChange(f func()) { p.onChange = append(p.onChange, f) }

// Check returns an error that wraps ErrConflict if another Dovetail is active that doesn't go together with this one. If the API server doesn't
// answer, it returns nil: Register will find out.
func (p *Peers) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	conflicts, err := p.conflicts(ctx)
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Could not read yet whether other Dovetails are active in this cluster", "err", err)
		return nil
	}
	for _, c := range conflicts {
		if c.left(p.Clock.Now()) > 0 {
			return c.err
		}
	}
	return nil
}

// Register records on our Lease, which this replica holds, what we manage, and returns when no other Dovetail that is active manages some of it,
// too. An error wraps ErrConflict; then nothing of ours is recorded any more.
func (p *Peers) Register(ctx context.Context) error {
	if err := p.insist(ctx, "record what this Dovetail manages", func() error { return p.record(ctx) }); err != nil {
		return err
	}
	var found []conflict
	err := p.insist(ctx, "read which other Dovetails are active", func() (err error) {
		found, err = p.conflicts(ctx)
		return err
	})
	for i := 0; i < len(found) && err == nil; i++ {
		err = p.outlast(ctx, found[i])
	}
	if err != nil {
		p.withdraw(ctx)
		return err
	}
	return nil
}

// insist calls f until it succeeds.
func (p *Peers) insist(ctx context.Context, what string, f func() error) error {
	for {
		err := f()
		if err == nil || errors.Is(err, ErrConflict) {
			return err
		}
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Nothing is launched yet: could not "+what+", trying again")
		}
		timer := p.Clock.NewTimer(retryEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C():
		}
	}
}

// record writes our record to our Lease. A Dovetail without a name may still have the RBAC of a version that knew no names, which doesn't allow
// that. It goes on all the same: with that RBAC it is the only one in the cluster.
func (p *Peers) record(ctx context.Context) error {
	if p.Lease.Name == "" {
		return nil
	}
	err := p.write(ctx)
	if apierrors.IsForbidden(err) && p.Scope.Name == "" {
		klog.FromContext(ctx).Error(err, "Other Dovetails can't be told of this one; apply the shipped RBAC")
		err = nil
	}
	if err == nil {
		p.mu.Lock()
		p.registered = true
		p.mu.Unlock()
	}
	return err
}

func (p *Peers) write(ctx context.Context) error {
	own, err := p.Kube.CoordinationV1().Leases(p.Lease.Namespace).Get(ctx, p.Lease.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading lease %s: %w", p.Lease, err)
	}
	scope := p.Scope
	scope.Holder = ptr.Deref(own.Spec.HolderIdentity, "")
	return p.patch(ctx, scope.Name, scope.Encode())
}

func (p *Peers) patch(ctx context.Context, label, annotation any) error {
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"labels": map[string]any{objects.LabelManagedBy: label}, "annotations": map[string]any{objects.AnnotationScope: annotation}}})
	if err != nil {
		return fmt.Errorf("encoding the record on lease %s: %w", p.Lease, err)
	}
	if _, err = p.Kube.CoordinationV1().Leases(p.Lease.Namespace).Patch(ctx, p.Lease.Name, types.MergePatchType, raw, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("writing to lease %s: %w", p.Lease, err)
	}
	return nil
}

// withdraw removes our record, so that no other waits for us.
func (p *Peers) withdraw(ctx context.Context) {
	p.mu.Lock()
	p.registered = false
	p.mu.Unlock()
	if p.Lease.Name == "" || ctx.Err() != nil {
		return
	}
	if err := p.patch(ctx, nil, nil); err != nil && !apierrors.IsNotFound(err) {
		klog.FromContext(ctx).Error(err, "Could not withdraw the record of what this Dovetail manages")
	}
}

// conflict is another Dovetail that doesn't go together with this one, if it is active.
type conflict struct {
	lease *coordinationv1.Lease
	stale bool // its record is not by the Lease's holder
	err   error
}

// left is for how long the Lease is held if it isn't renewed. The clocks of two processes may differ.
func (c conflict) left(now time.Time) time.Duration {
	if !held(c.lease) || c.lease.Spec.RenewTime == nil || c.stale {
		return 0
	}
	return c.lease.Spec.RenewTime.Add(lasts(c.lease)).Sub(now)
}

func lasts(l *coordinationv1.Lease) time.Duration {
	if d := l.Spec.LeaseDurationSeconds; d != nil {
		return max(leastLease, time.Duration(*d)*time.Second)
	}
	return leastLease
}

// conflicts returns the other Dovetails whose Leases are held, perhaps by processes that have died since, and that don't go together with us.
func (p *Peers) conflicts(ctx context.Context) ([]conflict, error) {
	all, err := p.Kube.CoordinationV1().Leases(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: objects.LabelManagedBy})
	if apierrors.IsForbidden(err) && p.Scope.Name == "" {
		klog.FromContext(ctx).Error(err, "Whether other Dovetails are active can't be read; apply the shipped RBAC")
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing leases: %w", err)
	}
	pools, err := p.Pools(ctx)
	if err != nil {
		return nil, err
	}
	var out []conflict
	for i := range all.Items {
		l := &all.Items[i]
		if _, recorded := l.Labels[objects.LabelManagedBy]; !recorded || p.own(l) || !held(l) {
			continue
		}
		other, err := peerOf(l)
		if err == nil {
			if bad := p.Scope.conflict(other, pools); bad != nil {
				err = bad
			}
		}
		if err != nil {
			out = append(out, conflict{l, other.stale(), fmt.Errorf("%w: %w", ErrConflict, err)})
		}
	}
	return out, nil
}

func (p *Peers) own(l *coordinationv1.Lease) bool {
	return l.Name == p.Lease.Name && l.Namespace == p.Lease.Namespace
}

// outlast returns the conflict if the other Dovetail is active: if its Lease was renewed lately or, since its clock may differ from ours, is
// renewed within the time for which it lasts, with a record of the one that renews it.
func (p *Peers) outlast(ctx context.Context, c conflict) error {
	if c.left(p.Clock.Now()) > 0 {
		return c.err
	}
	klog.FromContext(ctx).Info("Waiting whether another Dovetail renews its lease", "lease", klog.KObj(c.lease), "conflict", c.err)
	timer := p.Clock.NewTimer(lasts(c.lease))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C():
	}
	return p.insist(ctx, "read the lease of another Dovetail", func() error {
		now, err := p.Kube.CoordinationV1().Leases(c.lease.Namespace).Get(ctx, c.lease.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return fmt.Errorf("reading lease %s: %w", klog.KObj(c.lease), err)
		case !held(now) || now.Spec.RenewTime.Equal(c.lease.Spec.RenewTime):
			return nil
		}
		if other, err := peerOf(now); err == nil && other.stale() {
			return nil
		}
		return c.err
	})
}

// Run watches the Leases of other Dovetails until ctx ends, and puts our record back if it is lost: a Lease that was deleted is created without
// it by the next renewal.
func (p *Peers) Run(ctx context.Context) error {
	informer := coordinformers.NewFilteredLeaseInformer(p.Kube, metav1.NamespaceAll, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.LabelSelector = objects.LabelManagedBy
	})
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { p.observe(o.(*coordinationv1.Lease), false) },
		UpdateFunc: func(_, o any) { p.observe(o.(*coordinationv1.Lease), false) },
		DeleteFunc: observe.Deletion(func(l *coordinationv1.Lease) { p.observe(l, true) }),
	}); err != nil {
		return fmt.Errorf("watching leases: %w", err)
	}
	var watching wait.Group
	watching.StartWithContext(ctx, informer.RunWithContext)
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-p.lost:
			p.mu.Lock()
			again := p.registered
			p.mu.Unlock()
			if again {
				_ = p.insist(ctx, "record again what this Dovetail manages", func() error { return p.record(ctx) })
			}
		}
	}
	watching.Wait()
	return nil
}

// observe hears of a Lease with a record, or that it has gone.
func (p *Peers) observe(l *coordinationv1.Lease, gone bool) {
	if p.own(l) {
		if gone {
			select {
			case p.lost <- struct{}{}:
			default:
			}
		}
		return
	}
	key := l.Namespace + "/" + l.Name
	other, err := peerOf(l)
	if !gone && err == nil && held(l) && other.stale() {
		return // what is known of it lasts until its next leader can have written a record
	}
	p.mu.Lock()
	before, had := p.others[key]
	if gone || err != nil || !held(l) {
		delete(p.others, key)
	} else {
		p.others[key] = seen{other, p.Clock.Now()}
	}
	now, has := p.others[key]
	p.mu.Unlock()
	if had == has && before.scope.Encode() == now.scope.Encode() {
		return
	}
	for _, f := range p.onChange {
		f()
	}
}

// Shared returns why a pool with these labels can't be used although we select it: another Dovetail does, too. Only a change of the pool's labels
// can lead to that, since no Dovetail begins to act while there is such a pool.
func (p *Peers) Shared(of map[string]string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range p.others {
		if p.Clock.Since(o.at) > lasts(o.lease)+leastLease {
			continue // it isn't active any more
		}
		if by := selecting(o.scope.NodePools, of); by != nil && o.scope.Name != "" {
			return fmt.Sprintf("%s selects it, too (nodePoolSelector %q): neither launches nodes there", o.peer, *by)
		}
	}
	return ""
}
