package guard

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	poolA  = Owner{Pool: "a"}
	classC = Owner{Class: "c"}
)

// openFor makes pods of that many workloads fail, each for a cause of its own.
func openFor(g *Guard, workloads int, from time.Time) {
	for i := range workloads {
		name := fmt.Sprintf("m%d", i)
		w := Workload{Namespace: "a-namespace", Owner: fmt.Sprintf("Deployment/a-deployment-with-a-name-%d", i)}
		at := from.Add(time.Duration(i) * time.Second)
		g.Buy(name, Bought{Purchase: Purchase{Round: name, Workloads: []Workload{w}}, Pool: "a", Class: "c", At: at})
		g.Fail(name, Fault{Cause: fmt.Sprintf("taint t%d", i), Message: strings.Repeat("long ", 50)}, at)
		g.End(name, at)
	}
}

func TestEncode(t *testing.T) {
	opened := func(workloads int) func(*Guard) {
		return func(g *Guard) { openFor(g, workloads, epoch) }
	}
	closed := func(workloads int) func(*Guard) {
		return func(g *Guard) {
			openFor(g, workloads, epoch)
			for i, k := range g.Due(epoch.Add(time.Hour), nil) {
				name, at := fmt.Sprintf("p%d", i), epoch.Add(time.Hour+time.Duration(i)*time.Second)
				g.Buy(name, Bought{Purchase: Purchase{Round: name, Workloads: []Workload{k.Workload}, Probes: []Key{k}}, Pool: "a", Class: "c", At: at})
				g.Serve(name, k.Workload, at)
				g.End(name, at)
			}
		}
	}
	tests := []struct {
		name  string
		have  func(*Guard)
		owner Owner
		// want are the keys that are kept, or least and most how many there may be. open is how many of them must be open.
		want              []string
		least, most, open int
		images            []string
	}{
		{name: "nothing has ever happened", have: func(*Guard) {}, owner: poolA},
		{name: "what is another's isn't kept", have: opened(2), owner: classC},
		{
			name: "two breakers", have: opened(2), owner: poolA,
			want: []string{"node pool a, a-namespace Deployment/a-deployment-with-a-name-0", "node pool a, a-namespace Deployment/a-deployment-with-a-name-1"},
		},
		{name: "of open ones that don't fit some are kept, without messages", have: opened(450), owner: poolA, most: 449, least: 300},
		{name: "of those that only remember the oldest are left out", have: closed(450), owner: poolA, most: 449, least: 250},
		{
			name: "open ones go before those that only remember",
			have: func(g *Guard) {
				closed(450)(g)
				w := Workload{Namespace: "n", Owner: "zz"}
				g.Buy("z", Bought{Purchase: Purchase{Round: "z", Workloads: []Workload{w}}, Pool: "a", Class: "c", At: epoch})
				g.Fail("z", Fault{Cause: "x"}, epoch.Add(2*time.Hour))
			},
			owner: poolA, most: 449, least: 250, open: 1,
		},
		{
			name: "the images that came up last are known",
			have: func(g *Guard) {
				for i := range 20 {
					image := fmt.Sprintf("ami-%d", 99-i)
					g.Buy(image, Bought{Purchase: Purchase{Round: image}, Pool: "a", Class: "c", At: epoch})
					g.Locate(image, image, "z")
					g.Initialized(image, epoch.Add(time.Duration(i)*time.Minute))
				}
			},
			owner:  classC,
			images: []string{"ami-80", "ami-81", "ami-82", "ami-83", "ami-84", "ami-85", "ami-86", "ami-87", "ami-88", "ami-89", "ami-90", "ami-91", "ami-92", "ami-93", "ami-94", "ami-95"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := New()
			g.Recovered(epoch)
			test.have(g)
			now := epoch.Add(3 * time.Hour)
			text := g.Encode(test.owner, now)
			if len(text) > maxRecord {
				t.Errorf("%d bytes", len(text))
			}
			again := New()
			if err := again.Restore(test.owner, text); err != nil {
				t.Fatal(err)
			}
			var got []string
			open := 0
			for _, b := range again.Breakers() {
				got = append(got, b.Key.String())
				if b.Open() {
					open++
				}
			}
			if test.most > 0 {
				if len(got) < test.least || len(got) > test.most || open < test.open {
					t.Errorf("%d breakers kept, %d of them open, want %d to %d and %d", len(got), open, test.least, test.most, test.open)
				}
			} else if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("kept (-want +got):\n%s", diff)
			}
			for _, image := range test.images {
				if !again.KnownImage("c", image) {
					t.Errorf("%s isn't known any more", image)
				}
			}
		})
	}
}

