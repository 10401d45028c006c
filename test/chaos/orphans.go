package chaos

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// orphans deletes, in the background, objects whose owner is gone, as Kubernetes' garbage collector does for workloads and Nodes.
type orphans struct {
	kube   kubernetes.Interface
	owned  map[string]cache.Indexer // by resource
	queue  workqueue.TypedDelayingInterface[types.UID]
	delete map[string]func(ctx context.Context, o metav1.Object, how metav1.DeleteOptions) error
}

const byOwner = "owner"

func newOrphans(w *world, kube kubernetes.Interface) (*orphans, error) {
	g := &orphans{kube: kube, owned: map[string]cache.Indexer{}, queue: workqueue.NewTypedDelayingQueue[types.UID]()}
	core, apps, batch := w.factory.Core().V1(), w.factory.Apps().V1(), w.factory.Batch().V1()
	g.delete = map[string]func(context.Context, metav1.Object, metav1.DeleteOptions) error{
		"pods": func(ctx context.Context, o metav1.Object, how metav1.DeleteOptions) error {
			return kube.CoreV1().Pods(o.GetNamespace()).Delete(ctx, o.GetName(), how)
		},
		"replicasets": func(ctx context.Context, o metav1.Object, how metav1.DeleteOptions) error {
			return kube.AppsV1().ReplicaSets(o.GetNamespace()).Delete(ctx, o.GetName(), how)
		},
		"jobs": func(ctx context.Context, o metav1.Object, how metav1.DeleteOptions) error {
			return kube.BatchV1().Jobs(o.GetNamespace()).Delete(ctx, o.GetName(), how)
		},
		"leases": func(ctx context.Context, o metav1.Object, how metav1.DeleteOptions) error {
			return kube.CoordinationV1().Leases(o.GetNamespace()).Delete(ctx, o.GetName(), how)
		},
		"csinodes": func(ctx context.Context, o metav1.Object, how metav1.DeleteOptions) error {
			return kube.StorageV1().CSINodes().Delete(ctx, o.GetName(), how)
		},
	}
	for resource, informer := range map[string]cache.SharedIndexInformer{
		"pods": core.Pods().Informer(), "replicasets": apps.ReplicaSets().Informer(), "jobs": batch.Jobs().Informer(),
		"leases": w.factory.Coordination().V1().Leases().Informer(), "csinodes": w.factory.Storage().V1().CSINodes().Informer(),
	} {
		if err := informer.AddIndexers(cache.Indexers{byOwner: ownersOf}); err != nil {
			return nil, fmt.Errorf("indexing %s: %w", resource, err)
		}
		g.owned[resource] = informer.GetIndexer()
	}
	for _, owners := range []cache.SharedIndexInformer{
		core.Nodes().Informer(), apps.Deployments().Informer(), apps.ReplicaSets().Informer(), apps.StatefulSets().Informer(), apps.DaemonSets().Informer(), batch.Jobs().Informer(),
		batch.CronJobs().Informer(),
	} {
		if _, err := owners.AddEventHandler(cache.ResourceEventHandlerFuncs{
			// "Deleted and created again" may be delivered as one update.
			UpdateFunc: func(old, now any) {
				if o, n := old.(metav1.Object), now.(metav1.Object); o.GetUID() != n.GetUID() {
					g.queue.Add(o.GetUID())
				}
			},
			DeleteFunc: func(obj any) {
				if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
					obj = unknown.Obj
				}
				g.queue.Add(obj.(metav1.Object).GetUID())
			},
		}); err != nil {
			return nil, fmt.Errorf("watching owners: %w", err)
		}
	}
	return g, nil
}

func ownersOf(obj any) ([]string, error) {
	var out []string
	for _, o := range obj.(metav1.Object).GetOwnerReferences() {
		out = append(out, string(o.UID))
	}
	return out, nil
}

func (g *orphans) run(ctx context.Context) {
	done := context.AfterFunc(ctx, g.queue.ShutDown)
	defer done()
	for {
		uid, over := g.queue.Get()
		if over {
			return
		}
		if !g.collect(ctx, uid) {
			g.queue.AddAfter(uid, time.Second)
		}
		g.queue.Done(uid)
	}
}

// collect deletes what the owner has left, and reports whether there was nothing: its controller may have been creating more.
func (g *orphans) collect(ctx context.Context, owner types.UID) bool {
	none := true
	for resource, indexer := range g.owned {
		left, err := indexer.ByIndex(byOwner, string(owner))
		if err != nil {
			return true
		}
		for _, obj := range left {
			o := obj.(metav1.Object)
			if p, ok := obj.(*corev1.Pod); ok && p.DeletionTimestamp != nil {
				continue
			}
			none = false
			uid := o.GetUID()
			if err := g.delete[resource](ctx, o, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				continue // tried again soon
			}
		}
	}
	return none
}
