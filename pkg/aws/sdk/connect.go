package sdk

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/arczonalshift"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/smithy-go/middleware"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/version"
)

const (
	// CallDeadline bounds a call with all its attempts, from the moment the throttle admits it; attemptDeadline bounds one attempt: a
	// connection that hangs is abandoned while there is time for another attempt.
	CallDeadline    = 30 * time.Second
	attemptDeadline = 12 * time.Second
	// maxAttempts is more than fit into the deadline: the deadline ends a call, not the number of attempts.
	maxAttempts = 100
	maxBackoff  = 4 * time.Second
	// QueueWait is how long a request waits for messages (SQS long polling); 20 seconds is the maximum.
	QueueWait = 20 * time.Second
)

// Connect creates the services' clients from the usual sources (environment, files, web identity, instance role). It makes no request;
// missing credentials show at the first call. AWS_ENDPOINT_URL and its per-service forms are honoured.
func Connect(ctx context.Context, region string) (Clients, error) {
	cfg, err := load(ctx, region)
	if err != nil {
		return Clients{}, err
	}
	return NewClients(cfg, clock.RealClock{}), nil
}

// ConnectTool is Connect for a command that a person waits for: it doesn't retry when AWS can't be reached or there are no
// credentials.
func ConnectTool(ctx context.Context, region string) (Clients, error) {
	cfg, err := load(ctx, region)
	if err != nil {
		return Clients{}, err
	}
	return newClients(cfg, clock.RealClock{}, retry.IsErrorRetryableFunc(func(err error) awssdk.Ternary {
		if IsUnreachable(err) || IsMissingCredentials(err) {
			return awssdk.FalseTernary
		}
		return awssdk.UnknownTernary
	})), nil
}

func load(ctx context.Context, region string) (awssdk.Config, error) {
	var opts []func(*config.LoadOptions) error
	if region != "" {
		opts = append(opts, config.WithRegion(region))
	}
	cfg, err := config.LoadDefaultConfig(ctx, opts...)
	if err != nil {
		return cfg, fmt.Errorf("reading the AWS configuration: %w", err)
	}
	if cfg.Region == "" {
		return cfg, fmt.Errorf("no AWS region: set it in the configuration or by AWS_REGION")
	}
	return cfg, nil
}

// NewClients creates the clients from an SDK configuration and adds deadlines, retries and client-side rate limits.
func NewClients(cfg awssdk.Config, c clock.Clock) Clients { return newClients(cfg, c) }

// newClients creates the clients. Whether an error is worth another attempt is decided by first, and by the SDK where first doesn't know.
func newClients(cfg awssdk.Config, c clock.Clock, first ...retry.IsErrorRetryable) Clients {
	cfg = cfg.Copy()
	cfg.Retryer = func() awssdk.Retryer {
		return retry.NewStandard(func(o *retry.StandardOptions) {
			o.MaxAttempts, o.MaxBackoff = maxAttempts, maxBackoff
			o.Backoff = retry.BackoffDelayerFunc(patience)
			// The SDK's retry quota would fail calls of a throttled account before their deadline.
			o.RateLimiter = ratelimit.None
			o.Retryables = slices.Concat(first, o.Retryables)
		})
	}
	t := newThrottle(c)
	cfg.APIOptions = append(cfg.APIOptions, awsmiddleware.AddUserAgentKeyValue("dovetail", version.Version),
		func(s *middleware.Stack) error { return turns(s, t) }, func(s *middleware.Stack) error { return attempts(s, t) })
	prices := cfg.Copy()
	prices.Region = pricingRegion(cfg.Region)
	return Clients{
		EC2: ec2.NewFromConfig(cfg), SSM: ssm.NewFromConfig(cfg), IAM: iam.NewFromConfig(cfg),
		Pricing: pricing.NewFromConfig(prices), EKS: eks.NewFromConfig(cfg), SQS: sqs.NewFromConfig(cfg),
		ARCZonalShift: arczonalshift.NewFromConfig(cfg),
	}
}

// patience returns the wait after a number of failed attempts: doubling, from a longer start if the account is throttled, with jitter
// so that callers don't retry at the same time.
func patience(attempts int, err error) (time.Duration, error) {
	d := 100 * time.Millisecond
	if IsThrottled(err) {
		d = 400 * time.Millisecond
	}
	d = min(d<<min(attempts-1, 10), maxBackoff)
	return d/2 + rand.N(d/2), nil
}