// A record changes no breaker, however long it would be: other workloads of the pool stay free, and repairs stay paused.
func TestEncodeChangesNoBreaker(t *testing.T) {
	for _, workloads := range []int{15, 250, 450} {
		t.Run(fmt.Sprint(workloads), func(t *testing.T) {
			g := New()
			g.Recovered(epoch)
			fault := Fault{Cause: "unhealthy", Message: "its condition KernelReady is False"}
			g.Repaired("a", "r1", fault, epoch.Add(-100*time.Hour), epoch)
			g.Repaired("a", "r2", fault, epoch.Add(time.Minute), epoch.Add(time.Hour))
			openFor(g, workloads, epoch)
			now := epoch.Add(time.Hour + time.Minute)
			states := func() (out []Breaker) {
				for _, b := range g.Breakers() {
					out = append(out, *b)
				}
				return out
			}
			before := states()
			text := g.Encode(poolA, now)
			if len(text) > maxRecord {
				t.Errorf("%d bytes", len(text))
			}
			if diff := cmp.Diff(before, states(), cmp.AllowUnexported(Breaker{})); diff != "" {
				t.Errorf("breakers (-before +after):\n%s", diff)
			}
			again := New()
			if err := again.Restore(poolA, text); err != nil {
				t.Fatal(err)
			}
			healthy := Workload{Namespace: "a-namespace", Owner: "Deployment/healthy"}
			for name, one := range map[string]*Guard{"this process": g, "the next one": again} {
				if b := one.HoldsPods("a", healthy, now); b != nil {
					t.Errorf("%s: %s pauses a workload that never failed", name, b.Key)
				}
				if one.HoldsRepair("a", now.Add(-time.Minute), now) == nil {
					t.Errorf("%s: repairs aren't paused any more", name)
				}
			}
			if workloads > 300 {
				return
			}
			for i := range workloads {
				w := Workload{Namespace: "a-namespace", Owner: fmt.Sprintf("Deployment/a-deployment-with-a-name-%d", i)}
				if b := again.HoldsPods("a", w, now); b == nil || !strings.Contains(b.Text(), "paused since 2026") {
					t.Errorf("after a restart %s isn't paused any more", w)
				}
			}
		})
	}
}

// Earlier versions merged breakers that did not fit. Such a record is read, and what it has merged is known again once a machine serves.
func TestRestoreReadsMergedRecords(t *testing.T) {
	g := New()
	text := `{"breakers":[{"key":{"pool":"a","cause":"several"},"cause":"several","message":"m","since":1780272000,"next":1780272000,"failed":2,"life":60,` +
		`"members":[{"ns":"n","owner":"Deployment/x"}]}]}`
	if err := g.Restore(poolA, text); err != nil {
		t.Fatal(err)
	}
	g.Recovered(epoch)
	all, x, y := PoolKey("a", "several"), Workload{Namespace: "n", Owner: "Deployment/x"}, Workload{Namespace: "n", Owner: "Deployment/y"}
	now := epoch.Add(time.Hour)
	if b := g.HoldsPods("a", y, now); b == nil || b.Key != all {
		t.Fatalf("the pool isn't paused: %v", b)
	}
	g.Buy("m", Bought{Purchase: Purchase{Round: "m", Workloads: []Workload{y}, Probes: []Key{all}}, Pool: "a", Class: "c", At: now})
	g.Serve("m", y, now)
	for range 2 {
		if b := g.HoldsPods("a", y, now); b != nil {
			t.Errorf("%s is still paused by %s", y, b.Key)
		}
		if b := g.HoldsPods("a", x, now); b == nil {
			t.Errorf("%s isn't paused any more", x)
		}
		next := New()
		if err := next.Restore(poolA, g.Encode(poolA, now)); err != nil {
			t.Fatal(err)
		}
		g = next
	}
}

