package provision

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
)

// Extenders that only rank nodes, or bind, can't make a purchase useless.
func TestExtendersThatMayRefuse(t *testing.T) {
	got := Extenders([]schedulerapi.Extender{{URLPrefix: "http://ranks", PrioritizeVerb: "rank"}, {URLPrefix: "http://refuses", FilterVerb: "filter", PrioritizeVerb: "rank"}, {URLPrefix: "http://binds", BindVerb: "bind"}})
	if diff := cmp.Diff([]string{"http://refuses"}, got); diff != "" {
		t.Errorf("extenders (-want +got):\n%s", diff)
	}
}
