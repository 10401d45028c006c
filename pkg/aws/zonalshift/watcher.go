package zonalshift

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/arczonalshift"
	"github.com/aws/aws-sdk-go-v2/service/arczonalshift/types"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
)

const (
	// every is how often the shifts are asked for.
	every = 30 * time.Second
	// complainEvery is how often a failure is logged as an error.
	complainEvery = time.Hour
)

// State is the zones that are shifted away from at one moment; immutable. Its nil value has none.
type State struct {
	until map[string]time.Time // by zone id; zero: until it isn't reported any more
}

// Away reports whether traffic is shifted away from a zone.
func (s *State) Away(zoneID string) bool {
	if s == nil {
		return false
	}
	_, yes := s.until[zoneID]
	return yes
}

// Watcher asks for the shifts of a cluster. Its methods are safe for concurrent use. Its nil value knows of none.
type Watcher struct {
	clock   clock.WithTicker
	eks     sdk.EKS
	api     sdk.ARCZonalShift
	cluster string
	changed func()

	arn string                // the cluster's ARN; only Poll's goroutine uses it
	now atomic.Pointer[State] // written by Poll's goroutine only
}

// New returns a watcher that calls changed when a shift begins or ends.
func New(c clock.WithTicker, e sdk.EKS, api sdk.ARCZonalShift, cluster string, changed func()) *Watcher {
	return &Watcher{clock: c, eks: e, api: api, cluster: cluster, changed: changed}
}

// State returns the zones that are shifted away from now.
func (w *Watcher) State() *State {
	if w == nil {
		return nil
	}
	return w.now.Load()
}

// Poll asks every half minute until ctx ends. While there is no answer, the last one stays, until its shifts expire.
func (w *Watcher) Poll(ctx context.Context) {
	var complained time.Time
	for {
		until, err := w.ask(ctx)
		now := w.clock.Now()
		switch {
		case err == nil:
			complained = time.Time{}
			w.set(ctx, until)
		case ctx.Err() == nil && (complained.IsZero() || now.Sub(complained) >= complainEvery):
			complained = now
			klog.FromContext(ctx).Error(err, "Could not ask for zonal shifts, will retry. The cluster has to be registered (aws eks update-cluster-config --zonal-shift-config enabled=true)")
		}
		if w.expire() {
			w.changed()
		}
		if !sdk.Sleep(ctx, w.clock, w.wait()) {
			return
		}
	}
}

// ask returns the zones with an active shift. Shifts that aren't applied to the cluster, because another one is, don't count.
func (w *Watcher) ask(ctx context.Context) (map[string]time.Time, error) {
	if w.arn == "" {
		out, err := w.eks.DescribeCluster(ctx, &eks.DescribeClusterInput{Name: &w.cluster})
		if err != nil {
			return nil, fmt.Errorf("describing cluster %s: %w", w.cluster, err)
		}
		if out.Cluster == nil || awssdk.ToString(out.Cluster.Arn) == "" {
			return nil, errors.New("EKS returned no ARN of the cluster")
		}
		w.arn = *out.Cluster.Arn
	}
	out, err := w.api.GetManagedResource(ctx, &arczonalshift.GetManagedResourceInput{ResourceIdentifier: &w.arn})
	if err != nil {
		return nil, fmt.Errorf("getting the zonal shifts of %s: %w", w.arn, err)
	}
	until := map[string]time.Time{}
	for _, s := range out.ZonalShifts {
		if s.AppliedStatus == types.AppliedStatusApplied {
			until[awssdk.ToString(s.AwayFrom)] = awssdk.ToTime(s.ExpiryTime)
		}
	}
	for _, s := range out.Autoshifts { // AWS's own, which don't expire
		if s.AppliedStatus == types.AutoshiftAppliedStatusApplied {
			until[awssdk.ToString(s.AwayFrom)] = time.Time{}
		}
	}
	return until, nil
}

func (w *Watcher) set(ctx context.Context, until map[string]time.Time) {
	now := w.clock.Now()
	maps.DeleteFunc(until, func(_ string, t time.Time) bool { return over(t, now) })
	have := w.now.Load()
	same := have == nil && len(until) == 0 || have != nil && maps.Equal(have.until, until)
	if !same {
		w.now.Store(&State{until: until})
	}
	if !same {
		klog.FromContext(ctx).Info("Zonal shifts have changed: nothing is launched in these zones", "zoneIDs", slices.Sorted(maps.Keys(until)))
		w.changed()
	}
}

// expire forgets shifts that are over and reports whether there was one.
func (w *Watcher) expire() bool {
	now := w.clock.Now()
	gone := func(_ string, t time.Time) bool { return over(t, now) }
	have := w.now.Load()
	if have == nil {
		return false
	}
	left := maps.Clone(have.until)
	if maps.DeleteFunc(left, gone); len(left) == len(have.until) {
		return false
	}
	w.now.Store(&State{until: left})
	return true
}

// wait returns the time until the shifts are asked for again, or one of them expires.
func (w *Watcher) wait() time.Duration {
	wait := every
	if have := w.now.Load(); have != nil {
		for _, t := range have.until {
			if !t.IsZero() {
				wait = min(wait, max(t.Sub(w.clock.Now()), time.Millisecond))
			}
		}
	}
	return wait
}

func over(t, now time.Time) bool { return !t.IsZero() && !t.After(now) }
