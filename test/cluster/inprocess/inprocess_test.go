package inprocess

import (
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

func TestStart(t *testing.T) {
	begin := time.Now()
	c := Start(t)
	t.Logf("started in %v", time.Since(begin))
	scheduler := kubernetes.NewForConfigOrDie(c.SchedulerConfig())
	if _, err := scheduler.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("listing nodes as the scheduler: %v", err)
	}
	if _, err := scheduler.CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("listing secrets as the scheduler: got %v, want forbidden: RBAC is not on", err)
	}
}
