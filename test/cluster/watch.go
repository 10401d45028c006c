package cluster

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Until lists the objects of the list's type that opts select, watches them, and returns the current objects as soon as done returns
// true. It calls done after the list and after each burst of changes. The text that done returns describes what is still missing; it
// is part of the error if ctx is done first. An error from done stops the wait.
//
//	_, err := cluster.Until(ctx, c, &corev1.PodList{}, func(pods []*corev1.Pod) (bool, string, error) { ... }, client.InNamespace("web"))
func Until[T client.Object](ctx context.Context, c client.WithWatch, list client.ObjectList, done func([]T) (bool, string, error), opts ...client.ListOption) ([]T, error) {
	u := &until[T]{done: done, missing: "nothing was listed yet"}
	for {
		err := u.round(ctx, c, list.DeepCopyObject().(client.ObjectList), opts)
		switch {
		case errors.Is(err, errDone):
			return u.objects(), nil
		case ctx.Err() != nil:
			return u.objects(), fmt.Errorf("waiting for %s: %w", u.missing, context.Cause(ctx))
		case errors.Is(err, errAgain):
		default:
			return u.objects(), err
		}
	}
}

var (
	errDone  = errors.New("done")
	errAgain = errors.New("the watch ended")
)

type until[T client.Object] struct {
	done    func([]T) (bool, string, error)
	byUID   map[types.UID]T
	missing string
}

func (u *until[T]) objects() []T {
	objects := make([]T, 0, len(u.byUID))
	for _, o := range u.byUID {
		objects = append(objects, o)
	}
	return objects
}

// round makes one list and the watch that follows it.
func (u *until[T]) round(ctx context.Context, c client.WithWatch, list client.ObjectList, opts []client.ListOption) error {
	if err := c.List(ctx, list, opts...); err != nil {
		return fmt.Errorf("listing %T: %w", list, err)
	}
	u.byUID = map[types.UID]T{}
	if err := meta.EachListItem(list, func(o runtime.Object) error {
		object := o.DeepCopyObject().(T)
		u.byUID[object.GetUID()] = object
		return nil
	}); err != nil {
		return fmt.Errorf("listing %T: %w", list, err)
	}
	if err := u.ask(); err != nil {
		return err
	}
	from := append(opts, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}})
	watcher, err := c.Watch(ctx, list, from...)
	if err != nil {
		return fmt.Errorf("watching %T: %w", list, err)
	}
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		if err := u.observe(event); err != nil {
			return err
		}
		for more := true; more; { // take what has already arrived, so that done is called once for a burst
			select {
			case next, ok := <-watcher.ResultChan():
				if !ok {
					return errAgain
				}
				if err := u.observe(next); err != nil {
					return err
				}
			default:
				more = false
			}
		}
		if err := u.ask(); err != nil {
			return err
		}
	}
	return errAgain
}

func (u *until[T]) observe(event watch.Event) error {
	if event.Type == watch.Error {
		if err := apierrors.FromObject(event.Object); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			return fmt.Errorf("watching: %w", err)
		}
		return errAgain
	}
	object, ok := event.Object.(T)
	if !ok {
		return nil
	}
	if event.Type == watch.Deleted {
		delete(u.byUID, object.GetUID())
	} else {
		u.byUID[object.GetUID()] = object
	}
	return nil
}

func (u *until[T]) ask() error {
	done, missing, err := u.done(u.objects())
	if err != nil {
		return err
	}
	u.missing = missing
	if done {
		return errDone
	}
	return nil
}

// UntilPods waits until exactly n pods are selected and want is true for every one of them.
func UntilPods(ctx context.Context, c client.WithWatch, n int, want func(*corev1.Pod) bool, opts ...client.ListOption) ([]*corev1.Pod, error) {
	return Until(ctx, c, &corev1.PodList{}, func(pods []*corev1.Pod) (bool, string, error) {
		good, sample := 0, ""
		for _, pod := range pods {
			if want(pod) {
				good++
			} else {
				sample = fmt.Sprintf(", one is %s/%s: %s", pod.Namespace, pod.Name, describePod(pod))
			}
		}
		return good == n && len(pods) == n, fmt.Sprintf("%d pods (of %d that exist %d are as wanted%s)", n, len(pods), good, sample), nil
	}, opts...)
}

func describePod(pod *corev1.Pod) string {
	text := fmt.Sprintf("phase %s, node %q", pod.Status.Phase, pod.Spec.NodeName)
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status != corev1.ConditionTrue {
			text += fmt.Sprintf(", %s: %s", condition.Reason, condition.Message)
		}
	}
	return text
}

// Bound, Running and Unschedulable are conditions for UntilPods.
func Bound(pod *corev1.Pod) bool   { return pod.Spec.NodeName != "" }
func Running(pod *corev1.Pod) bool { return Bound(pod) && pod.Status.Phase == corev1.PodRunning }

// Unschedulable reports whether the pod's condition says that there is no node for it, or none yet.
func Unschedulable(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse && condition.Reason == corev1.PodReasonUnschedulable {
			return !Bound(pod)
		}
	}
	return false
}

// UntilNodes waits until exactly n nodes are selected and want is true for every one of them.
func UntilNodes(ctx context.Context, c client.WithWatch, n int, want func(*corev1.Node) bool, opts ...client.ListOption) ([]*corev1.Node, error) {
	return Until(ctx, c, &corev1.NodeList{}, func(nodes []*corev1.Node) (bool, string, error) {
		good := 0
		for _, node := range nodes {
			if want(node) {
				good++
			}
		}
		return good == n && len(nodes) == n, fmt.Sprintf("%d nodes (of %d that exist %d are as wanted)", n, len(nodes), good), nil
	}, opts...)
}

// Ready is a condition for UntilNodes.
func Ready(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
