package aws

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"k8s.io/klog/v2"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/batcher"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
)

// Terminate terminates an instance. Nil means that EC2 accepted this or an earlier request. Calls at about the same time share a
// request.
func (l *instances) Terminate(ctx context.Context, id string) error {
	if _, err := l.ends.Do(ctx, id); err != nil {
		return sdk.Wrap(err, "terminating instance "+id)
	}
	return nil
}

// terminateAll terminates a batch of instances. One id that EC2 doesn't know, or that we may not terminate, fails the request for all of them. Such a
// batch is halved again and again, until each of these ids is alone. It isn't halved if the permission is missing altogether (noneAllowed).
func (l *instances) terminateAll(ctx context.Context, ids []string) map[string]batcher.Answer[struct{}] {
	out := make(map[string]batcher.Answer[struct{}], len(ids))
	answer := func(ids []string, err error) {
		for _, id := range ids {
			out[id] = batcher.Answer[struct{}]{Err: err}
		}
	}
	var settle func(ids []string, err error)
	settle = func(ids []string, err error) {
		if !sdk.IsNotFound(err) && !sdk.IsRefused(err) || len(ids) == 1 {
			answer(ids, err)
			return
		}
		a, b := ids[:len(ids)/2], ids[len(ids)/2:]
		errA, errB := l.terminateTogether(ctx, a), l.terminateTogether(ctx, b)
		if sdk.IsUnauthorized(errA) && sdk.IsUnauthorized(errB) && l.noneAllowed(ctx, a, b) {
			answer(a, errA)
			answer(b, errB)
			return
		}
		settle(a, errA)
		settle(b, errB)
	}
	settle(ids, l.terminateTogether(ctx, ids))
	return out
}

// noneAllowed reports whether we seem to lack the permission to terminate any instance at all: after all batches were refused as unauthorized, one
// instance of each is tried alone and is refused, too. It may be wrong, because that instance may be the only one of its batch that we may not
// terminate. Therefore each call tries another instance, and when callers try again, the others are terminated.
func (l *instances) noneAllowed(ctx context.Context, batches ...[]string) bool {
	turn := int(l.turns.Add(1))
	for _, ids := range batches {
		if len(ids) > 1 && !sdk.IsUnauthorized(l.terminateTogether(ctx, []string{ids[turn%len(ids)]})) {
			return false
		}
	}
	return true
}

// terminateTogether terminates all of the instances or, if it returns an error, none.
func (l *instances) terminateTogether(ctx context.Context, ids []string) error {
	_, err := l.ec2.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: ids})
	if err == nil {
		klog.FromContext(ctx).V(2).Info("Terminated instances", "instances", ids)
	}
	return err
}
