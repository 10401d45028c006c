package main

import (
	"bytes"
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-scheduler/dovetail/pkg/version"
)

func TestVersion(t *testing.T) {
	for _, tc := range []struct {
		args []string
		read func([]byte, any) error
	}{
		{[]string{"version", "-o", "json"}, json.Unmarshal},
		{[]string{"version", "--output=yaml"}, func(text []byte, into any) error { return yaml.UnmarshalStrict(text, into) }},
	} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), tc.args, nil, &out, &errs); code != exitOK || errs.Len() > 0 {
			t.Fatalf("%v: exit %d, %s", tc.args, code, errs.String())
		}
		var got version.Info
		if err := tc.read(out.Bytes(), &got); err != nil {
			t.Fatalf("%v: %v in\n%s", tc.args, err, out.String())
		}
		if diff := cmp.Diff(version.Get(), got); diff != "" {
			t.Errorf("%v (-want +got):\n%s", tc.args, diff)
		}
	}

	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"version"}, nil, &out, &errs); code != exitOK {
		t.Fatalf("exit %d, %s", code, errs.String())
	}
	want := "Dovetail Version: 0.2.0\nKubernetes Version: " + version.Get().KubernetesVersion + "\nGo Version: " + runtime.Version() + "\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	out.Reset()
	if code := run(t.Context(), []string{"--version"}, nil, &out, &errs); code != exitOK || out.String() != "dovetail version 0.2.0\n" {
		t.Errorf("--version: exit %d, %s%s", code, out.String(), errs.String())
	}

	if code := run(t.Context(), []string{"version", "-o", "xml"}, nil, &out, &errs); code != exitUsage || !strings.Contains(errs.String(), "-o xml: must be json or yaml") {
		t.Errorf("exit %d, %s", code, errs.String())
	}
}
