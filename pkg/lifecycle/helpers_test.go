package lifecycle

import (
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

var (
	everything = labels.Everything()
	sorted     = cmp.Options{cmpopts.SortSlices(func(a, b string) bool { return a < b })}
)

// happened reports whether an event with the reason was recorded about the object.
func (w *world) happened(object, reason string) bool {
	for _, e := range w.events {
		if strings.HasPrefix(e, object+" ") && strings.Contains(e, " "+reason+":") {
			return true
		}
	}
	return false
}

// addToInformer adds an object to its informer's store.
func (w *world) addToInformer(obj any) {
	w.t.Helper()
	var store cache.Indexer
	switch obj.(type) {
	case *storagev1.VolumeAttachment:
		store = w.factory.Storage().V1().VolumeAttachments().Informer().GetIndexer()
	case *corev1.PersistentVolume:
		store = w.factory.Core().V1().PersistentVolumes().Informer().GetIndexer()
	case *corev1.PersistentVolumeClaim:
		store = w.factory.Core().V1().PersistentVolumeClaims().Informer().GetIndexer()
	}
	if err := store.Add(obj); err != nil {
		w.t.Fatal(err)
	}
}

// removeClaimByForce removes a claim whatever its finalizers.
func (w *world) removeClaimByForce(name string) {
	w.t.Helper()
	if err := w.track.Delete(schema.GroupVersionResource{Group: "karpenter.sh", Version: "v1", Resource: "nodeclaims"}, "", name); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.c.reconcile(w.ctx, key{claim: name}); err != nil {
		w.t.Fatal(err)
	}
}
