package guard

import (
	"fmt"
	"testing"
	"time"
)

// While part of a round has failed and no more machines of it look well, its key is in doubt.
func TestDoubts(t *testing.T) {
	w := Workload{Namespace: "default", Owner: "Deployment/web"}
	pods, image := PodKey("pool", w), MachineKey("class", "image", "")
	for _, tt := range []struct {
		name         string
		failed, ran  int // of ten machines
		served, more bool
		key          Key
		want         string
	}{
		{name: "none has failed", ran: 3, key: pods, want: "none"},
		{name: "one has failed", failed: 1, key: pods, want: "1 of 10 failed, 0 more"},
		{name: "one has failed, and one more is bought", failed: 1, more: true, key: pods, want: "1 of 10 failed, 1 more"},
		{name: "as many look well", failed: 2, ran: 2, key: pods, want: "2 of 10 failed, 0 more"},
		{name: "more look well", failed: 2, ran: 3, key: pods, want: "none"},
		{name: "one has done work", failed: 2, served: true, key: pods, want: "none"},
		{name: "all have failed", failed: 10, key: pods, want: "none"}, // then a breaker is open
		{name: "an image's has failed", failed: 1, key: image, want: "1 of 10 failed, 0 more"},
		{name: "more of an image's are initialized", failed: 1, ran: 2, key: image, want: "none"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g, now := New(), time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
			buy := func(name, round string) {
				g.Buy(name, Bought{Purchase: Purchase{Round: round, Workloads: []Workload{w}}, Pool: "pool", Class: "class", Images: []string{"image"}, At: now})
				g.Locate(name, "image", "zone")
			}
			name := func(i int) string { return fmt.Sprint("m", i) }
			for i := range 10 {
				buy(name(i), "round")
			}
			now = now.Add(time.Minute)
			for i := range 10 {
				switch {
				case i < tt.failed:
					g.Fail(name(i), Fault{Machine: tt.key.Machine(), Cause: "taint", Message: "taint"}, now)
				case i < tt.failed+tt.ran:
					g.Initialized(name(i), now)
					g.Ran(name(i), w)
				}
			}
			if tt.served {
				g.Serve(name(9), w, now)
			}
			if tt.more {
				buy("more", "later")
			}
			got := "none"
			if d := g.Doubts(tt.key); d != nil {
				got = fmt.Sprintf("%d of %d failed, %d more", d.Failed, d.Bought, d.More)
			}
			if got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

// A node that is Ready shows other workloads that its image works, whatever it still lacks for its own pods.
func TestUnderway(t *testing.T) {
	gpu, web := Workload{Namespace: "default", Owner: "Deployment/gpu"}, Workload{Namespace: "default", Owner: "Deployment/web"}
	g, now := New(), time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	for i := range 3 {
		g.Buy(fmt.Sprint("m", i), Bought{Purchase: Purchase{Round: "r", Workloads: []Workload{gpu}}, Pool: "pool", Class: "class", Images: []string{"image"}, At: now.Add(time.Duration(i) * time.Second)})
	}
	check := func(when string, own, others int) {
		t.Helper()
		if n, since := g.Underway("class", "image", []Workload{gpu}); n != own || !since.Equal(now) {
			t.Errorf("%s: %d of its own since %v, want %d since %v", when, n, since, own, now)
		}
		if n, _ := g.Underway("class", "image", []Workload{web}); n != others {
			t.Errorf("%s: %d for others, want %d", when, n, others)
		}
	}
	check("as bought", 3, 3)
	g.Ready("m0")
	g.Ready("m1")
	check("two are Ready", 3, 1)
	g.Fail("m1", Fault{Cause: "no device", Message: "no device"}, now)
	check("one has failed of what its pods lack", 3, 1)
	g.Fail("m0", Fault{Machine: true, Cause: "gone", Message: "gone"}, now)
	check("one has failed itself", 3, 2)
}

// A replacement has served when its node is up. That tells nothing about its pods, which have not moved yet.
func TestMovesThatHaveNotCome(t *testing.T) {
	w := Workload{Namespace: "default", Owner: "Deployment/web"}
	for came, want := range map[bool]bool{false: true, true: false} {
		g, now := New(), time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
		g.Buy("m", Bought{Purchase: Purchase{Round: "r", Workloads: []Workload{w}, Moves: true}, Pool: "pool", Class: "class", Images: []string{"image"}, At: now})
		g.Initialized("m", now)
		if came {
			g.Ran("m", w)
		}
		g.Steady("m", now.Add(2*time.Minute))
		if got := g.Served("m"); got != want {
			t.Errorf("pods have come: %v: served: %v, want %v", came, got, want)
		}
		if g.served[PodKey("pool", w)] != (time.Time{}) {
			t.Error("it counts as work for pods that never ran there")
		}
	}
}

// A pod that is thrown off another machine tells nothing about a probe that serves other workloads.
func TestThrownOffAnotherMachine(t *testing.T) {
	a, b := Workload{Namespace: "default", Owner: "Deployment/a"}, Workload{Namespace: "default", Owner: "Deployment/b"}
	for off, want := range map[string]bool{"probe": false, "other": true} {
		g, now := New(), time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
		key := PodKey("pool", a)
		buy := func(name string, probes ...Key) {
			g.Buy(name, Bought{Purchase: Purchase{Round: name, Workloads: []Workload{a, b}, Probes: probes}, Pool: "pool", Class: "class", Images: []string{"image"}, At: now})
		}
		buy("other")
		g.Serve("other", b, now)
		buy("bad")
		g.Fail("bad", Fault{Cause: "taint", Message: "taint", Workloads: []Workload{a}}, now)
		g.Recovered(now)
		now = now.Add(time.Hour)
		buy("probe", key)
		g.Serve("probe", b, now)
		g.Throw(off, "pool", a, 1, Fault{Cause: "taint", Message: "taint"}, now)
		if got := g.breakers[key].Probing(); got != want {
			t.Errorf("thrown off %s: the probe is waited for: %v, want %v", off, got, want)
		}
	}
}
