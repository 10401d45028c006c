package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/awslabs/operatorpkg/status"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/karpentermetrics"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// writeTimeout bounds each write request.
const writeTimeout = 10 * time.Second

// ErrPoolUnusable means that the pool of a claim or its node class is deleted, being deleted or invalid, so nothing may be created for
// it.
var ErrPoolUnusable = errors.New("pool can't be used")

// Create writes the intent to launch c and returns it with its UID. The caller has set c's name. A name that is taken is an error,
// unless the existing claim records the same intent: then it comes from an earlier Create whose answer was lost. If the claim's
// resources have not been reserved before, Create reserves them; a claim that would exceed a limit is not written.
func (s *Store) Create(ctx context.Context, c *capacity.Claim) (*capacity.Claim, error) {
	np := s.poolObject(c.Pool)
	if np == nil {
		return nil, fmt.Errorf("creating NodeClaim %s: NodePool %s: %w: there is none", c.Name, c.Pool, ErrPoolUnusable)
	}
	if err := karpenter.PoolProblem(np, s.nodeClass.GroupKind()); err != nil {
		return nil, fmt.Errorf("creating NodeClaim %s: %w: %w", c.Name, ErrPoolUnusable, err)
	}
	if why := s.sources.Shared(np.Labels); why != "" {
		return nil, fmt.Errorf("creating NodeClaim %s: NodePool %s: %w: %s", c.Name, c.Pool, ErrPoolUnusable, why)
	}
	class := s.class(np.Spec.Template.Spec.NodeClassRef.Name)
	if err := karpenter.NodeClassProblem(np.Name, s.nodeClass.Kind, np.Spec.Template.Spec.NodeClassRef.Name, class); err != nil {
		return nil, fmt.Errorf("creating NodeClaim %s: %w: %w", c.Name, ErrPoolUnusable, err)
	}
	nc, err := karpenter.NodeClaimOf(c, np, &s.batches)
	if err != nil {
		return nil, fmt.Errorf("creating NodeClaim %s: %w", c.Name, err)
	}
	s.mark(nc)
	if ca, known := s.sources.ClusterCA(); known {
		karpenter.ClassStamp(&s.nodeClass, class, ca).Put(nc.Annotations)
	}
	s.mu.Lock()
	before, _ := s.used.Counts(nc.Name)
	if !before {
		err = s.reserve(c)
	}
	if err == nil {
		s.creating[nc.Name] = false
	}
	s.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("creating NodeClaim %s: %w", c.Name, err)
	}
	defer func() {
		s.mu.Lock()
		delete(s.creating, nc.Name)
		s.mu.Unlock()
		if !before {
			s.Release(nc.Name)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	want := nc.DeepCopy()
	err = s.live.Create(ctx, nc)
	if apierrors.IsAlreadyExists(err) {
		got := &karpv1.NodeClaim{}
		if s.live.Get(ctx, client.ObjectKeyFromObject(nc), got) == nil && sameRecord(want, got) {
			nc, err = got, nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("creating NodeClaim %s: %w", c.Name, err)
	}
	karpentermetrics.ClaimCreated(c.Pool, nc.Annotations[karpv1.NodeClaimMinValuesRelaxedAnnotationKey] == "true")
	return s.keepOwn(nc), nil
}

// sameRecord reports whether both NodeClaims record the same intent for the same pool.
func sameRecord(a, b *karpv1.NodeClaim) bool {
	for _, key := range []string{objects.AnnotationLaunchBatch, objects.AnnotationPlannedPods, karpv1.NodePoolHashAnnotationKey} {
		if a.Annotations[key] != b.Annotations[key] {
			return false
		}
	}
	return a.Labels[karpv1.NodePoolLabelKey] == b.Labels[karpv1.NodePoolLabelKey] && b.DeletionTimestamp.IsZero()
}

// RecordBatch writes the launch batch that is about to be launched, or another attempt at it. A claim of the same name with another
// UID counts as not found.
func (s *Store) RecordBatch(ctx context.Context, c *capacity.Claim, w capacity.LaunchBatch) error {
	value, err := s.batches.Encode(&w)
	if err != nil {
		return fmt.Errorf("NodeClaim %s: %w", c.Name, err)
	}
	if _, err := s.the(ctx, c, false); err != nil {
		return err
	}
	return s.mergePatch(ctx, c.Name, inMetadata(c, "annotations", map[string]any{objects.AnnotationLaunchBatch: value}), false)
}

// RecordBatchUnlessLater is RecordBatch for a launch batch of the last leader, whose last writes may not be in the cache yet. If the claim has a record
// of a later attempt, or its instance, nothing is written. Then the claim is returned, and the store knows it from then on.
func (s *Store) RecordBatchUnlessLater(ctx context.Context, c *capacity.Claim, w capacity.LaunchBatch) (later *capacity.Claim, err error) {
	value, err := s.batches.Encode(&w)
	if err != nil {
		return nil, fmt.Errorf("NodeClaim %s: %w", c.Name, err)
	}
	err = onConflictAgain(func() error {
		base, err := s.the(ctx, c, true)
		if err != nil {
			return err
		}
		had, err := karpenter.BatchOf(base)
		if err != nil {
			return err
		}
		if base.Status.ProviderID != "" || had != nil && had.Attempt > w.Attempt {
			later = s.keepOwn(base)
			return nil
		}
		nc := base.DeepCopy()
		if nc.Annotations == nil {
			nc.Annotations = map[string]string{}
		}
		nc.Annotations[objects.AnnotationLaunchBatch] = value
		return s.patchLocked(ctx, base, nc)
	})
	if err != nil {
		return nil, fmt.Errorf("recording a launch on NodeClaim %s: %w", c.Name, err)
	}
	return later, nil
}

// patchLocked writes a changed NodeClaim, and fails with a conflict if base is not its current version.
func (s *Store) patchLocked(ctx context.Context, base, changed *karpv1.NodeClaim) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	if err := s.live.Patch(ctx, changed, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})); err != nil {
		return err
	}
	s.keepOwn(changed)
	return nil
}

