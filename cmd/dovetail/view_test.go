package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spf13/cobra"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
	"github.com/dovetail-scheduler/dovetail/pkg/view"
)

// Standard input is at its end when the page looks again, which would empty the page.
func TestViewRefusesStandardInput(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop() // if it serves a page, it ends at once
	var out, errs bytes.Buffer
	code := run(ctx, []string{"view", "--address", "127.0.0.1:0", "--existing", "nodes.json", "--existing", "-"}, strings.NewReader(""), &out, &errs)
	if code != exitUsage || !strings.Contains(errs.String(), "--existing -: must be a file") {
		t.Errorf("exit code %d: %s%s", code, &out, &errs)
	}
}

// apiServer is one of an empty cluster. It counts how often the nodes were listed.
type apiServer struct {
	*httptest.Server
	looks atomic.Int64
}

func newAPIServer(t *testing.T) *apiServer {
	s := &apiServer{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/nodes" {
			s.looks.Add(1)
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// Looks share one reader. After one has failed, the kubeconfig is read again, and the context stays that of the title.
func TestViewKeepsItsReader(t *testing.T) {
	first, second, other := newAPIServer(t), newAPIServer(t), newAPIServer(t)
	file := filepath.Join(t.TempDir(), "config")
	write := func(current string, mine *apiServer) {
		t.Helper()
		text := fmt.Sprintf("{apiVersion: v1, kind: Config, current-context: %s, contexts: [{name: mine, context: {cluster: mine}}, {name: other, context: {cluster: other}}], "+
			"clusters: [{name: mine, cluster: {server: %q}}, {name: other, cluster: {server: %q}}]}", current, mine.URL, other.URL)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := newClusterFlags()
	f.kube.path, f.quiet = file, true
	look := func() error {
		_, err := f.look(t.Context(), &cobra.Command{}, manifest.Options{})
		return err
	}
	check := func(what string, want ...int64) {
		t.Helper()
		if got := []int64{first.looks.Load(), second.looks.Load(), other.looks.Load()}; !slices.Equal(got, want) {
			t.Errorf("%s, looks at the three API servers: %v, want %v", what, got, want)
		}
	}
	write("mine", first)
	f.keepContext()
	if got := f.title(); got != "mine" {
		t.Errorf("the title is %q", got)
	}
	if err := look(); err != nil {
		t.Fatal(err)
	}
	write("other", second)
	if err := look(); err != nil {
		t.Fatal(err)
	}
	check("while no look fails", 2, 0, 0)
	first.Close()
	if look() == nil {
		t.Error("a server that has ended was read")
	}
	if err := look(); err != nil {
		t.Fatal(err)
	}
	check("after a look has failed", 2, 1, 0)
}

// The terminal has a line for the beginning of each outage, with what a person understands as its cause, and one for its end.
func TestViewTellsOfEachOutage(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC))
	var out strings.Builder
	o := &outage{clock: clock, print: func(format string, args ...any) { fmt.Fprintf(&out, format, args...) }}
	givenUp, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the cluster hasn't answered within 10s"))
	for _, look := range []struct {
		ctx context.Context
		err error
	}{{t.Context(), nil}, {givenUp, context.Canceled}, {t.Context(), errors.New("connection refused")}, {t.Context(), nil}, {t.Context(), nil}, {t.Context(), errors.New("connection refused")}} {
		o.looked(look.ctx, look.err)
		clock.SetTime(clock.Now().Add(19 * time.Second))
	}
	want := `10:00:19: The cluster can't be read: the cluster hasn't answered within 10s. The page tries again.
10:00:57: The cluster can be read again, after 38s.
10:01:35: The cluster can't be read: connection refused. The page tries again.
`
	if out.String() != want {
		t.Errorf("it says\n%s, want\n%s", out.String(), want)
	}
}

// What the page says about a node's end is what 'dovetail plan --without' says: nothing is launched for a pod of another scheduler.
func TestViewSaysWhatPlanWithoutSays(t *testing.T) {
	foreign := filepath.Join(t.TempDir(), "foreign.yaml")
	var pods strings.Builder
	for i := range 20 { // more than fit on the nodes that are there
		fmt.Fprintf(&pods, `---
{apiVersion: v1, kind: Pod, metadata: {name: foreign-%d, namespace: shop, uid: uid-foreign-%d}, status: {phase: Pending},
  spec: {schedulerName: volcano, containers: [{name: c, image: i, resources: {requests: {cpu: 1500m, memory: 1Gi}}}]}}
`, i, i)
	}
	if err := os.WriteFile(foreign, []byte(pods.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	f := newClusterFlags()
	f.existing, f.catalog, f.config, f.quiet = []string{"testdata/live.yaml", "testdata/live-nodes.yaml", foreign}, "testdata/catalog.json", "testdata/scheduler.yaml", true
	c, err := f.look(t.Context(), &cobra.Command{}, manifest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"node-a", "node-unsaid"} {
		got, err := view.EndingOf(t.Context(), c.Cluster, node)
		if err != nil {
			t.Fatal(err)
		}
		var want struct {
			Nodes   []struct{ Pods []struct{ Name string } }
			Without struct{ InsteadPerHour float64 }
		}
		out := dovetail(t, "dovetail plan --existing testdata/live.yaml --existing testdata/live-nodes.yaml --existing "+foreign+" --catalog testdata/catalog.json --config testdata/scheduler.yaml --without "+node+" -o json")
		if err := json.NewDecoder(strings.NewReader(out[max(strings.Index(out, "{"), 0):])).Decode(&want); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if got.Moved == 0 && node == "node-a" {
			t.Errorf("no pod of %s moves", node)
		}
		if len(got.Bought) != len(want.Nodes) || len(got.Refused) > 0 || math.Abs(got.InsteadPerHour-want.Without.InsteadPerHour) > 1e-9 {
			t.Errorf("%s: the page says %+v, plan %+v", node, got, want)
		}
		for i := range want.Nodes {
			if text := fmt.Sprintf("for %d pod", len(want.Nodes[i].Pods)); !strings.Contains(got.Bought[i], text) || strings.HasSuffix(got.Bought[i], "for 1 pods") {
				t.Errorf("%s: %q, want %q", node, got.Bought[i], text)
			}
		}
	}
}
