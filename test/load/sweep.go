package load

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
	"github.com/dovetail-scheduler/dovetail/test/sandbox"
)

// Sweep deletes all pods of namespace default with these options, and waits until they are gone and only so many instances live: those that were
// launched for the pods have ended.
func Sweep(ctx context.Context, box *sandbox.Sandbox, kube kubernetes.Interface, how metav1.DeleteOptions, instances int) error {
	var err error
	for range tries { // a busy API server may not manage to delete thousands at once within its own time limit
		if err = kube.CoreV1().Pods(metav1.NamespaceDefault).DeleteCollection(ctx, how, metav1.ListOptions{}); err == nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("deleting the pods that are left: %w", err)
	}
	if _, err := cluster.UntilPods(ctx, box.Client(), 0, cluster.Bound, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		return err
	}
	for {
		live := len(box.EC2.Live())
		if live == instances {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d instances live, want %d: %w", live, instances, ctx.Err())
		case <-time.After(time.Second):
		}
	}
}