// inMetadata returns a patch of the claim's metadata. It includes the UID, so that the API server refuses it for another claim of the
// same name.
func inMetadata(c *capacity.Claim, field string, value map[string]any) map[string]any {
	out := map[string]any{field: value}
	if c.UID != "" {
		out["uid"] = c.UID
	}
	return map[string]any{"metadata": out}
}

// RecordSlots writes the pods that are planned for the claim's node.
func (s *Store) RecordSlots(ctx context.Context, name string, slots []capacity.Slot) error {
	value, err := karpenter.EncodeAnnotation(objects.AnnotationPlannedPods, slots)
	if err != nil {
		return fmt.Errorf("NodeClaim %s: %w", name, err)
	}
	return s.annotate(ctx, name, objects.AnnotationPlannedPods, value)
}

func (s *Store) annotate(ctx context.Context, name, key, value string) error {
	return s.mergePatch(ctx, name, map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}}, false)
}

// mergePatch writes fields that no other controller owns, without a base version, so there can be no conflict.
func (s *Store) mergePatch(ctx context.Context, name string, patch map[string]any, status bool) error {
	raw, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("patching NodeClaim %s: %w", name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	nc := &karpv1.NodeClaim{}
	nc.Name = name
	if status {
		err = s.live.Status().Patch(ctx, nc, client.RawPatch(types.MergePatchType, raw))
	} else {
		err = s.live.Patch(ctx, nc, client.RawPatch(types.MergePatchType, raw))
	}
	if err != nil {
		return fmt.Errorf("patching NodeClaim %s: %w", name, err)
	}
	s.keepOwn(nc)
	return nil
}

// RecordLaunched writes what was launched: first labels and annotations to the claim's metadata, then its status, each only if it differs;
// the API needs two requests for the two. The condition Launched becomes true only when everything that the Node will need has been recorded.
// Labels that the claim has from its pool win over labels; instance type, zone and capacity type are those of the actual instance. A
// claim of the same name with another UID counts as not found.
func (s *Store) RecordLaunched(ctx context.Context, c *capacity.Claim, inst capacity.Instance, labels map[string]string, capacityOf, allocatable capacity.Resources) error {
	nc, err := s.the(ctx, c, false)
	if err != nil {
		return err
	}
	add := map[string]any{}
	for key, value := range labels {
		if _, ok := nc.Labels[key]; !ok {
			add[key] = value
		}
	}
	for key, value := range karpenter.InstanceLabels(inst) {
		add[key] = value
	}
	for key, value := range add {
		if nc.Labels[key] == value {
			delete(add, key)
		}
	}
	annotations := map[string]any{}
	for key, value := range inst.Annotations {
		if nc.Annotations[key] != value {
			annotations[key] = value
		}
	}
	if len(add)+len(annotations) > 0 {
		patch := inMetadata(c, "labels", add)
		patch["metadata"].(map[string]any)["annotations"] = annotations
		if err := s.mergePatch(ctx, c.Name, patch, false); err != nil {
			return err
		}
	}
	return s.patchStatus(ctx, c, func(nc *karpv1.NodeClaim) {
		nc.Status.ProviderID = inst.ProviderID
		nc.Status.ImageID = inst.ImageID
		nc.Status.Capacity = capacityOf.List()
		nc.Status.Allocatable = allocatable.List()
		nc.StatusConditions(status.WithClock(s.clock)).SetTrue(karpv1.ConditionTypeLaunched)
	})
}

// RecordLaunchFailed records why nothing was launched. reason is one word, message a sentence.
func (s *Store) RecordLaunchFailed(ctx context.Context, c *capacity.Claim, reason, message string) error {
	var failed *karpv1.NodeClaim
	err := s.patchStatus(ctx, c, func(nc *karpv1.NodeClaim) {
		nc.StatusConditions(status.WithClock(s.clock)).SetFalse(karpv1.ConditionTypeLaunched, conditionReason(reason, "LaunchFailed"), shorten(message))
		failed = nc
	})
	if failed != nil && poolsFault.Has(reason) {
		s.outcome(failed, outcome{claim: failed.UID, failed: true, reason: reason, message: message})
	}
	return err
}

// RecordNode writes the name of the claim's Node, and the image, which the answer to a launch does not contain.
func (s *Store) RecordNode(ctx context.Context, name string, inst capacity.Instance) error {
	add := map[string]any{"nodeName": inst.NodeName}
	if inst.ImageID != "" {
		add["imageID"] = inst.ImageID
	}
	return s.mergePatch(ctx, name, map[string]any{"status": add}, true)
}

// TellClaim records an event on a NodeClaim.
func (s *Store) TellClaim(name, eventType, reason, note string) {
	if nc := s.knownClaim(name); nc != nil {
		s.recorder.Eventf(nc, nil, eventType, reason, "Launch", "%s", shorten(note))
	}
}

// Delete deletes the claim with that UID; if uid is empty, whatever claim has the name. It is no error if the claim no longer exists.
func (s *Store) Delete(ctx context.Context, name, uid string) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	nc := &karpv1.NodeClaim{}
	nc.Name = name
	var only []client.DeleteOption
	if uid != "" {
		of := types.UID(uid)
		only = append(only, client.Preconditions{UID: &of})
	}
	err := s.live.Delete(ctx, nc, only...)
	if uid != "" && apierrors.IsConflict(err) {
		return nil // another claim has its name
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting NodeClaim %s: %w", name, err)
	}
	return nil
}

