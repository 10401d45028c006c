package lifecycle

import (
	"context"
	"errors"
	"time"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// tag makes sure that a registered node's instance carries the names of its claim and its Node. The launch tags it too when
// it can; this is for launches that were cut short, and for names that turned out otherwise.
func (c *Controller) tag(ctx context.Context, l *life) (time.Duration, error) {
	if l.claim.Annotations[AnnotationTagged] == "true" || l.claim.Status.ProviderID == "" ||
		!conditionTrue(l.claim, karpv1.ConditionTypeRegistered) {
		return 0, nil
	}
	inst, verdict, err := c.look(ctx, l.claim.Status.ProviderID, launchedAt(l.claim), lookEvery)
	if err != nil {
		return 0, err
	}
	if verdict != alive {
		return lookEvery, nil
	}
	if inst.Claim != l.claim.Name || inst.Tags["Name"] != l.claim.Status.NodeName {
		err := c.cloud.TagClaim(ctx, inst.ID, l.claim.Name, l.claim.Status.NodeName)
		if errors.Is(err, capacity.ErrInstanceNotFound) {
			return lookEvery, nil
		} else if err != nil {
			return 0, err
		}
	}
	if l.claim.Annotations == nil {
		l.claim.Annotations = map[string]string{}
	}
	l.claim.Annotations[AnnotationTagged] = "true"
	return 0, nil
}
