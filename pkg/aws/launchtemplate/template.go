package launchtemplate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/ownership"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
)

// templatePrefix begins the name of every launch template; a hash of its content follows. Templates of the same name therefore have
// the same content, whoever created them.
const templatePrefix = "karpenter.k8s.aws/"

// Templates creates launch templates when they are first needed.
type Templates struct {
	clock clock.PassiveClock
	api   sdk.TemplateAPI
	owner ownership.Owner

	mu   sync.Mutex
	made map[string]*madeTemplate
}

type madeTemplate struct {
	once chan struct{} // closed when err is known
	err  error
	used time.Time
}

// New returns templates that are created for the owner.
func New(c clock.PassiveClock, api sdk.TemplateAPI, o ownership.Owner) *Templates {
	return &Templates{clock: c, api: api, owner: o, made: map[string]*madeTemplate{}}
}

// Ensure creates the template unless it is known to exist, and returns its name. Callers with the same template share one request.
func (t *Templates) Ensure(ctx context.Context, data *ec2types.RequestLaunchTemplateData, tags map[string]string) (string, error) {
	name, err := templateName(data, tags)
	if err != nil {
		return "", err
	}
	for {
		t.mu.Lock()
		m, ok := t.made[name]
		if !ok {
			m = &madeTemplate{once: make(chan struct{})}
			t.made[name] = m
		}
		m.used = t.clock.Now()
		t.mu.Unlock()
		if !ok {
			m.err = t.create(ctx, name, data, tags)
			if m.err != nil {
				t.Forget(name)
			}
			close(m.once)
			return name, m.err
		}
		select {
		case <-m.once:
			if m.err == nil {
				return name, nil
			}
			if ctx.Err() != nil {
				return "", ctx.Err()
			}
			// The caller that sent the request may have run out of time; send one of our own unless the answer would be the same.
			if sdk.IsRefused(m.err) {
				return "", m.err
			}
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// Forget makes the next Ensure ask EC2 again.
func (t *Templates) Forget(names ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, n := range names {
		delete(t.made, n)
	}
}

// create creates the template. It is fine if there is one of that name: it has the same content. The client token is the SDK's, which
// only covers its own retries: a token derived from the name would return a template that was deleted since.
func (t *Templates) create(ctx context.Context, name string, data *ec2types.RequestLaunchTemplateData, tags map[string]string) error {
	_, err := t.api.CreateLaunchTemplate(ctx, &ec2.CreateLaunchTemplateInput{
		LaunchTemplateName: &name, LaunchTemplateData: data,
		TagSpecifications: []ec2types.TagSpecification{{ResourceType: ec2types.ResourceTypeLaunchTemplate, Tags: sdk.SortedTags(tags)}},
	})
	if err != nil && !sdk.IsAlreadyExists(err) {
		return sdk.Wrap(err, "creating launch template "+name)
	}
	return nil
}

func templateName(data *ec2types.RequestLaunchTemplateData, tags map[string]string) (string, error) {
	raw, err := json.Marshal(struct {
		Data *ec2types.RequestLaunchTemplateData
		Tags []ec2types.Tag
	}{data, sdk.SortedTags(tags)})
	if err != nil {
		return "", fmt.Errorf("naming a launch template: %w", err)
	}
	sum := sha256.Sum256(raw)
	return templatePrefix + hex.EncodeToString(sum[:12]), nil
}