// Drop deletes the claim unless a launch is recorded on it. It asks the API server, because another process may have recorded one a moment
// ago. If there is one, Drop returns the claim, and the store knows it from then on. It is no error if the claim no longer exists.
func (s *Store) Drop(ctx context.Context, name string) (launched *capacity.Claim, err error) {
	err = onConflictAgain(func() error {
		nc, err := s.current(ctx, name, true)
		if err != nil {
			return client.IgnoreNotFound(err)
		}
		batch, err := karpenter.BatchOf(nc)
		if err != nil {
			return err
		}
		if nc.Status.ProviderID != "" || batch != nil && batch.Token != "" {
			launched = s.keepOwn(nc)
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, writeTimeout)
		defer cancel()
		return client.IgnoreNotFound(s.live.Delete(ctx, nc, client.Preconditions{UID: &nc.UID, ResourceVersion: &nc.ResourceVersion}))
	})
	if err != nil {
		return nil, fmt.Errorf("deleting NodeClaim %s: %w", name, err)
	}
	return launched, nil
}

// current returns the NodeClaim as last seen or written; if ask is true or the claim is unknown, it asks the API server. The caller
// may change the result.
func (s *Store) current(ctx context.Context, name string, ask bool) (*karpv1.NodeClaim, error) {
	if nc := s.knownClaim(name); nc != nil && !ask {
		return nc.DeepCopy(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	nc := &karpv1.NodeClaim{}
	if err := s.live.Get(ctx, client.ObjectKey{Name: name}, nc); err != nil {
		return nil, fmt.Errorf("reading NodeClaim %s: %w", name, err)
	}
	return nc, nil
}

// the returns the NodeClaim c as current does, except that a claim of the same name with another UID counts as not found.
func (s *Store) the(ctx context.Context, c *capacity.Claim, ask bool) (*karpv1.NodeClaim, error) {
	nc, err := s.current(ctx, c.Name, ask)
	if err == nil && c.UID != "" && string(nc.UID) != c.UID {
		return nil, fmt.Errorf("NodeClaim %s is another one by now: %w", c.Name, apierrors.NewNotFound(schema.GroupResource{Group: karpenter.NodeClaims.Group, Resource: karpenter.NodeClaims.Resource}, c.Name))
	}
	return nc, err
}

// patchStatus changes a claim's status. Conditions are a list, which a merge patch replaces as a whole. So the patch applies only to
// the version that was read, and on conflict the claim is read and patched again.
func (s *Store) patchStatus(ctx context.Context, c *capacity.Claim, change func(*karpv1.NodeClaim)) error {
	ask := false
	err := onConflictAgain(func() error {
		base, err := s.the(ctx, c, ask)
		if err != nil {
			return err
		}
		ask = true
		nc := base.DeepCopy()
		change(nc)
		if equality.Semantic.DeepEqual(base.Status, nc.Status) {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, writeTimeout)
		defer cancel()
		if err := s.live.Status().Patch(ctx, nc, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})); err != nil {
			return err
		}
		s.keepOwn(nc)
		return nil
	})
	if err != nil {
		return fmt.Errorf("writing the status of NodeClaim %s: %w", c.Name, err)
	}
	return nil
}

// onConflictAgain calls write until there is no conflict, but only a few times. Each call after the first reads the object first, so
// waiting in between would only allow more changes. (client-go's retry.OnError mistakes a request whose context has ended for
// the end of its own tries, and then loses the error.)
func onConflictAgain(write func() error) (err error) {
	for range 8 {
		if err = write(); !apierrors.IsConflict(err) {
			return err
		}
	}
	return err
}

// maxMessage is the length in bytes to which messages are cut, to keep conditions readable and below the 1 KiB that the API allows an
// event's note.
const maxMessage = 900

func shorten(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage], "") + "..."
}

var reasonForm = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)

// conditionReason returns reason if the API accepts it as a condition's reason, else otherwise.
func conditionReason(reason, otherwise string) string {
	if len(reason) > 1024 || !reasonForm.MatchString(reason) {
		return otherwise
	}
	return reason
}
