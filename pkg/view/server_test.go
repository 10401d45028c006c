package view

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-scheduler/dovetail/pkg/explain"
)

// feedOf returns a feed whose looks find what look returns at the time.
func feedOf(look func() (*explain.Cluster, error)) *Feed {
	return NewFeed(func(context.Context) (*explain.Cluster, []string, error) {
		c, err := look()
		return c, nil, err
	}, time.Second, clock.RealClock{})
}

func serverOf(t *testing.T, f *Feed) *httptest.Server {
	t.Helper()
	s, err := NewServer(f, `<script>alert("x")</script>`, "127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return h
}

// ask sends a request and returns the answer, whose body is closed with the test.
func ask(t *testing.T, method, url, host string, header ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if host != "" {
		r.Host = host
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	out, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Body.Close() })
	return out
}

func text(t *testing.T, r *http.Response) string {
	t.Helper()
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// A page of elsewhere whose name points at this computer gets nothing, and neither does another site that asks for work.
func TestOnlyThisComputersNamesAreAnswered(t *testing.T) {
	h := serverOf(t, feedOf(func() (*explain.Cluster, error) { return clusterOf(node("a")), nil }))
	for host, want := range map[string]int{"": 200, "localhost:8765": 200, "LOCALHOST": 200, "[::1]:8765": 200, "evil.example": 403, "evil.example:8765": 403, "127.0.0.1.evil.example": 403, "10.0.0.1": 403} {
		for _, path := range []string{"/", "/view.js", "/why?node=a"} {
			want := want
			if want == 200 && strings.HasPrefix(path, "/why") {
				want = 422 // nothing was read yet
			}
			if got := ask(t, "GET", h.URL+path, host).StatusCode; got != want {
				t.Errorf("Host %q, %s: %d, want %d", host, path, got, want)
			}
		}
	}
	if got := ask(t, "GET", h.URL+"/ending?node=a", "", "Sec-Fetch-Site", "cross-site").StatusCode; got != 403 {
		t.Errorf("another site: %d", got)
	}
	if got := ask(t, "POST", h.URL+"/", "").StatusCode; got != 405 {
		t.Errorf("POST: %d", got)
	}
	if got := ask(t, "GET", h.URL+"/page.html", "").StatusCode; got != 404 {
		t.Errorf("the template is served: %d", got)
	}
}

// The page has no inline script or style, the policy allows none, and the cluster's name is text.
func TestPolicyAndPage(t *testing.T) {
	h := serverOf(t, feedOf(func() (*explain.Cluster, error) { return clusterOf(), nil }))
	for _, path := range []string{"/", "/view.js", "/view.css", "/none"} {
		r := ask(t, "GET", h.URL+path, "")
		got := r.Header.Get("Content-Security-Policy")
		if !strings.Contains(got, "default-src 'none'") || !strings.Contains(got, "script-src 'self';") || strings.Contains(got, "unsafe") || r.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: the headers are %v", path, r.Header)
		}
	}
	page := text(t, ask(t, "GET", h.URL+"/", ""))
	if strings.Contains(page, "<script>") || strings.Contains(page, "style=") || !strings.Contains(page, "&lt;script&gt;alert") {
		t.Errorf("the page is\n%s", page)
	}
	script := text(t, ask(t, "GET", h.URL+"/view.js", ""))
	for _, unsafe := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("} {
		if strings.Contains(script, unsafe) {
			t.Errorf("the script uses %s", unsafe)
		}
	}
}

// The stream sends everything first, and then what has changed: also that the cluster can't be read, since when, and that it can again.
func TestUpdates(t *testing.T) {
	world := func() (*explain.Cluster, error) { return clusterOf(node("a"), node("b")), nil }
	f := feedOf(func() (*explain.Cluster, error) { return world() })
	_, _, _ = f.once(t.Context())
	h := serverOf(t, f)
	lines := bufio.NewReader(ask(t, "GET", h.URL+"/updates", "").Body)
	next := func() (u Update) {
		t.Helper()
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		data, ok := strings.CutPrefix(line, "data: ")
		if err := json.Unmarshal([]byte(data), &u); !ok || err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		return u
	}
	if u := next(); !u.Whole || len(u.Nodes) != 2 || u.Head.NodeCount != 2 || len(u.History) != 1 {
		t.Errorf("first comes %+v", u)
	}
	world = func() (*explain.Cluster, error) {
		return clusterOf(node("a"), pod("web", "a", "ReplicaSet", "1"), node("c")), nil
	}
	_, _, _ = f.once(t.Context())
	if u := next(); u.Whole || len(u.Nodes) != 2 || strings.Join(u.Gone, " ") != "b" || u.Head.Running != 1 {
		t.Errorf("then comes %+v", u)
	}
	world = func() (*explain.Cluster, error) { return nil, errors.New("connection refused") }
	_, _, _ = f.once(t.Context())
	u := next()
	since := u.Head.Since
	if u.Head.Problem != "connection refused" || since == 0 || u.Head.NodeCount != 2 || len(u.Nodes)+len(u.Gone) > 0 {
		t.Errorf("while it can't be read comes %+v", u)
	}
	_, _, _ = f.once(t.Context())
	if u := next(); u.Head.Since != since {
		t.Errorf("lost since %d, before it was %d", u.Head.Since, since)
	}
	world = func() (*explain.Cluster, error) { return clusterOf(node("a")), nil }
	_, _, _ = f.once(t.Context())
	if u := next(); u.Head.Problem != "" || u.Head.Since != 0 || strings.Join(u.Gone, " ") != "c" {
		t.Errorf("at the end comes %+v", u)
	}
}

