package livecluster

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// server answers lists: what is in bodies by path (and page), Forbidden for the paths of forbidden, and NotFound else.
type server struct {
	bodies    map[string]string
	forbidden []string
	mu        sync.Mutex
	requests  []string
	patches   []string
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r.Method+" "+r.URL.Path)
	w.Header().Set("Content-Type", "application/json")
	for _, path := range s.forbidden {
		if r.URL.Path == path {
			w.WriteHeader(http.StatusForbidden)
			_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"forbidden"}`)
			return
		}
	}
	key := r.URL.Path
	if next := r.URL.Query().Get("continue"); next != "" {
		key += "#" + next
	}
	body, ok := s.bodies[key]
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"not found"}`)
		return
	}
	if r.Method == http.MethodPatch {
		patch, err := io.ReadAll(r.Body)
		if err != nil {
			panic(err)
		}
		s.patches = append(s.patches, r.URL.RawQuery+" "+string(patch))
		body = string(patch)
	}
	_, _ = fmt.Fprint(w, body)
}

func readerOf(t *testing.T, s *server) *Reader {
	t.Helper()
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	r, err := New(&rest.Config{Host: h.URL})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const empty = `{"kind":"List","apiVersion":"v1","metadata":{},"items":[]}`

// All pages are read, kinds that the cluster doesn't have are left out, and what the user may not list is a warning that says what is lost.
func TestRead(t *testing.T) {
	s := &server{bodies: map[string]string{
		"/api/v1/nodes":      empty,
		"/api/v1/pods":       `{"kind":"PodList","apiVersion":"v1","metadata":{"continue":"two"},"items":[]}`,
		"/api/v1/pods#two":   empty,
		"/api/v1/configmaps": `{"items":[{"data":{"other":"x"}},{"data":{"scheduler-config.yaml":"profiles: []"}}]}`,
	}, forbidden: []string{"/api/v1/persistentvolumes", "/api/v1/services", "/apis/karpenter.sh/v1alpha5/provisioners", "/apis/karpenter.sh/v1/nodepools"}}
	r := readerOf(t, s)
	got, err := r.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, l := range got.Listings {
		names = append(names, l.Name)
	}
	if got := strings.Join(names, " "); got != "nodes pods pods" {
		t.Errorf("%s were read", got)
	}
	// Provisioners and NodePools, which the API server doesn't have, are not among them.
	if diff := cmp.Diff([]string{"services", "persistentvolumes"}, got.Unread); diff != "" {
		t.Errorf("what may not be listed (-want +got):\n%s", diff)
	}
	if want := "you may not list these, so that what is in brackets isn't known: services (default spread constraints), persistentvolumes (volumes of pods)"; len(got.Warnings) != 1 || got.Warnings[0] != want {
		t.Errorf("warnings %q, want %q", got.Warnings, want)
	}
	if text := r.SchedulerConfig(t.Context()); text != "profiles: []" {
		t.Errorf("the configuration is %q", text)
	}
	for _, request := range s.requests {
		if !strings.HasPrefix(request, "GET ") {
			t.Errorf("reading sends %s", request)
		}
	}
}

// Without pods nothing can be said.
func TestReadWithoutTheRightToListPods(t *testing.T) {
	r := readerOf(t, &server{bodies: map[string]string{"/api/v1/nodes": empty}, forbidden: []string{"/api/v1/pods"}})
	if _, err := r.Read(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "listing pods: ") {
		t.Errorf("the error is %v", err)
	}
	// All that is missing is named at once.
	karpenter := "/apis/karpenter.sh/v1"
	r = readerOf(t, &server{bodies: map[string]string{karpenter: `{"resources":[{"name":"nodepools"},{"name":"nodeclaims"}]}`}, forbidden: []string{"/api/v1/nodes", karpenter + "/nodepools"}})
	want := "listing nodes, nodepools: you may not list them, and nothing can be said without them; a ClusterRole that allows it: docs/why.md"
	if _, err := r.Read(t.Context()); err == nil || err.Error() != want {
		t.Errorf("the error is %v, want %s", err, want)
	}
}

func TestRetry(t *testing.T) {
	path := "/apis/apps/v1/namespaces/shop/deployments/web"
	s := &server{bodies: map[string]string{path: `{"metadata":{"annotations":{"` + objects.AnnotationRetry + `":"old"}}}`}}
	r := readerOf(t, s)
	now := time.Date(2026, 11, 27, 10, 0, 0, 5, time.UTC)
	value, before, err := r.Retry(t.Context(), RetriedKinds[3], "shop", "web", now, true)
	if err != nil || value != "2026-11-27T10:00:00.000000005Z" || before != "old" {
		t.Errorf("%q, before %q, %v", value, before, err)
	}
	want := `dryRun=All&fieldManager=dovetail {"metadata":{"annotations":{"` + objects.AnnotationRetry + `":"2026-11-27T10:00:00.000000005Z"}}}`
	if len(s.patches) != 1 || s.patches[0] != want {
		t.Errorf("patches %q, want %q", s.patches, want)
	}
	if _, _, err := r.Retry(t.Context(), RetriedKinds[0], "", "none", now, false); err == nil {
		t.Error("an object that isn't there was annotated")
	}
}

// A Lease that can't be read, or that nobody has had, isn't one that was renewed long ago.
func TestRenewed(t *testing.T) {
	const path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/"
	s := &server{bodies: map[string]string{
		path + "led":  `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"led"},"spec":{"holderIdentity":"a","renewTime":"2026-11-27T10:00:00.000000Z"}}`,
		path + "free": `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"free"},"spec":{}}`}, forbidden: []string{path + "secret"}}
	r := readerOf(t, s)
	if at, err := r.Renewed(t.Context(), "kube-system", "led"); err != nil || !at.Equal(time.Date(2026, 11, 27, 10, 0, 0, 0, time.UTC)) {
		t.Errorf("it was renewed at %v, %v", at, err)
	}
	for _, name := range []string{"free", "secret", "none"} {
		if at, err := r.Renewed(t.Context(), "kube-system", name); !at.IsZero() || (err != nil) != (name == "secret") {
			t.Errorf("%s was renewed at %v, %v", name, at, err)
		}
	}
}
