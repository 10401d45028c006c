package aws

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/bootstrap"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/catalog"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/network"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodesize"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
	sim "github.com/dovetail-scheduler/dovetail/test/ec2"
	simcatalog "github.com/dovetail-scheduler/dovetail/test/ec2/catalog"
)

const (
	manyTypes = 1300
	// The most CPU time that a refresh may take, and the most memory that the region data may take.
	refreshCPU   = time.Second
	refreshBytes = 60 << 20
)

// largeRegion is a catalogue of 1,300 types, each in four zones, on demand and as spot.
func largeRegion(tb testing.TB) *simcatalog.Catalog {
	tb.Helper()
	var raw bytes.Buffer
	if err := simcatalog.Builtin().Write(&raw); err != nil {
		tb.Fatal(err)
	}
	var doc map[string]any
	if err := json.Unmarshal(raw.Bytes(), &doc); err != nil {
		tb.Fatal(err)
	}
	own := doc["instanceTypes"].([]any)
	var all []any
	for i := 0; len(all) < manyTypes; i++ {
		t := map[string]any{}
		for k, v := range own[i%len(own)].(map[string]any) {
			t[k] = v
		}
		if round := i / len(own); round > 0 {
			family, size, _ := strings.Cut(t["name"].(string), ".")
			t["name"] = family + string(rune('p'+round)) + "." + size
		}
		t["zones"], t["usageClasses"] = []string{"us-west-2a", "us-west-2b", "us-west-2c", "us-west-2d"}, []string{"on-demand", "spot"}
		all = append(all, t)
	}
	doc["instanceTypes"] = all
	changed, err := json.Marshal(doc)
	if err != nil {
		tb.Fatal(err)
	}
	c, err := simcatalog.Load(bytes.NewReader(changed))
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// recorded repeats the answers to requests that it has seen before, so that only the client's work is measured.
type recorded struct {
	mu      sync.Mutex
	answers map[string]*http.Response
	bodies  map[string][]byte
	through http.RoundTripper
}

func (r *recorded) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	if err := req.Body.Close(); err != nil {
		return nil, err
	}
	key := req.Header.Get("X-Amz-Target") + withoutTime(string(body))
	r.mu.Lock()
	defer r.mu.Unlock()
	have, ok := r.answers[key]
	if !ok {
		req.Body = io.NopCloser(bytes.NewReader(body))
		if have, err = r.through.RoundTrip(req); err != nil {
			return nil, err
		}
		r.bodies[key], err = io.ReadAll(have.Body)
		if err = errors.Join(err, have.Body.Close()); err != nil {
			return nil, err
		}
		r.answers[key] = have
	}
	out := *have
	out.Body = io.NopCloser(bytes.NewReader(r.bodies[key]))
	return &out, nil
}

// withoutTime leaves out the start of the price history, which is always now.
func withoutTime(form string) string {
	var parts []string
	for p := range strings.SplitSeq(form, "&") {
		if !strings.HasPrefix(p, "StartTime=") {
			parts = append(parts, p)
		}
	}
	return strings.Join(parts, "&")
}

// cpuTime is what this process has used so far.
func cpuTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// refreshed runs the loops of a new catalogue until they have read every part of the region.
func refreshed(ctx context.Context, c sdk.Clients) (*catalog.Cache, error) {
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	changed := make(chan struct{}, 1)
	k := catalog.NewCache(catalog.Config{Region: "us-west-2", TypesEvery: time.Hour, ZonesEvery: time.Hour, PriceSettings: catalog.PriceSettings{OnDemandEvery: time.Hour, SpotEvery: time.Hour}},
		clock.RealClock{}, c.EC2, c.Pricing, func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	for _, loop := range k.Loops() {
		wg.Go(func() { loop(ctx) })
	}
	for k.Status() != nil {
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, k.Status()
		}
	}
	return k, nil
}

// BenchmarkRefresh reads a region of 1,300 types in four zones and builds the offerings of a class from it. It fails when that takes
// more CPU or memory than allowed.
func BenchmarkRefresh(b *testing.B) {
	s, err := sim.New(sim.Config{Seed: 1, Cluster: "films", Catalog: largeRegion(b), Zones: []string{"us-west-2a", "us-west-2b", "us-west-2c", "us-west-2d"}})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	}()
	cfg := s.AWSConfig()
	cfg.HTTPClient = &http.Client{Transport: &recorded{answers: map[string]*http.Response{}, bodies: map[string][]byte{}, through: http.DefaultTransport}}
	clients := sdk.NewClients(cfg, clock.RealClock{})
	p, err := New(Config{Region: "us-west-2", ClusterName: "films"}, clients)
	if err != nil {
		b.Fatal(err)
	}
	nc := nodeClass()
	p.SetNodeClass(nc)
	settings, _ := nodesize.SettingsOf(&nc.Spec, bootstrap.AL2023, p.cfg.sizes())
	r := &resolved{class: nc, family: bootstrap.AL2023, settings: settings, images: []image{{id: "ami-1", arch: "amd64"}, {id: "ami-2", arch: "arm64"}}}
	for _, z := range s.Zones() {
		r.subnets = append(r.subnets, network.Subnet{ID: "s-" + z, Zone: z, ZoneID: z})
	}
	p.classes.get(nc.Name).resolved.Store(r)
	read := func() {
		k, err := refreshed(b.Context(), clients)
		if err != nil {
			b.Fatal(err)
		}
		p.catalogue = k
		p.bump()
		if types, err := p.InstanceTypes(nc.Name); err != nil || len(types) < manyTypes*9/10 {
			b.Fatal(len(types), err)
		}
	}
	heap := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	forget := func() {
		p.catalogue = catalog.NewCache(catalog.Config{}, clock.RealClock{}, nil, nil, func() {})
		p.bump()
		_, _ = p.InstanceTypes(nc.Name)
	}
	read() // recorded now

	b.ReportAllocs()
	began, n := cpuTime(b), 0
	for b.Loop() {
		forget()
		read()
		n++
	}
	cpu := (cpuTime(b) - began) / time.Duration(n)
	full := heap()
	forget()
	held := int64(full) - int64(heap())
	b.ReportMetric(float64(cpu.Milliseconds()), "cpu-ms/op")
	b.ReportMetric(float64(held)/(1<<20), "held-MiB")
	if cpu > refreshCPU || held > refreshBytes {
		b.Fatalf("a refresh takes %v of CPU and %d bytes, it may take %v and %d", cpu, held, refreshCPU, refreshBytes)
	}
}