// What is sent says how old it is, also to a page that is opened long after it was read.
func TestUpdatesSayHowOldTheyAre(t *testing.T) {
	read := time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC)
	clock := clocktesting.NewFakeClock(read)
	f := NewFeed(func(context.Context) (*explain.Cluster, []string, error) { return clusterOf(node("a")), nil, nil }, 2*time.Second, clock)
	_, _, _ = f.once(t.Context())
	clock.Step(25 * time.Second)
	line, err := bufio.NewReader(ask(t, "GET", serverOf(t, f).URL+"/updates", "").Body).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var u Update
	if err := json.Unmarshal([]byte(strings.TrimPrefix(line, "data: ")), &u); err != nil {
		t.Fatal(err)
	}
	if u.Head.ReadAt != read.UnixMilli() || u.Now-u.Head.ReadAt != 25_000 || u.Head.Interval != 2000 {
		t.Errorf("read at %d, sent at %d, interval %d", u.Head.ReadAt, u.Now, u.Head.Interval)
	}
}

// Somebody who opens the page or clicks needn't wait for the end of a long pause; but looks never take more than half of the time for that.
func TestLookWhenSomebodyLooks(t *testing.T) {
	for name, tc := range map[string]struct {
		opened time.Duration   // when the page is opened first
		often  bool            // and every second from then on
		takes  time.Duration   // a look
		want   []time.Duration // the first looks
	}{
		"nobody":            {opened: time.Hour, takes: 2 * time.Second, want: []time.Duration{0, 22 * time.Second, 44 * time.Second}},
		"in a pause":        {opened: 10 * time.Second, takes: 2 * time.Second, want: []time.Duration{0, 10 * time.Second, 32 * time.Second}},
		"soon after a look": {opened: 2500 * time.Millisecond, takes: 2 * time.Second, want: []time.Duration{0, 4 * time.Second, 26 * time.Second}},
		"during a look":     {opened: time.Second, takes: 2 * time.Second, want: []time.Duration{0, 4 * time.Second, 26 * time.Second}},
		"all the time":      {opened: time.Second, often: true, takes: 3 * time.Second, want: []time.Duration{0, 6 * time.Second, 12 * time.Second, 18 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var at []time.Duration
				begun := time.Now()
				ctx, stop := context.WithCancel(t.Context())
				f := NewFeed(func(ctx context.Context) (*explain.Cluster, []string, error) {
					if at = append(at, time.Since(begun)); len(at) == len(tc.want) {
						stop()
					}
					select {
					case <-time.After(tc.takes):
					case <-ctx.Done():
					}
					return clusterOf(node("a")), nil, ctx.Err()
				}, time.Second, clock.RealClock{})
				go func() {
					for i := 0; ctx.Err() == nil && (i == 0 || tc.often); i++ {
						select {
						case <-time.After(map[bool]time.Duration{true: tc.opened, false: time.Second}[i == 0]):
							f.Want()
						case <-ctx.Done():
						}
					}
				}()
				f.Run(ctx, false)
				if !slices.Equal(at, tc.want) {
					t.Errorf("it looks at %v, want %v", at, tc.want)
				}
			})
		})
	}
}

// The server tells the feed that somebody looks.
func TestPageAndClickAskForALook(t *testing.T) {
	f := feedOf(func() (*explain.Cluster, error) { return clusterOf(node("a")), nil })
	_, _, _ = f.once(t.Context())
	h := serverOf(t, f)
	for _, path := range []string{"/updates", "/why?node=a", "/ending?node=a"} {
		_, _ = bufio.NewReader(ask(t, "GET", h.URL+path, "").Body).ReadString('\n')
		select {
		case <-f.wanted:
		default:
			t.Errorf("%s doesn't ask for a look", path)
		}
	}
}

