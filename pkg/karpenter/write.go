package karpenter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// writeTimeout bounds each request that writes.
const writeTimeout = 10 * time.Second

// ErrPoolUnusable: the pool of a claim or its node class is gone, being deleted or invalid, so that nothing may be created for it.
var ErrPoolUnusable = errors.New("pool can't be used")

// Create writes the intent to launch c and gives it back with its UID. c has its name from the caller. A name that is taken is
// an error unless the same intent stands there already: an earlier Create whose answer was lost. What the claim takes of its pool
// is reserved if it hasn't been before; a claim that would pass a limit is not written.
func (s *Store) Create(ctx context.Context, c *capacity.Claim) (*capacity.Claim, error) {
	np := s.poolObject(c.Pool)
	if np == nil {
		return nil, fmt.Errorf("creating NodeClaim %s: NodePool %s: %w: there is none", c.Name, c.Pool, ErrPoolUnusable)
	}
	if problem := poolProblem(np); problem != "" {
		return nil, fmt.Errorf("creating NodeClaim %s: %w: %s", c.Name, ErrPoolUnusable, problem)
	}
	class := s.class(np.Spec.Template.Spec.NodeClassRef.Name)
	if problem := nodeClassProblem(np.Name, np.Spec.Template.Spec.NodeClassRef.Name, class); problem != "" {
		return nil, fmt.Errorf("creating NodeClaim %s: %w: %s", c.Name, ErrPoolUnusable, problem)
	}
	nc, err := nodeClaimOf(c, np, &s.batches)
	if err != nil {
		return nil, fmt.Errorf("creating NodeClaim %s: %w", c.Name, err)
	}
	if ca, known := s.clusterCA(); known {
		classStamp(class, ca).put(nc.Annotations)
	}
	s.mu.Lock()
	_, before := s.used.counted[nc.Name]
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
	return s.keepOwn(nc), nil
}

// sameRecord says that both NodeClaims record the same intent for the same pool.
func sameRecord(a, b *karpv1.NodeClaim) bool {
	for _, key := range []string{objects.AnnotationLaunchBatch, objects.AnnotationPlannedPods, karpv1.NodePoolHashAnnotationKey} {
		if a.Annotations[key] != b.Annotations[key] {
			return false
		}
	}
	return a.Labels[karpv1.NodePoolLabelKey] == b.Labels[karpv1.NodePoolLabelKey] && b.DeletionTimestamp.IsZero()
}

// RecordBatch writes the launch batch that is about to be launched, or another attempt. Another claim of the same name is not found.
func (s *Store) RecordBatch(ctx context.Context, c *capacity.Claim, w capacity.LaunchBatch) error {
	value, err := s.batches.encode(&w)
	if err != nil {
		return fmt.Errorf("NodeClaim %s: %w", c.Name, err)
	}
	if _, err := s.the(ctx, c, false); err != nil {
		return err
	}
	_, err = s.mergePatch(ctx, c.Name, inMetadata(c, "annotations", map[string]any{objects.AnnotationLaunchBatch: value}), false)
	return err
}

// inMetadata is a patch of the claim's metadata. With its UID there, the API server refuses it for another of the same name.
func inMetadata(c *capacity.Claim, field string, value map[string]any) map[string]any {
	out := map[string]any{field: value}
	if c.UID != "" {
		out["uid"] = c.UID
	}
	return map[string]any{"metadata": out}
}

// RecordSlots writes the pods that are planned for the claim's node.
func (s *Store) RecordSlots(ctx context.Context, name string, slots []capacity.Slot) error {
	value, err := encodeAnnotation(objects.AnnotationPlannedPods, slots)
	if err != nil {
		return fmt.Errorf("NodeClaim %s: %w", name, err)
	}
	return s.annotate(ctx, name, objects.AnnotationPlannedPods, value)
}

func (s *Store) annotate(ctx context.Context, name, key, value string) error {
	_, err := s.mergePatch(ctx, name, map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}}, false)
	return err
}

// mergePatch writes single fields of which nobody else is the owner: without a base there is nothing to conflict with.
func (s *Store) mergePatch(ctx context.Context, name string, patch map[string]any, status bool) (*karpv1.NodeClaim, error) {
	raw, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("patching NodeClaim %s: %w", name, err)
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
		return nil, fmt.Errorf("patching NodeClaim %s: %w", name, err)
	}
	s.keepOwn(nc)
	return nc, nil
}

