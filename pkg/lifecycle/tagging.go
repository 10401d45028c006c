package lifecycle

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// untaggedEvery is how often refused tags are tried again.
const untaggedEvery = time.Minute

// tagging makes sure that a registered node's instance is tagged with the names of its claim and its Node. The launch tags it too if it can;
// this is for launches that were interrupted, and for Nodes with another name than expected.
type tagging struct {
	sightings *sightings
	cloud     Instances
	reports   *reports
	recorder  recorder
	later     memory[string, time.Time] // when to tag an instance again after a refusal, by its claim's name
}

func (t *tagging) reconcile(ctx context.Context, l *life) (time.Duration, error) {
	if l.claim.Annotations[AnnotationTagged] == "true" || l.claim.Status.ProviderID == "" ||
		!conditionTrue(l.claim, karpv1.ConditionTypeRegistered) {
		return 0, nil
	}
	if at, ok := t.later.get(l.claim.Name); ok && at.After(l.now) {
		return at.Sub(l.now), nil
	}
	inst, verdict, err := t.sightings.look(ctx, l.claim.Status.ProviderID, launchedAt(l.claim), lookEvery)
	if err != nil {
		return 0, err
	}
	if verdict != alive {
		return lookEvery, nil
	}
	name := l.claim.Status.NodeName
	if had := inst.Tags["Name"]; had != "" && had != inst.NodeName {
		name = "" // the node class sets the tag Name of its instances itself
	}
	if inst.Claim != l.claim.Name || name != "" && inst.Tags["Name"] != name {
		err := t.cloud.TagClaim(ctx, inst.ID, l.claim.Name, name)
		switch {
		case errors.Is(err, capacity.ErrInstanceNotFound):
			return lookEvery, nil
		case errors.Is(err, capacity.ErrRefused):
			// An administrator has to allow it. Nothing waits for the tags: the instance is found by its launch batch.
			if t.reports.first(l.claim.Name, instanceUntagged) {
				t.recorder.event(l.claim, nil, corev1.EventTypeWarning, reasonTaggingFailed, "Tag", "retrying: %v", err)
			}
			t.later.put(l.claim.Name, l.now.Add(untaggedEvery))
			return untaggedEvery, nil
		case err != nil:
			return 0, err
		}
	}
	if l.claim.Annotations == nil {
		l.claim.Annotations = map[string]string{}
	}
	l.claim.Annotations[AnnotationTagged] = "true"
	return 0, nil
}
