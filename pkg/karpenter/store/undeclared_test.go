package store

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// When two new nodes of a pool got a taint that it doesn't declare, the taint is expected of further nodes, the pool has a condition,
// and the next leader knows it. All that ends when the pool declares the taint.
func TestUndeclaredStartupTaints(t *testing.T) {
	scanner := corev1.Taint{Key: "scanner", Value: "pending", Effect: corev1.TaintEffectNoExecute}
	api := newFakeAPI(testPool("default", plain), readyClass("default"))
	w := newWorld(t, api).leading()
	expects := func(w *world, want ...corev1.Taint) {
		t.Helper()
		w.eventually("the expected taints", func() bool { return cmp.Diff(want, w.ExpectedTaints("default")) == "" })
	}
	w.TaintSeen("default", "a", scanner)
	w.TaintSeen("default", "a", scanner)
	expects(w)
	w.TaintSeen("default", "b", scanner)
	expects(w, scanner)
	w.eventually("the condition", func() bool {
		said := conditions(w.getPool("default"))[objects.ConditionStartupTaintsDeclared]
		return strings.HasPrefix(said, "False UndeclaredStartupTaint: ") && strings.Contains(said, "scanner=pending:NoExecute") &&
			strings.Contains(said, "spec.template.spec.startupTaints")
	})
	w.eventually("the record", func() bool { return w.getPool("default").Annotations[objects.AnnotationUndeclaredStartupTaints] != "" })
	if got := conditions(w.getPool("default"))["Ready"]; got != "True" {
		t.Errorf("the pool is used all the same, Ready is %s", got)
	}

	next := newWorld(t, api).leading()
	expects(next, scanner)
	np := next.getPool("default")
	next.update(np, func() {
		np.Spec.Template.Spec.StartupTaints = []corev1.Taint{{Key: "scanner", Effect: corev1.TaintEffectNoExecute}}
	})
	expects(next)
	next.eventually("neither condition nor record", func() bool {
		np := next.getPool("default")
		_, said := conditions(np)[objects.ConditionStartupTaintsDeclared]
		_, recorded := np.Annotations[objects.AnnotationUndeclaredStartupTaints]
		return !said && !recorded
	})
	next.TaintSeen("default", "c", scanner) // a claim from before
	next.TaintSeen("default", "d", scanner)
	expects(next)
}

// The record is valid for a day after the last node.
func TestUndeclaredStartupTaintsAreForgotten(t *testing.T) {
	pool := testPool("default", plain, func(np *karpv1.NodePool) {
		np.Annotations = map[string]string{objects.AnnotationUndeclaredStartupTaints: `[{"taint":{"key":"scanner","effect":"NoExecute"},"seen":"` + start.Add(-25*3600e9).UTC().Format("2006-01-02T15:04:05Z") + `"}]`}
	})
	w := newWorld(t, newFakeAPI(pool, readyClass("default"))).leading()
	w.eventually("no record", func() bool { return w.getPool("default").Annotations[objects.AnnotationUndeclaredStartupTaints] == "" })
	if got := w.ExpectedTaints("default"); got != nil {
		t.Errorf("expects %v", got)
	}
}
