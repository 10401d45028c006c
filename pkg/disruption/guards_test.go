package disruption

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

func TestWhatPausesAPool(t *testing.T) {
	for value, want := range map[string]bool{"true": true, "True": true, "yes": true, "": true, "until tuesday": true, "false": false, "False": false, "0": false} {
		pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{AnnotationPaused: value}}}
		if got := paused(&machine{pool: pool}); got != want {
			t.Errorf("%q: paused is %v", value, got)
		}
	}
	if paused(&machine{pool: &karpv1.NodePool{}}) || paused(&machine{}) {
		t.Error("paused without being asked")
	}
}
