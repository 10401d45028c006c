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

// Objects of the version before bear annotations under old names (objects.Renamed). Nothing above the store's client sees them:
//
//	read, by the informers or live                    old names are turned into those of today, in memory
//	a patch that writes a name of today               removes the old one in the same request
//	the leader, once for each such object it sees     writes what it found under the name of today (rename)

// useNewNames gives an object that was read, and is the caller's own, the names of today. It reports whether there were others.
func useNewNames(o metav1.Object) bool {
	annotations := o.GetAnnotations()
	if !objects.UseNewNames(annotations) {
		return false
	}
	o.SetAnnotations(annotations) // of an object without a type they are a copy
	return true
}

// renaming is the client of the API server for everybody: it reads and writes as said above.
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

// IsWatchListSemanticsUnSupported is asked by reflectors, of clients that can't stream a list: fakes.
func (c renaming) IsWatchListSemanticsUnSupported() bool {
	fake, ok := c.WithWatch.(interface{ IsWatchListSemanticsUnSupported() bool })
	return ok && fake.IsWatchListSemanticsUnSupported()
}

func (c renaming) Status() client.SubResourceWriter { return renamingStatus{c.WithWatch.Status()} }

// renamingStatus writes status, and is answered with the whole object.
type renamingStatus struct{ client.SubResourceWriter }

func (c renamingStatus) Patch(ctx context.Context, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	err := c.SubResourceWriter.Patch(ctx, o, patch, opts...)
	useNewNames(o)
	return err
}

// withoutFormer is a merge patch that removes the old names of the annotations that it writes. Other patches are as they were.
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
		return client.RawPatch(patch.Type(), data), nil // the name stands elsewhere, in a pool's template for one
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

// sawFormer remembers an object for the leader to write, once the cache has it as well.
func (s *Store) sawFormer(k statusKey) {
	s.former.Store(k, true)
	s.status.enqueue(k, countDelay)
}

// rename writes an object that was seen under old names under those of today, against the version that was seen: what is written
// meanwhile counts, and brings the object back here if it has old names still.
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

// renamingPatch writes the names of today as they were last seen, which removes the old ones, on the object that is given with it; nil:
// there is nothing to write.
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
		o := &unstructured.Unstructured{} // one that doesn't fit its type is renamed, too
		o.SetGroupVersionKind(i.GroupVersionKind)
		o.SetName(k.name)
		return client.RawPatch(types.MergePatchType, raw), o
	}
	return nil, nil
}
