package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
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