// pricingRegion returns the nearest of the few regions that have a pricing endpoint.
func pricingRegion(region string) string {
	switch {
	case strings.HasPrefix(region, "ap-"):
		return "ap-south-1"
	case strings.HasPrefix(region, "eu-"):
		return "eu-central-1"
	case strings.HasPrefix(region, "cn-"):
		return "cn-northwest-1"
	}
	return "us-east-1"
}

// turns makes a call wait until the throttle admits it, unless the caller's context ends first, and starts the call's deadline then.
func turns(s *middleware.Stack, t *throttle) error {
	return s.Initialize.Add(middleware.InitializeMiddlewareFunc("DovetailTurn",
		func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
			service, action := awsmiddleware.GetServiceID(ctx), awsmiddleware.GetOperationName(ctx)
			began := t.clock.Now()
			if err := t.turn(ctx, service, action, in.Parameters); err != nil {
				return middleware.InitializeOutput{}, middleware.Metadata{}, fmt.Errorf("waiting for the client-side rate limit of %s: %w", action, err)
			}
			turnSeconds.WithLabelValues(service, action).Observe(t.clock.Since(began).Seconds())
			deadline := CallDeadline
			if action == "ReceiveMessage" {
				deadline += QueueWait // long polling: an answer without messages takes this long
			}
			mine := &turn{}
			ctx, cancel := context.WithTimeout(context.WithValue(ctx, turnKey{}, mine), deadline)
			defer cancel()
			out, meta, err := next.HandleInitialize(ctx, in)
			return out, meta, mine.callError(err)
		}), middleware.After)
}

type turnKey struct{}

// turn is the state of one call: its attempts, each of which waits for the throttle to admit it.
type turn struct {
	used bool
	// failed is the error of the last attempt that was answered or could not be sent.
	failed error
}

// callError returns the call's error for people to read. When the deadline ended a call, the SDK reports only that and drops AWS's
// answers to the attempts, which are the cause.
func (t *turn) callError(err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	if t.failed != nil && Code(err) == "" && errors.Is(err, context.DeadlineExceeded) {
		return &callError{text: Summarize(t.failed), err: errors.Join(t.failed, err)}
	}
	return &callError{text: Summarize(err), err: err}
}

// attempts makes every attempt after the first wait for the throttle, and gives each a deadline.
func attempts(s *middleware.Stack, t *throttle) error {
	return s.Finalize.Insert(middleware.FinalizeMiddlewareFunc("DovetailAttempt",
		func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
			action := awsmiddleware.GetOperationName(ctx)
			mine, ok := ctx.Value(turnKey{}).(*turn)
			if ok && !mine.used {
				mine.used = true
			} else if err := t.wait(ctx, awsmiddleware.GetServiceID(ctx), action); err != nil {
				return middleware.FinalizeOutput{}, middleware.Metadata{}, fmt.Errorf("waiting for the client-side rate limit of %s again: %w", action, err)
			}
			began := t.clock.Now()
			out, meta, err := attempt(ctx, action, in, next)
			if IsDryRun(err) { // an answer as any other
				countRequest(awsmiddleware.GetServiceID(ctx), action, t.clock.Since(began), nil)
				return out, meta, err
			}
			if !errors.Is(err, context.Canceled) {
				countRequest(awsmiddleware.GetServiceID(ctx), action, t.clock.Since(began), err)
			}
			if err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).V(3).Info("An AWS call failed", "service", awsmiddleware.GetServiceID(ctx), "action", action, "err", err)
				if ok {
					mine.failed = err
				}
			}
			return out, meta, err
		}), (*retry.Attempt)(nil).ID(), middleware.After)
}

// attempt makes one attempt, with a deadline of its own.
func attempt(ctx context.Context, action string, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
	// CreateFleet answers when the instances are found and ReceiveMessage when there is a message, so they get no deadline per
	// attempt.
	if action == "CreateFleet" || action == "ReceiveMessage" {
		return next.HandleFinalize(ctx, in)
	}
	one, cancel := context.WithTimeout(ctx, attemptDeadline)
	defer cancel()
	out, meta, err := next.HandleFinalize(one, in)
	if err != nil && one.Err() != nil && ctx.Err() == nil {
		err = attemptTimeout{action}
	}
	return out, meta, err
}

// attemptTimeout replaces the error of an attempt that we cancelled ourselves, which the SDK would not retry.
type attemptTimeout struct{ action string }

func (e attemptTimeout) Error() string {
	return fmt.Sprintf("%s: no answer within %s", e.action, attemptDeadline)
}
func (attemptTimeout) RetryableError() bool { return true }