// Images are forgotten a month after the last of their machines was initialized, but not while a machine of theirs exists.
func TestImagesOutOfUseAreForgotten(t *testing.T) {
	g := New()
	if err := g.Restore(classC, `{"images":["restored"]}`); err != nil {
		t.Fatal(err)
	}
	g.Know("c", "old")
	start := func(image string, at time.Time) {
		g.Buy(image, Bought{Purchase: Purchase{Round: image}, Pool: "a", Class: "c", At: at})
		g.Locate(image, image, "z")
		g.Initialized(image, at)
	}
	start("gone", epoch)
	g.End("gone", epoch)
	start("lives", epoch)
	start("again", epoch)
	g.End("again", epoch)
	all := []string{"restored", "old", "gone", "lives", "again"}
	for day := 0; day <= 100; day++ {
		now := epoch.Add(time.Duration(day) * 24 * time.Hour)
		g.Tick(now)
		var got []string
		for _, image := range all {
			if g.KnownImage("c", image) {
				got = append(got, image)
			}
		}
		want := all
		switch {
		case day >= 90:
			want = nil
		case day >= 50:
			want = []string{"lives"}
		case day >= 30:
			want = []string{"lives", "again"}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("day %d, known (-want +got):\n%s", day, diff)
		}
		switch day {
		case 20:
			start("again", now)
			g.End("again", now)
		case 89:
			g.End("lives", now)
		}
	}
	if len(g.known) > 0 {
		t.Errorf("left: %v", g.known)
	}
}

// The images that came up last are recorded, also those that came up days ago.
func TestRecordHasTheLatestImages(t *testing.T) {
	g := New()
	for i := range 40 {
		image, at := fmt.Sprintf("ami-%d", 10+i), epoch.Add(time.Duration(i)*6*time.Hour)
		g.Buy(image, Bought{Purchase: Purchase{Round: image}, Pool: "a", Class: "c", At: at})
		g.Locate(image, image, "z")
		g.Initialized(image, at)
		g.End(image, at)
	}
	now := epoch.Add(20 * 24 * time.Hour)
	g.Tick(now)
	again := New()
	if err := again.Restore(classC, g.Encode(classC, now)); err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		if image, want := fmt.Sprintf("ami-%d", 10+i), i >= 40-mostImages; again.KnownImage("c", image) != want {
			t.Errorf("%s is known: %t", image, !want)
		}
	}
}

func TestRestoreRefuses(t *testing.T) {
	tests := []struct {
		name  string
		owner Owner
		text  string
		want  string
	}{
		{name: "what is no JSON", owner: poolA, text: "{", want: "reading the record of the spending guard: unexpected end of JSON input"},
		{
			name: "a breaker of another pool", owner: poolA, text: `{"breakers":[{"key":{"pool":"a"}},{"key":{"pool":"b"}}]}`,
			want: "reading the record of the spending guard: breakers[1].key: node pool b belongs to the record of node pool b, not here",
		},
		{
			name: "a breaker of a class on a pool", owner: poolA, text: `{"breakers":[{"key":{"class":"a"}}]}`,
			want: "reading the record of the spending guard: breakers[0].key: node class a belongs to the record of node class a, not here",
		},
		{
			name: "a key that is of two kinds", owner: classC, text: `{"breakers":[{"key":{"class":"c","pool":"a"}}]}`,
			want: "reading the record of the spending guard: breakers[0].key: node class c is incomplete, or of two kinds",
		},
		{
			name: "a key that is of no kind", owner: Owner{}, text: `{"breakers":[{"key":{}}]}`,
			want: "reading the record of the spending guard: breakers[0].key: node pool  is incomplete, or of two kinds",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := New()
			err := g.Restore(test.owner, test.text)
			if diff := cmp.Diff(test.want, fmt.Sprint(err)); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if len(g.Breakers()) > 0 {
				t.Error("half of the record was taken in")
			}
		})
	}
}

