package clustermetrics

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestListen(t *testing.T) {
	l, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- l.Serve(ctx) }()
	for path, want := range map[string]int{"/metrics": http.StatusOK, "/": http.StatusNotFound, "/configz": http.StatusNotFound, "/debug/pprof/": http.StatusNotFound} {
		res, err := http.Get("http://" + l.Address() + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s: %s, want %d", path, res.Status, want)
		}
		if want == http.StatusOK && !strings.Contains(string(body), "\ndovetail_pod_wait_seconds_bucket{") {
			t.Errorf("the scrape has no metrics of Dovetail:\n%.300s", body)
		}
	}
	if _, err := Listen(l.Address()); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("a port that is taken: %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
}
