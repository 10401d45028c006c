package main

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
	"github.com/dovetail-scheduler/dovetail/pkg/view"
)

// What the page says of a node that ends is what plan --without says: which pods fit nowhere, and what stands against it.
func TestEndingOfANode(t *testing.T) {
	end := func(node string, files ...string) *view.Ending {
		t.Helper()
		f := newClusterFlags()
		f.existing, f.catalog, f.quiet = files, "testdata/catalog.json", true
		c, err := f.look(t.Context(), &cobra.Command{}, manifest.Options{})
		if err != nil {
			t.Fatal(err)
		}
		e, err := view.EndingOf(t.Context(), c.Cluster, node)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	e := end("node-data", "testdata/standing.yaml")
	if diff := cmp.Diff([]string{"node-data: the PodDisruptionBudget pg allows no eviction of pod data/pg-0"}, e.Against); diff != "" || len(e.Refused) != 1 {
		t.Errorf("refused %q, and against it (-want +got):\n%s", e.Refused, diff)
	}
	e = end("general-b", "testdata/live.yaml")
	if len(e.Bought) == 0 || !slices.Contains(e.Bought, "m1.large, on-demand, $0.2000/h, pool general, for 1 pod") {
		t.Errorf("nodes that would be bought: %q", e.Bought)
	}
}