// RecordLaunched writes what was launched: first labels onto the claim's metadata, then its status, each only if it differs:
// the API takes the two in two requests. Launched is true only when everything that the Node will need has been recorded. Labels
// that the claim has from its pool win over labels; type, zone and capacity type are what the instance really is. Another claim of
// the same name is not found.
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
	for key, value := range map[string]string{
		corev1.LabelInstanceTypeStable: inst.InstanceType,
		corev1.LabelTopologyZone:       inst.Zone,
		karpv1.CapacityTypeLabelKey:    inst.CapacityType,
	} {
		if value != "" {
			add[key] = value
		}
	}
	for key, value := range add {
		if nc.Labels[key] == value {
			delete(add, key)
		}
	}
	if len(add) > 0 {
		if _, err := s.mergePatch(ctx, c.Name, inMetadata(c, "labels", add), false); err != nil {
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

// RecordLaunchFailed writes why nothing was launched. reason is a word, message a sentence.
func (s *Store) RecordLaunchFailed(ctx context.Context, name, reason, message string) error {
	var failed *karpv1.NodeClaim
	err := s.patchStatus(ctx, &capacity.Claim{Name: name}, func(nc *karpv1.NodeClaim) {
		nc.StatusConditions(status.WithClock(s.clock)).SetFalse(karpv1.ConditionTypeLaunched, conditionReason(reason, "LaunchFailed"), shorten(message))
		failed = nc
	})
	if failed != nil && poolsFault.Has(reason) {
		s.outcome(failed, outcome{claim: failed.UID, failed: true, reason: reason, message: message})
	}
	return err
}

// RecordNode writes the name of the claim's Node, and the image, which a launch's answer did not tell.
func (s *Store) RecordNode(ctx context.Context, name string, inst capacity.Instance) error {
	add := map[string]any{"nodeName": inst.NodeName}
	if inst.ImageID != "" {
		add["imageID"] = inst.ImageID
	}
	_, err := s.mergePatch(ctx, name, map[string]any{"status": add}, true)
	return err
}

// TellClaim tells a NodeClaim something in an event.
func (s *Store) TellClaim(name, eventType, reason, note string) {
	if nc := s.knownClaim(name); nc != nil {
		s.recorder.Eventf(nc, nil, eventType, reason, "Launch", "%s", shorten(note))
	}
}

// Delete asks for the claim's end. A claim that is gone already is no error.
func (s *Store) Delete(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	nc := &karpv1.NodeClaim{}
	nc.Name = name
	if err := s.live.Delete(ctx, nc); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting NodeClaim %s: %w", name, err)
	}
	return nil
}

// current is the NodeClaim as last seen or written, or as the API server has it when ask is true or nothing is known of it. The
// caller may change it.
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

// the is current, for this very claim: one of the same name with another UID is not found.
func (s *Store) the(ctx context.Context, c *capacity.Claim, ask bool) (*karpv1.NodeClaim, error) {
	nc, err := s.current(ctx, c.Name, ask)
	if err == nil && c.UID != "" && string(nc.UID) != c.UID {
		return nil, fmt.Errorf("NodeClaim %s is another one by now: %w", c.Name, apierrors.NewNotFound(schema.GroupResource{Group: nodeClaims.Group, Resource: nodeClaims.resource}, c.Name))
	}
	return nc, err
}

// patchStatus changes a claim's status. Conditions are a list that a merge patch replaces as a whole, so that it is written
// against the version that was read, and again against a fresh one on conflict.
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

// onConflictAgain calls write until it meets no conflict, a few times at most. Each call but the first reads what is there first,
// so that waiting in between would only let more happen. (client-go's retry takes the end of a request's context for the end
// of its own and forgets the error.)
func onConflictAgain(write func() error) (err error) {
	for range 8 {
		if err = write(); !apierrors.IsConflict(err) {
			return err
		}
	}
	return err
}

// maxMessage keeps conditions readable, and below the 1 KiB that the API allows an event's note.
const maxMessage = 900

func shorten(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage], "") + "..."
}

var reasonForm = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)

// conditionReason is reason if the API takes it as a condition's reason, else otherwise.
func conditionReason(reason, otherwise string) string {
	if len(reason) > 1024 || !reasonForm.MatchString(reason) {
		return otherwise
	}
	return reason
}
