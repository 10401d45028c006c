package guard

import (
	"fmt"
	"testing"
	"time"
)

// While part of a round has failed and no more of it looks well, its key is in doubt.
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
		{name: "all have failed", failed: 10, key: pods, want: "none"}, // a breaker has the word
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
