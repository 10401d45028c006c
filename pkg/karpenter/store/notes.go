package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Note writes one of Dovetail's annotations on a node class. It is no error if the class was deleted or is no API object (because
// it was derived from an older kind): then there is nothing to write to.
func (s *Store) Note(ctx context.Context, class, key, value string) error {
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}})
	if err != nil {
		return fmt.Errorf("annotating %s %s: %w", s.nodeClass.Kind, class, err)
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	nc := s.nodeClass.New()
	nc.SetName(class)
	if err := s.live.Patch(ctx, nc, client.RawPatch(types.MergePatchType, raw)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("annotating %s %s: %w", s.nodeClass.Kind, class, err)
	}
	return nil
}

// sameNotes reports whether two versions of an object have the same Dovetail annotations.
func sameNotes(a, b client.Object) bool {
	has := func(from, in client.Object) bool {
		for k, v := range from.GetAnnotations() {
			if strings.HasPrefix(k, objects.Prefix) && in.GetAnnotations()[k] != v {
				return false
			}
		}
		return true
	}
	return has(a, b) && has(b, a)
}
