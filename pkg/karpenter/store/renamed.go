package store

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// An earlier version wrote some annotations under other names (objects.Renamed). Nothing above the store's client sees the old names:
//
//	an object is read, by an informer or live           old names are replaced by the current ones, in memory
//	a patch writes an annotation under a current name   the patch also removes the old name
//	the leader has seen an object with old names        it writes the annotations under the current names, once (rename)

// useNewNames replaces old annotation names of an object, which the caller must own, and reports whether there were any.
func useNewNames(o metav1.Object) bool {
	annotations := o.GetAnnotations()
	if !objects.UseNewNames(annotations) {
		return false
	}
	o.SetAnnotations(annotations) // needed for unstructured objects, whose GetAnnotations returns a copy
	return true
}

// renaming is the client through which the whole store reads and writes. It replaces old annotation names as described above.
type renaming struct{ client.WithWatch }

func (c renaming) Get(ctx context.Context, key client.ObjectKey, out client.Object, opts ...client.GetOption) error {
	err := c.WithWatch.Get(ctx, key, out, opts...)
	useNewNames(out)
	return err
}

func (c renaming) List(ctx context.Context, out client.ObjectList, opts ...client.ListOption) error {
	if err := c.WithWatch.List(ctx, out, opts...); err != nil {
		return err
	}
	return meta.EachListItem(out, func(o runtime.Object) error {
		if o, ok := o.(metav1.Object); ok {
			useNewNames(o)
		}
		return nil
	})
}

func (c renaming) Patch(ctx context.Context, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
	patch, err := withoutFormer(o, patch)
	if err == nil {
		err = c.WithWatch.Patch(ctx, o, patch, opts...)
	}
	useNewNames(o)
	return err
}

// IsWatchListSemanticsUnSupported passes on what the wrapped client answers: fakes in tests can't stream a list, and reflectors ask.
func (c renaming) IsWatchListSemanticsUnSupported() bool {
	fake, ok := c.WithWatch.(interface{ IsWatchListSemanticsUnSupported() bool })
	return ok && fake.IsWatchListSemanticsUnSupported()
}

func (c renaming) Status() client.SubResourceWriter { return renamingStatus{c.WithWatch.Status()} }

// renamingStatus patches the status. The API server answers with the whole object, in which it replaces old annotation names.
type renamingStatus struct{ client.SubResourceWriter }

func (c renamingStatus) Patch(ctx context.Context, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	err := c.SubResourceWriter.Patch(ctx, o, patch, opts...)
	useNewNames(o)
	return err
}

// withoutFormer returns a merge patch that also removes the old names of the annotations that patch writes. Other patches are unchanged.
func withoutFormer(o client.Object, patch client.Patch) (client.Patch, error) {
	if patch.Type() != types.MergePatchType {
		return patch, nil
	}
	data, err := patch.Data(o)
	if err != nil {
		return nil, fmt.Errorf("making a patch of %s: %w", o.GetName(), err)
	}
	var former []string
	for old, now := range objects.Renamed() {
		if bytes.Contains(data, []byte(`"`+now+`"`)) {
			former = append(former, old)
		}
	}
	if len(former) == 0 {
		return client.RawPatch(patch.Type(), data), nil
	}
	var whole, metadata, annotations map[string]json.RawMessage
	err = json.Unmarshal(data, &whole)
	if err == nil && whole["metadata"] != nil {
		err = json.Unmarshal(whole["metadata"], &metadata)
	}
	if err == nil && metadata["annotations"] != nil {
		err = json.Unmarshal(metadata["annotations"], &annotations)
	}
	if err == nil && annotations == nil {
		return client.RawPatch(patch.Type(), data), nil // the name is elsewhere in the object, for example in a pool's template
	}
	if err == nil {
		for _, old := range former {
			annotations[old] = json.RawMessage("null")
		}
		metadata["annotations"], err = json.Marshal(annotations)
	}
	if err == nil {
		whole["metadata"], err = json.Marshal(metadata)
	}
	if err == nil {
		data, err = json.Marshal(whole)
	}
	if err != nil {
		return nil, fmt.Errorf("making a patch of %s: %w", o.GetName(), err)
	}
	return client.RawPatch(patch.Type(), data), nil
}

// sawFormer remembers an object with old names, which the leader will write. The delay lets the object get into the cache first.
func (s *Store) sawFormer(k statusKey) {
	s.former.Store(k, true)
	s.status.enqueue(k, countDelay)
}

// rename writes the annotations of an object under their current names. The patch names the version that was seen: if the object has changed since,
// it fails with a conflict and is made again from the newer version.
func (p *poolStatus) rename(ctx context.Context, k statusKey) error {
	if _, seen := p.former.LoadAndDelete(k); !seen {
		return nil
	}
	patch, o := p.renamingPatch(k)
	if patch == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if err := p.live.Patch(ctx, o, patch); client.IgnoreNotFound(err) != nil {
		p.former.Store(k, true)
		return fmt.Errorf("writing %s %s under the names of today: %w", k.kind, k.name, err)
	}
	klog.FromContext(ctx).V(2).Info("Renamed the annotations of an object that an older version wrote", "kind", k.kind, "name", k.name)
	return nil
}

// renamingPatch returns a patch with the annotations of the cached object under their current names, and the object to patch; nil if there is
// nothing to write. The client adds the removal of the old names.
func (p *poolStatus) renamingPatch(k statusKey) (client.Patch, client.Object) {
	for _, i := range p.informers() {
		if i.Kind != k.kind {
			continue
		}
		seen, ok, err := i.GetStore().GetByKey(k.name)
		if !ok || err != nil {
			return nil, nil
		}
		annotations := map[string]string{}
		for _, now := range objects.Renamed() {
			if value, ok := seen.(client.Object).GetAnnotations()[now]; ok {
				annotations[now] = value
			}
		}
		raw, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"resourceVersion": seen.(client.Object).GetResourceVersion(), "annotations": annotations,
		}})
		if err != nil || len(annotations) == 0 {
			return nil, nil
		}
		o := &unstructured.Unstructured{} // unstructured, so that an object that doesn't fit its type is patched, too
		o.SetGroupVersionKind(i.GroupVersionKind)
		o.SetName(k.name)
		return client.RawPatch(types.MergePatchType, raw), o
	}
	return nil, nil
}
