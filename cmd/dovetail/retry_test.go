package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A pool whose launches aren't paused isn't changed: an annotation would let a probe be launched later, when the cause of a pause is there.
func TestRetryOfWhatIsNotPaused(t *testing.T) {
	const paused = `"status":{"conditions":[{"type":"dovetail.sh/LaunchesPaused","status":"True","reason":"InstancesFail","message":"paused since noon"}]}`
	pool := func(name, status string) string {
		return fmt.Sprintf(`{"apiVersion":"karpenter.sh/v1","kind":"NodePool","metadata":{"name":%q},"spec":{"template":{"spec":{"requirements":[],"nodeClassRef":{"group":"karpenter.k8s.aws","kind":"EC2NodeClass","name":"c"}}}}%s}`, name, status)
	}
	pools := map[string]string{"calm": pool("calm", ""), "paused": pool("paused", ","+paused)}
	var patched []string
	answer := func(w http.ResponseWriter, body string) {
		if _, err := io.WriteString(w, body); err != nil {
			t.Error(err)
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, one := strings.CutPrefix(r.URL.Path, "/apis/karpenter.sh/v1/nodepools/")
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/apis/karpenter.sh/v1/nodepools":
			answer(w, `{"apiVersion":"karpenter.sh/v1","kind":"NodePoolList","metadata":{},"items":[`+pools["calm"]+`,`+pools["paused"]+`]}`)
		case one && pools[name] != "":
			if r.Method == http.MethodPatch {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				patched = append(patched, name)
				answer(w, string(body))
				return
			}
			answer(w, pools[name])
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "config")
	config := fmt.Sprintf("{apiVersion: v1, kind: Config, current-context: mine, contexts: [{name: mine, context: {cluster: mine}}], clusters: [{name: mine, cluster: {server: %q}}]}", server.URL)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args    string
		want    string
		patched []string
	}{
		{"retry nodepool calm", "NodePool calm: its launches are not paused: nothing was changed", nil},
		{"retry nodepool/calm --dry-run", "NodePool calm: its launches are not paused: nothing was changed", nil},
		{"retry nodepool paused", "paused so far: paused since noon", []string{"paused"}},
		{"retry", "paused so far: paused since noon", []string{"paused"}},
		{"retry nodepool none", "there is none of that name", nil},
	} {
		patched = nil
		var out bytes.Buffer
		_ = run(t.Context(), append(strings.Fields(tc.args), "--kubeconfig", file), strings.NewReader(""), &out, &out)
		if !strings.Contains(out.String(), tc.want) || !slices.Equal(patched, tc.patched) {
			t.Errorf("%s: changed %v, want %v: %s", tc.args, patched, tc.patched, &out)
		}
	}
}
