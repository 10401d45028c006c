package store

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// anyArchitecture makes a pool leave the architecture open.
func anyArchitecture(np *karpv1.NodePool) {
	np.Spec.Template.Spec.Requirements = np.Spec.Template.Spec.Requirements[2:]
}

// A pool's condition names workloads that leave the architecture open, the first few by name. It stays under the next leader, for a
// day after the last such workload, or until the pool names an architecture.
func TestOpenArchitectureIsReported(t *testing.T) {
	api := newFakeAPI(testPool("default", plain, anyArchitecture), testPool("other", plain, anyArchitecture), readyClass("default"))
	w := newWorld(t, api).leading()
	says := func(w *world, pool, want string) {
		t.Helper()
		w.eventually(fmt.Sprintf("%s says %q", pool, want), func() bool { return conditions(w.getPool(pool))[objects.ConditionArchitectureDeclared] == want })
	}
	planned := func(w *world, workloads ...string) {
		w.ArchitecturesOpen([]capacity.OpenArchitecture{{Pool: "default", Workloads: workloads}})
	}
	of := func(named string) string {
		return "False ArchitectureOpen: pool default does not fix kubernetes.io/arch, and neither do pods of " + named + ": they may run on arm64. " +
			"Unless their images are built for it, require amd64 in the pool or in the pods"
	}
	planned(w, "shop/web")
	says(w, "default", of("shop/web"))
	if got := conditions(w.getPool("default"))["Ready"]; got != "True" {
		t.Errorf("the pool is used all the same, Ready is %s", got)
	}
	planned(w, "a/job-1", "a/job-2", "a/job-3", "a/job-4")
	says(w, "default", of("shop/web, a/job-1, a/job-2, a/job-3, a/job-4"))
	planned(w, "a/job-5")
	says(w, "default", of("shop/web, a/job-1, a/job-2, a/job-3, a/job-4 and others"))
	look := func(w *world) { // waits until the cache is up to date
		t.Helper()
		w.eventually("it is looked at", func() bool {
			np := w.poolObject("default")
			return np != nil && w.status.pool(w.ctx, np) == nil && np.ResourceVersion == w.getPool("default").ResourceVersion
		})
	}
	look(w)
	version := w.getPool("default").ResourceVersion
	for i := range 10 {
		planned(w, "shop/web", fmt.Sprint("a/job-", 10+i))
		w.clock.Step(time.Minute)
		look(w)
	}
	if got := w.getPool("default").ResourceVersion; got != version {
		t.Error("it is written again although nothing of it is new")
	}
	says(w, "other", "")

	next := newWorld(t, api).leading()
	look(next)
	says(next, "default", of("shop/web, a/job-1, a/job-2, a/job-3, a/job-4 and others"))
	next.clock.Step(openFor + time.Hour)
	says(next, "default", "")

	planned(next, "shop/web")
	says(next, "default", of("shop/web"))
	np := next.getPool("default")
	next.update(np, func() {
		np.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"amd64"}}}
	})
	says(next, "default", "")
}