// A page finds out that another process answers, also if it has got no update of the one that has served it.
func TestProcess(t *testing.T) {
	first := feedOf(func() (*explain.Cluster, error) { return clusterOf(node("a")), nil })
	second := feedOf(func() (*explain.Cluster, error) { return nil, errors.New("connection refused") })
	ids := map[string]bool{}
	for _, f := range []*Feed{first, second} {
		h := serverOf(t, f)
		page := text(t, ask(t, "GET", h.URL+"/", ""))
		for range 2 {
			_, _, _ = f.once(t.Context())
			m, _ := f.Latest()
			ids[m.Head.Process] = true
			if id := fmt.Sprintf("data-process=%q", m.Head.Process); m.Head.Process == "" || !strings.Contains(page, id) {
				t.Errorf("the page doesn't have %s:\n%.200s", id, page)
			}
		}
	}
	if len(ids) != 2 {
		t.Errorf("two processes have the ids %v", ids)
	}
}

// Answers are those of pkg/explain, and errors name what is missing.
func TestAnswers(t *testing.T) {
	f := feedOf(func() (*explain.Cluster, error) { return clusterOf(node("a"), pod("web", "a", "ReplicaSet", "1")), nil })
	h := serverOf(t, f)
	if got := text(t, ask(t, "GET", h.URL+"/why?node=a", "")); !strings.Contains(got, errNotRead.Error()) {
		t.Errorf("before the first look: %s", got)
	}
	_, _, _ = f.once(t.Context())
	for path, want := range map[string]string{
		"/why?node=a":       `"object":"Node a","kind":"NoNodeClaim"`,
		"/why?pod=shop/web": `"object":"Pod shop/web"`,
		"/why?node=b":       `{"error":"there is no node b"}`,
		"/why?pod=web":      `{"error":"there is no Pod web`,
		"/ending?node=b":    `{"error":"there is no node b"}`,
	} {
		if got := text(t, ask(t, "GET", h.URL+path, "")); !strings.Contains(strings.ToLower(got), strings.ToLower(want)) {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// The feed looks every interval, less often if a look takes long or gets no answer, as soon again if it fails, and ends with its context.
func TestRun(t *testing.T) {
	for name, tc := range map[string]struct {
		takes time.Duration
		err   error
		want  []time.Duration // in seconds
	}{
		"looks that take long":        {takes: 2 * time.Second, want: []time.Duration{0, 1, 2, 3, 25}},
		"looks that take very long":   {takes: 9 * time.Second, want: []time.Duration{0, 1, 2, 3, 42}},
		"looks that fail after long":  {takes: 9 * time.Second, err: errors.New("connection refused"), want: []time.Duration{0, 1, 2, 3, 13, 23, 33, 43}},
		"looks that get no answer":    {takes: time.Hour, want: []time.Duration{0, 1, 2, 3, 43}},
		"looks that don't take long ": {takes: 50 * time.Millisecond, want: nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				var at []time.Duration
				f := NewFeed(func(ctx context.Context) (*explain.Cluster, []string, error) {
					since := time.Since(start)
					at = append(at, since)
					if since < 3*time.Second {
						return clusterOf(node("a")), nil, nil
					}
					select {
					case <-time.After(tc.takes):
						return clusterOf(node("a")), nil, tc.err
					case <-ctx.Done():
						return nil, nil, ctx.Err()
					}
				}, time.Second, clock.RealClock{})
				f.longest = time.Millisecond
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					f.Run(ctx, false)
				}()
				<-time.After(43500 * time.Millisecond)
				m, _ := f.Latest()
				stop()
				<-ended
				if tc.want == nil {
					if len(at) < 42 {
						t.Errorf("it looks %d times", len(at))
					}
					return
				}
				for i := range at {
					at[i] /= time.Second
				}
				if !slices.Equal(at, tc.want) {
					t.Errorf("it looks at %d, want %d", at, tc.want)
				}
				switch {
				case tc.err != nil && m.Head.Problem != tc.err.Error(), tc.takes == time.Hour && m.Head.Problem != "the cluster hasn't answered within 10s":
					t.Errorf("the problem is %q", m.Head.Problem)
				case m.Head.NodeCount != 1:
					t.Errorf("the last model has %d nodes", m.Head.NodeCount)
				}
			})
		})
	}
}

