package catalog

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
)

// Region is what is known of the region. It is immutable: a refresh creates a new one that shares the unchanged parts.
type Region struct {
	Types  []*Hardware         // sorted by name; nil: not known yet
	Zones  map[string][]string // by type, sorted; nil: not known yet
	Prices map[string]Prices   // by price source, such as OnDemand; absent or nil: not known
	// Settled: prices are known, or have been waited for as long as pricePatience.
	Settled bool
}

// Config names the region and the times between two refreshes of each part.
type Config struct {
	Region                 string
	TypesEvery, ZonesEvery time.Duration
	PriceSettings
}

// Cache keeps the region data up to date.
type Cache struct {
	cfg     Config
	clock   clock.WithTicker
	calls   calls
	changed func()

	now atomic.Pointer[Region]

	mu sync.Mutex
	// problems holds, by part of the region data, why it isn't known or isn't up to date.
	problems map[string]error
}

// Parts of the region data, as Status names them.
const (
	PartTypes = "instance types"
	PartZones = "zones of instance types"
)

// parts returns the names of all parts of the region data: types, zones, and the price sources.
func parts() []string {
	all := []string{PartTypes, PartZones}
	for _, s := range priceSources {
		all = append(all, s.part)
	}
	return all
}

// calls are the AWS clients with which the parts are read.
type calls struct {
	hardware sdk.HardwareAPI
	pricing  sdk.Pricing
}

func NewCache(cfg Config, c clock.WithTicker, hardware sdk.HardwareAPI, prices sdk.Pricing, changed func()) *Cache {
	k := &Cache{cfg: cfg, clock: c, calls: calls{hardware, prices}, changed: changed, problems: map[string]error{}}
	for _, part := range parts() {
		k.problems[part] = errNotAsked
	}
	k.now.Store(&Region{})
	return k
}

var errNotAsked = errors.New("not answered yet")

// Region returns what is known now.
func (k *Cache) Region() *Region { return k.now.Load() }

// Loops returns the refresh loops, each of which runs until ctx ends.
func (k *Cache) Loops() []func(context.Context) {
	loop := func(part string, every time.Duration, fetch func(context.Context) (func(*Region), error)) func(context.Context) {
		return func(ctx context.Context) { k.keep(ctx, part, every, fetch) }
	}
	loops := []func(context.Context){
		k.settle,
		loop(PartTypes, k.cfg.TypesEvery, func(ctx context.Context) (func(*Region), error) {
			v, err := fetchTypes(ctx, k.calls.hardware)
			return func(f *Region) { f.Types = v }, err
		}),
		loop(PartZones, k.cfg.ZonesEvery, func(ctx context.Context) (func(*Region), error) {
			v, err := fetchZones(ctx, k.calls.hardware)
			return func(f *Region) { f.Zones = v }, err
		}),
	}
	for _, source := range priceSources {
		loops = append(loops, loop(source.part, source.every(k.cfg), func(ctx context.Context) (func(*Region), error) {
			v, err := source.read(ctx, k.calls, k.cfg, k.clock.Now())
			return func(f *Region) { f.setPrices(source.part, v) }, err
		}))
	}
	return loops
}

// keep fetches a part again and again until ctx ends: after every if it succeeds, with back-off if it fails. A failure keeps the last
// known values.
func (k *Cache) keep(ctx context.Context, part string, every time.Duration, fetch func(context.Context) (func(*Region), error)) {
	logger := klog.FromContext(ctx)
	retry := sdk.Backoff{}
	for {
		set, err := fetch(ctx)
		if ctx.Err() != nil {
			return
		}
		wait := every
		k.mu.Lock()
		known := !errors.Is(k.problems[part], errUnknown) && !errors.Is(k.problems[part], errNotAsked)
		if err != nil {
			wait = retry.Next()
			if known {
				k.problems[part] = fmt.Errorf("%s: not refreshed: %s", part, sdk.Summarize(err))
			} else {
				k.problems[part] = &unknown{part, err}
			}
		} else {
			retry = sdk.Backoff{}
			k.problems[part] = nil
		}
		change := k.update(func(f *Region) {
			if err == nil {
				set(f)
			}
			f.Settled = f.Settled || !slices.ContainsFunc(priceSources, func(s priceSource) bool { return errors.Is(k.problems[s.part], errNotAsked) })
		})
		refreshed := time.Time{}
		if err == nil {
			refreshed = k.clock.Now()
		}
		f := k.now.Load()
		countRegion(f, part, refreshed)
		k.mu.Unlock()
		if guessing := f.Settled && !(f.known(false) && f.known(true)); guessing && change {
			logger.Info("Prices are not known; instance types are ordered by prices estimated from their sizes", "onDemandKnown", f.known(false), "spotKnown", f.known(true))
		}
		if err != nil {
			logger.Error(err, "Could not refresh instance types or prices", "part", part, "retryIn", wait)
		} else {
			logger.V(3).Info("Refreshed instance types or prices", "part", part, "changed", change)
		}
		if change {
			k.changed()
		}
		if !sdk.Sleep(ctx, k.clock, wait) {
			return
		}
	}
}

// update replaces the region data and reports whether it has changed. The caller holds mu.
func (k *Cache) update(set func(*Region)) bool {
	old := k.now.Load()
	f := *old
	set(&f)
	if reflect.DeepEqual(old, &f) {
		return false
	}
	k.now.Store(&f)
	return true
}

// settle stops waiting for prices once pricePatience has passed since the start.
func (k *Cache) settle(ctx context.Context) {
	if !sdk.Sleep(ctx, k.clock, pricePatience) {
		return
	}
	k.mu.Lock()
	change := k.update(func(f *Region) { f.Settled = true })
	countRegion(k.now.Load(), OnDemand, time.Time{})
	k.mu.Unlock()
	if change {
		k.changed()
	}
}

// pricePatience is how long after the start nothing is offered because prices are still being read. After that, offerings are ordered
// by estimate until prices are known.
const pricePatience = 10 * time.Second

// Status returns an error that names the parts of the region data that are missing or out of date.
func (k *Cache) Status() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var errs []error
	for _, part := range parts() {
		err := k.problemLocked(part)
		if err == nil {
			continue
		}
		complete := slices.ContainsFunc(priceSources, func(s priceSource) bool { return s.part == part && s.complete })
		if complete && (errors.Is(err, errUnknown) || errors.Is(err, errNotAsked)) {
			err = fmt.Errorf("%w; instance types are ordered by prices estimated from their sizes", err)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Problem returns why a part is not known or not up to date, or nil.
func (k *Cache) Problem(part string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.problemLocked(part)
}

func (k *Cache) problemLocked(part string) error {
	err := k.problems[part]
	if errors.Is(err, errNotAsked) {
		return fmt.Errorf("%s: %w", part, err)
	}
	return err
}

// errUnknown: this part of the region data (types, zones, a price source) has never been read successfully.
var errUnknown = errors.New("unknown")

type unknown struct {
	part string
	err  error
}

func (u *unknown) Error() string        { return u.part + ": unknown: " + sdk.Summarize(u.err) }
func (u *unknown) Unwrap() error        { return u.err }
func (u *unknown) Is(target error) bool { return target == errUnknown }

// Find returns the hardware with that name, or nil.
func (f *Region) Find(name string) *Hardware {
	i, ok := slices.BinarySearchFunc(f.Types, name, func(h *Hardware, name string) int { return strings.Compare(h.Name, name) })
	if !ok {
		return nil
	}
	return f.Types[i]
}
