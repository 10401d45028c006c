package interruption

import (
	"context"
	"fmt"
	"strconv"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/sdk"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/karpentermetrics"
)

const (
	// queueHidden is how long SQS hides a message that was received; handling one takes much less.
	queueHidden = 20 * time.Second
	// queueBatch is the most messages SQS returns, or deletes, at once.
	queueBatch = 10
	// queuePause is the wait after a failure, doubling up to queuePauseMost.
	queuePause     = time.Second
	queuePauseMost = time.Minute
)

// Queue reads the messages about interruptions.
type Queue struct {
	name  string // empty: there is none
	api   sdk.SQS
	clock clock.Clock
	// confirmer asks EC2 whether messages are true.
	confirmer *Confirmer
	// hold returns why no message may be taken from the queue at the moment, or nil if one may.
	hold func() error

	onInterruption func(context.Context, []capacity.Interruption) []error
}

// NewQueue returns the queue of that name; empty: there is none. f confirms its messages; hold returns why no message may be taken from it
// at the moment.
func NewQueue(name string, api sdk.SQS, c clock.Clock, f *Confirmer, hold func() error) *Queue {
	return &Queue{name: name, api: api, clock: c, confirmer: f, hold: hold}
}

// OnInterruption registers f for the interruptions from the queue. f returns an error for each that it could not handle; its message
// is delivered again. f may be called again for the same interruption, in any order. Call it before Run.
func (q *Queue) OnInterruption(f func(context.Context, []capacity.Interruption) []error) {
	q.onInterruption = f
}

// Listen reads the interruption queue until ctx ends. It returns at once if there is none, or no function to handle interruptions.
func (q *Queue) Listen(ctx context.Context) {
	if q.name == "" || q.onInterruption == nil {
		return
	}
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "queue", q.name)
	url, pause := "", queuePause
	for ctx.Err() == nil {
		if q.hold() != nil { // the messages belong to the other controller
			sdk.Sleep(ctx, q.clock, queuePause)
			continue
		}
		var err error
		if url == "" {
			url, err = q.url(ctx)
		}
		if err == nil {
			err = q.hear(ctx, url)
		}
		if err == nil || ctx.Err() != nil {
			pause = queuePause
			continue
		}
		logger.Error(err, "Could not read the interruption queue, will retry", "pause", pause)
		url = "" // the queue may have been deleted and created again
		sdk.Sleep(ctx, q.clock, pause)
		pause = min(2*pause, queuePauseMost)
	}
}

func (q *Queue) url(ctx context.Context) (string, error) {
	out, err := q.api.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: awssdk.String(q.name)})
	if err != nil {
		return "", sdk.Wrap(err, "finding the interruption queue")
	}
	return awssdk.ToString(out.QueueUrl), nil
}

// hear receives the messages on the queue, or waits for some. It hands those that EC2 confirms to onInterruption, and deletes what was handled. It
// also deletes messages that can't be understood, which would be delivered again and again.
func (q *Queue) hear(ctx context.Context, url string) error {
	out, err := q.api.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: awssdk.String(url), MaxNumberOfMessages: queueBatch, WaitTimeSeconds: int32(sdk.QueueWait / time.Second),
		VisibilityTimeout: int32(queueHidden / time.Second), MessageSystemAttributeNames: []sqstypes.MessageSystemAttributeName{received, sentAt},
	})
	if err != nil {
		return sdk.Wrap(err, "reading the interruption queue")
	}
	logger := klog.FromContext(ctx)
	var heard []capacity.Interruption
	var from, times []int // each interruption's message, and how often it was received
	seen := make([]error, len(out.Messages))
	for i := range out.Messages {
		said, err := interruptionsOf(awssdk.ToString(out.Messages[i].Body))
		switch {
		case err != nil:
			logger.Error(err, "A message on the interruption queue can't be understood and is deleted", "message", awssdk.ToString(out.Messages[i].MessageId))
			karpentermetrics.MessageReceived(messageUnknown)
		case len(said) == 0:
			logger.V(4).Info("A message on the interruption queue is not about an interruption", "message", awssdk.ToString(out.Messages[i].MessageId))
			karpentermetrics.MessageReceived(messageOther)
		default:
			karpentermetrics.MessageReceived(messageTypes[said[0].Kind])
		}
		for range said {
			from, times = append(from, i), append(times, timesReceived(&out.Messages[i]))
		}
		heard = append(heard, said...)
	}
	q.handle(ctx, heard, times, func(i int, err error) { seen[from[i]] = err })
	return q.forget(ctx, url, out.Messages, seen)
}

// handle gives onInterruption the interruptions that EC2 confirms, and calls again for each message that must be received once more.
func (q *Queue) handle(ctx context.Context, heard []capacity.Interruption, times []int, again func(i int, err error)) {
	if len(heard) == 0 {
		return
	}
	believed, index, errs := q.confirmer.sift(ctx, heard, times)
	for i, err := range errs {
		if err != nil {
			again(i, err)
		}
	}
	if len(believed) == 0 {
		return
	}
	for n, err := range q.onInterruption(ctx, believed) {
		if err != nil {
			klog.FromContext(ctx).Error(err, "An interruption could not be handled; its message will be received again", "instance", believed[n].InstanceID, "kind", believed[n].Kind)
			again(index[n], err)
		}
	}
}

// received is the attribute that says how often a message was received.
const received = sqstypes.MessageSystemAttributeNameApproximateReceiveCount

func timesReceived(m *sqstypes.Message) int {
	n, err := strconv.Atoi(m.Attributes[string(received)])
	if err != nil {
		return 1
	}
	return n
}

// forget deletes the messages that have been handled.
func (q *Queue) forget(ctx context.Context, url string, messages []sqstypes.Message, seen []error) error {
	var done []sqstypes.DeleteMessageBatchRequestEntry
	var handled []sqstypes.Message
	for i := range messages {
		if seen[i] == nil {
			done = append(done, sqstypes.DeleteMessageBatchRequestEntry{Id: awssdk.String(fmt.Sprintf("m%d", i)), ReceiptHandle: messages[i].ReceiptHandle})
			handled = append(handled, messages[i])
		}
	}
	if len(done) == 0 {
		return nil
	}
	out, err := q.api.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: awssdk.String(url), Entries: done})
	if err != nil {
		return sdk.Wrap(err, "deleting from the interruption queue")
	}
	q.countDeleted(handled[:max(0, len(handled)-len(out.Failed))])
	if len(out.Failed) > 0 { // they are delivered and handled again
		klog.FromContext(ctx).Info("SQS failed to delete some messages", "messages", len(out.Failed), "code", awssdk.ToString(out.Failed[0].Code))
	}
	return nil
}