// An API server that needs long is waited for longer each time, up to a limit, until it has answered.
func TestPatience(t *testing.T) {
	const never = time.Hour
	for name, tc := range map[string]struct {
		longest time.Duration   // that a look has taken before
		takes   []time.Duration // each look
		want    []time.Duration // how long each look was waited for
	}{
		"the first look needs five minutes":   {takes: []time.Duration{5 * time.Minute, 5 * time.Minute, 5 * time.Minute}, want: []time.Duration{2 * time.Minute, 4 * time.Minute, 5 * time.Minute}},
		"there is no answer":                  {takes: []time.Duration{never, never, never, never, never}, want: []time.Duration{2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 10 * time.Minute, 10 * time.Minute}},
		"an answer makes it impatient again":  {longest: time.Second, takes: []time.Duration{never, never, 0, never, never}, want: []time.Duration{10 * time.Second, 20 * time.Second, 0, 10 * time.Second, 20 * time.Second}},
		"long looks are waited for even more": {longest: 3 * time.Minute, takes: []time.Duration{never, never}, want: []time.Duration{15 * time.Minute, 15 * time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				var waited, paused []time.Duration
				ended := time.Time{}
				f := NewFeed(func(ctx context.Context) (*explain.Cluster, []string, error) {
					begun := time.Now()
					if len(waited) > 0 {
						paused = append(paused, begun.Sub(ended))
					}
					timer := time.NewTimer(tc.takes[len(waited)])
					defer timer.Stop()
					var err error
					select {
					case <-timer.C:
					case <-ctx.Done():
						err = ctx.Err()
					}
					ended = time.Now()
					if waited = append(waited, ended.Sub(begun)); len(waited) == len(tc.takes) {
						stop()
					}
					return clusterOf(node("a")), nil, err
				}, time.Second, clock.RealClock{})
				f.longest = tc.longest
				f.Run(ctx, false)
				if !slices.Equal(waited, tc.want) {
					t.Errorf("it waits for %v, want %v", waited, tc.want)
				}
				for i, pause := range paused {
					if want := min(max(time.Second, mostOfTime*waited[i]), longestPause); pause != want {
						t.Errorf("after %v it pauses for %v, want %v", waited[i], pause, want)
					}
				}
			})
		})
	}
}

// The bound follows the cluster: one that was worked out before there were nodes is soon replaced.
func TestBoundIsWorkedOutAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var more atomic.Int64
		f := NewFeed(func(context.Context) (*explain.Cluster, []string, error) {
			objects := []client.Object{node("a")}
			for i := range more.Load() {
				objects = append(objects, node(fmt.Sprint("b-", i)))
			}
			return clusterOf(objects...), nil, nil
		}, time.Second, clock.RealClock{})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			f.Run(ctx, true)
		}()
		bound := func() *explain.Least {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.bound
		}
		<-time.After(2500 * time.Millisecond)
		before := bound()
		more.Store(3)
		<-time.After(boundEvery + time.Second)
		after := bound()
		stop()
		<-ended
		if before == nil || after == nil || before == after || after.Managed != before.Managed+3 {
			t.Errorf("before %+v, after %+v", before, after)
		}
	})
}

// unplanned is a context in which nothing can be planned, although it isn't over for those who wait.
type unplanned struct{ context.Context }

func (unplanned) Err() error { return context.Canceled }

// A bound isn't shown beside newer costs if it couldn't be worked out again.
func TestBoundThatFails(t *testing.T) {
	f := feedOf(func() (*explain.Cluster, error) { return clusterOf(node("a"), pod("web", "a", "ReplicaSet", "1")), nil })
	c, o, err := f.once(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	f.bound = &explain.Least{BoundAt: now.Add(-time.Minute), Bound: 0.5, Managed: 3, ManagedPerHour: 0.6}
	f.mu.Unlock()
	if _, _, _ = f.once(t.Context()); f.latest.Head.Bound != 0.5 || f.latest.Head.BoundAt != now.Add(-time.Minute).UnixMilli() {
		t.Fatalf("the bound isn't shown: %+v", f.latest.Head)
	}
	f.mu.Lock()
	f.bound.NotCounted = "2 pods"
	f.mu.Unlock()
	if _, _, _ = f.once(t.Context()); f.latest.Head.NotCounted != "2 pods" || f.latest.History[len(f.latest.History)-1].Bound != 0 {
		t.Errorf("a bound for some pods is compared with what all nodes cost: %+v, %v", f.latest.Head, f.latest.History)
	}
	_, changed := f.Latest()
	f.addBound(unplanned{t.Context()}, c, o)
	select {
	case <-changed:
	default:
		t.Error("the page isn't told")
	}
	if _, _, _ = f.once(t.Context()); f.latest.Head.Bound != 0 || f.latest.Head.Managed != 0 {
		t.Errorf("after it failed: %+v", f.latest.Head)
	}
}
