package lifecycle

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	clienttesting "k8s.io/client-go/testing"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// actLikeAnAPIServer adds what the fake clientset leaves out: versions, UIDs, finalizers, grace periods, disruption budgets.
func (w *world) actLikeAnAPIServer() {
	tracker := w.objects
	w.kube.PrependReactor("create", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
		n := a.(clienttesting.CreateAction).GetObject().(*corev1.Node).DeepCopy()
		n.ResourceVersion = w.nextVersion()
		n.UID = types.UID("node-" + n.ResourceVersion)
		n.CreationTimestamp = metav1.NewTime(w.clock.Now())
		return true, n, tracker.Create(nodesResource, n, "")
	})
	w.kube.PrependReactor("patch", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
		p := a.(clienttesting.PatchAction)
		obj, err := tracker.Get(nodesResource, "", p.GetName())
		if err != nil {
			return true, nil, err
		}
		var sent corev1.Node
		if err := json.Unmarshal(p.GetPatch(), &sent); err != nil {
			return true, nil, err
		}
		old := obj.(*corev1.Node)
		if sent.ResourceVersion == "" {
			w.t.Errorf("patch of Node %s without resource version: %s", p.GetName(), p.GetPatch())
		}
		if sent.ResourceVersion != old.ResourceVersion {
			return true, nil, apierrors.NewConflict(nodesResource.GroupResource(), p.GetName(), fmt.Errorf("version"))
		}
		if strings.Contains(string(p.GetPatch()), objects.AnnotationHiddenTaints) {
			w.t.Errorf("hidden taints were written to the API: %s", p.GetPatch())
		}
		before, _ := json.Marshal(old)
		after, err := strategicpatch.StrategicMergePatch(before, p.GetPatch(), &corev1.Node{})
		if err != nil {
			return true, nil, err
		}
		var n corev1.Node
		if err := json.Unmarshal(after, &n); err != nil {
			return true, nil, err
		}
		n.ResourceVersion = w.nextVersion()
		if n.DeletionTimestamp != nil && len(n.Finalizers) == 0 {
			return true, &n, tracker.Delete(nodesResource, "", n.Name)
		}
		return true, &n, tracker.Update(nodesResource, &n, "")
	})
	w.kube.PrependReactor("delete", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
		d := a.(clienttesting.DeleteActionImpl)
		obj, err := tracker.Get(nodesResource, "", d.GetName())
		if err != nil {
			return true, nil, err
		}
		n := obj.(*corev1.Node).DeepCopy()
		if pre := d.GetDeleteOptions().Preconditions; pre != nil && pre.UID != nil && *pre.UID != n.UID {
			return true, nil, apierrors.NewConflict(nodesResource.GroupResource(), n.Name, fmt.Errorf("other UID"))
		}
		if len(n.Finalizers) == 0 {
			return true, n, tracker.Delete(nodesResource, "", n.Name)
		}
		if n.DeletionTimestamp == nil {
			now := metav1.NewTime(w.clock.Now())
			n.DeletionTimestamp = &now
			w.put(n)
		}
		return true, n, nil
	})
	w.kube.PrependReactor("update", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
		sent := a.(clienttesting.UpdateAction).GetObject().(metav1.Object)
		obj, err := tracker.Get(leaseResource, sent.GetNamespace(), sent.GetName())
		if err != nil {
			return true, nil, err
		}
		if obj.(metav1.Object).GetResourceVersion() != sent.GetResourceVersion() {
			return true, nil, apierrors.NewConflict(leaseResource.GroupResource(), sent.GetName(), fmt.Errorf("version"))
		}
		next := sent.(runtime.Object).DeepCopyObject()
		next.(metav1.Object).SetResourceVersion(w.nextVersion())
		return true, next, tracker.Update(leaseResource, next, sent.GetNamespace())
	})
	w.kube.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		e := a.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction)
		if w.blocked[e.Name] {
			w.did("evict pod %s: refused by its disruption budget", e.Name)
			return true, nil, apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
		}
		w.did("evict pod %s", e.Name)
		w.evicted = append(w.evicted, e.Name)
		return true, nil, w.endPod(e.Namespace, e.Name, *e.DeleteOptions)
	})
	w.kube.PrependReactor("list", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		obj, err := tracker.List(podsResource, corev1.SchemeGroupVersion.WithKind("Pod"), "")
		if err != nil {
			return true, nil, err
		}
		list := obj.(*corev1.PodList)
		chosen := a.(clienttesting.ListAction).GetListRestrictions().Fields
		list.Items = slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return !chosen.Matches(fields.Set{"spec.nodeName": p.Spec.NodeName}) })
		return true, list, nil
	})
	w.kube.PrependReactor("delete", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		d := a.(clienttesting.DeleteActionImpl)
		if grace := d.GetDeleteOptions().GracePeriodSeconds; grace != nil {
			w.did("delete pod %s with a grace period of %d s", d.GetName(), *grace)
		}
		return true, nil, w.endPod(d.GetNamespace(), d.GetName(), d.GetDeleteOptions())
	})
}

// endPod deletes a pod with its grace period.
func (w *world) endPod(namespace, name string, o metav1.DeleteOptions) error {
	obj, err := w.objects.Get(podsResource, namespace, name)
	if err != nil {
		return err
	}
	p := obj.(*corev1.Pod).DeepCopy()
	if o.Preconditions == nil || o.Preconditions.UID == nil {
		w.t.Errorf("pod %s is ended without a UID as precondition", name)
	} else if *o.Preconditions.UID != p.UID {
		return apierrors.NewConflict(podsResource.GroupResource(), name, fmt.Errorf("other UID"))
	}
	grace := int64(30)
	if p.Spec.TerminationGracePeriodSeconds != nil {
		grace = *p.Spec.TerminationGracePeriodSeconds
	}
	if o.GracePeriodSeconds != nil {
		grace = *o.GracePeriodSeconds
	}
	if grace == 0 {
		w.killed = append(w.killed, name)
		return w.objects.Delete(podsResource, namespace, name)
	}
	until := metav1.NewTime(w.clock.Now().Add(time.Duration(grace) * time.Second))
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &until, &grace
	return w.objects.Update(podsResource, p, namespace)
}
