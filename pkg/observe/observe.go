// Package observe turns the events of informers into calls with the object before and after a change. Only SharePods knows a kind
// of object.
package observe

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// Changes calls f with the object before and after a change; one of them is nil when the object was added or deleted. If an object
// was deleted and created again under its name while the watch was interrupted, f is called for the deletion and for the addition.
func Changes[T metav1.Object](f func(before, after T)) cache.ResourceEventHandler {
	var none T
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { f(none, o.(T)) },
		UpdateFunc: func(before, after any) {
			a, b := before.(T), after.(T)
			if a.GetUID() != b.GetUID() {
				f(a, none)
				a = none
			}
			f(a, b)
		},
		DeleteFunc: Deletion(func(o T) { f(o, none) }),
	}
}

// Deletion returns a DeleteFunc that calls f with the object as it was last seen, also if its deletion was missed.
func Deletion[T any](f func(T)) func(any) {
	return func(o any) {
		if missed, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = missed.Obj
		}
		if t, ok := o.(T); ok {
			f(t)
		}
	}
}