func TestOpenOf(t *testing.T) {
	g := New()
	g.Recovered(epoch)
	openFor(g, 1, epoch)
	g.Buy("r", Bought{Purchase: Purchase{Round: "r"}, Pool: "a", Class: "c", Images: []string{"i"}, At: epoch})
	g.Fail("r", Fault{Machine: true, Cause: "refused", Message: "a webhook denies the Node", Refused: true}, epoch)
	got := map[Owner][]string{}
	for _, o := range []Owner{poolA, classC} {
		texts, err := OpenOf(g.Encode(o, epoch))
		if err != nil {
			t.Fatal(err)
		}
		got[o] = texts
	}
	want := map[Owner][]string{
		poolA: {"launches are paused since 2026-06-01T00:00:00Z; one machine is tried from 2026-06-01T00:00:00Z on, or after a change " +
			"(annotation dovetail.sh/retry: at once). For node pool a, a-namespace Deployment/a-deployment-with-a-name-0: NodeClaim m0: " + strings.Repeat("long ", 29) + "l"},
		classC: {"launches are paused since 2026-06-01T00:00:00Z; the next machine is tried once the API server accepts its Node in a dry run, " +
			"which is repeated each minute (annotation dovetail.sh/retry: at once). For node class c, image i: NodeClaim r: a webhook denies the Node"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("texts (-want +got):\n%s", diff)
	}
}

// FuzzRestore reads records that a user may have edited: a restored breaker stops what its record says, for no more than six hours, and
// another process writes the same record again.
func FuzzRestore(f *testing.F) {
	g := New()
	g.Recovered(epoch)
	openFor(g, 3, epoch)
	f.Add("", "a", g.Encode(poolA, epoch))
	openFor(g, 400, epoch)
	f.Add("", "a", g.Encode(poolA, epoch))
	f.Add("c", "", `{"images":["i",""],"breakers":[{"key":{"class":"c","image":"i","zone":"z"},"next":99999999999999,"failed":9223372036854775807,"life":-5,"probes":["m","m"]}]}`)
	f.Add("c", "", `{"breakers":[{"key":{"class":"c"},"closed":-9223372036854775808,"since":9223372036854775807,"early":[1,9223372036854775807],"trial":true}]}`)
	f.Add("", "", `{"breakers":[{"key":{}}]}`)
	f.Add("", "a", `{"breakers":[{"key":{"pool":"a"},"members":[{"owner":"x"}]},{"key":{"pool":"a","workload":{"owner":"x"}},"trial":true,"probes":["y"]}]}`)
	f.Fuzz(func(t *testing.T, class, pool, text string) {
		o := Owner{Class: class, Pool: pool}
		g := New()
		_, errOpen := OpenOf(text)
		if err := g.Restore(o, text); err != nil {
			if len(g.breakers)+len(g.known) > 0 {
				t.Fatalf("%v, but %v was taken in", err, g.Breakers())
			}
			return
		}
		if errOpen != nil {
			t.Fatal(errOpen)
		}
		now := epoch
		g.Recovered(now)
		g.Tick(now)
		for _, b := range g.Breakers() {
			if b.Open() && (b.Probing() || b.Next.Sub(now) > maxPause) {
				t.Fatalf("%s: next at %s", b.Key, b.Next)
			}
		}
		first := g.Encode(o, now)
		if len(first) > maxRecord && strings.Contains(first, `"key"`) {
			t.Fatalf("%d bytes: %s", len(first), first)
		}
		again := New()
		if err := again.Restore(o, first); err != nil {
			t.Fatalf("%v: %s", err, first)
		}
		if diff := cmp.Diff(first, again.Encode(o, now)); diff != "" {
			t.Fatalf("another process writes something else: %s", diff)
		}
		// A day of failing probes.
		for range 10 {
			for _, k := range g.Due(now, nil) {
				name := now.String() + k.String() + k.Cause
				g.Buy(name, Bought{Purchase: Purchase{Round: name, Workloads: []Workload{k.Workload}, Probes: []Key{k}}, Pool: k.Pool, Class: k.Class, Images: []string{k.Image}, At: now})
				g.Locate(name, k.Image, k.Zone)
				g.Fail(name, Fault{Machine: k.Machine(), Cause: "fuzz"}, now)
				g.End(name, now)
				if b := g.breakers[k]; b != nil && b.Open() && (b.Next.Sub(now) < minPause || b.Next.Sub(now) > maxPause) {
					t.Fatalf("%s: after a failure the next is at %s, now is %s", k, b.Next, now)
				}
			}
			now = now.Add(maxPause)
			g.Tick(now)
		}
	})
}
