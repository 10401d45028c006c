package ec2

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// queue is the SQS queue for interruption events. It delivers a message again if it isn't deleted in time, and guarantees no order.
type queue struct {
	messages []*message
}

type message struct {
	id, body string
	receives int
	sent     time.Time
	visible  time.Time
}

type messageItem struct {
	MessageId     string
	ReceiptHandle string
	MD5OfBody     string
	Body          string
	Attributes    map[string]string
}

func (w *world) put(body string) *message {
	m := &message{id: w.uuid("message"), body: body, sent: w.now, visible: w.now}
	w.queue.messages = append(w.queue.messages, m)
	w.effects = append(w.effects, effect{arrived: true})
	return m
}

// uuid returns an ID in the form of a UUID.
func (w *world) uuid(kind string) string {
	w.counter[kind]++
	r := w.draw(kind, w.counter[kind])
	a, b := r.Uint64(), r.Uint64()
	return fmt.Sprintf("%08x-%04x-4%03x-a%03x-%012x", uint32(a>>32), uint16(a>>16), a&0xfff, b>>52, b&0xffffffffffff)
}

// queued checks that a request names the existing queue.
func (w *world) queued(url string) error {
	if url[strings.LastIndex(url, "/")+1:] != w.cfg.Queue {
		return failf("com.amazonaws.sqs#QueueDoesNotExist", "The specified queue does not exist.")
	}
	return nil
}

func (s *Sim) getQueueURL(_ context.Context, r *Request) (any, error) {
	var in struct{ QueueName string }
	if err := r.decode(&in); err != nil {
		return nil, err
	}
	if in.QueueName != s.cfg.Queue {
		return nil, failf("com.amazonaws.sqs#QueueDoesNotExist", "The specified queue does not exist.")
	}
	return struct{ QueueUrl string }{s.QueueURL()}, nil
}

func (w *world) sendMessage(r *Request) (any, error) {
	var in struct{ QueueUrl, MessageBody string }
	if err := r.decode(&in); err != nil {
		return nil, err
	}
	if err := w.queued(in.QueueUrl); err != nil {
		return nil, err
	}
	m := w.put(in.MessageBody)
	r.results = []string{m.id}
	return struct{ MessageId, MD5OfMessageBody string }{m.id, digest(m.body)}, nil
}

// receiveMessage waits up to WaitTimeSeconds for the first message.
func (s *Sim) receiveMessage(ctx context.Context, r *Request) (any, error) {
	var in struct {
		QueueUrl            string
		MaxNumberOfMessages int
		VisibilityTimeout   *int
		WaitTimeSeconds     int
	}
	if err := r.decode(&in); err != nil {
		return nil, err
	}
	hidden := 30 * time.Second
	if in.VisibilityTimeout != nil {
		hidden = time.Duration(*in.VisibilityTimeout) * time.Second
	}
	deadline := s.clock.NewTimer(time.Duration(in.WaitTimeSeconds) * time.Second)
	defer deadline.Stop()
	for waiting := in.WaitTimeSeconds > 0; ; {
		arrived := s.arrivals.wait()
		var out []messageItem
		var err error
		s.with(func(w *world) {
			if err = w.queued(in.QueueUrl); err == nil {
				out = w.receive(max(1, in.MaxNumberOfMessages), hidden)
			}
		})
		if err != nil {
			return nil, err
		}
		if len(out) > 0 || !waiting {
			for _, m := range out {
				r.results = append(r.results, m.MessageId)
			}
			return struct {
				Messages []messageItem `json:",omitempty"`
			}{out}, nil
		}
		select {
		case <-arrived:
		case <-deadline.C():
			waiting = false
		case <-ctx.Done():
			return nil, failf("RequestTimeout", "the client went away")
		}
	}
}

func (w *world) receive(n int, hidden time.Duration) []messageItem {
	var out []messageItem
	for _, m := range w.queue.messages {
		if len(out) == n || m.visible.After(w.now) {
			continue
		}
		m.receives++
		m.visible = w.now.Add(w.cfg.scaled(hidden))
		w.after(hidden, func() { w.effects = append(w.effects, effect{arrived: true}) })
		out = append(out, messageItem{
			m.id, fmt.Sprintf("%s/%d", m.id, m.receives), digest(m.body), m.body,
			map[string]string{"SentTimestamp": strconv.FormatInt(m.sent.UnixMilli(), 10), "ApproximateReceiveCount": strconv.Itoa(m.receives)},
		})
	}
	return out
}

func (w *world) deleteMessage(r *Request) (any, error) {
	var in struct{ QueueUrl, ReceiptHandle string }
	if err := r.decode(&in); err != nil {
		return nil, err
	}
	if err := w.queued(in.QueueUrl); err != nil {
		return nil, err
	}
	id, _, _ := strings.Cut(in.ReceiptHandle, "/")
	w.queue.messages = slices.DeleteFunc(w.queue.messages, func(m *message) bool { return m.id == id })
	r.results = []string{id}
	return nil, nil
}

// deleteMessageBatch deletes up to ten messages, with a result for each.
func (w *world) deleteMessageBatch(r *Request) (any, error) {
	type entry struct{ Id, ReceiptHandle string }
	var in struct {
		QueueUrl string
		Entries  []entry
	}
	if err := r.decode(&in); err != nil {
		return nil, err
	}
	if err := w.queued(in.QueueUrl); err != nil {
		return nil, err
	}
	switch n := len(in.Entries); {
	case n == 0:
		return nil, failf("com.amazonaws.sqs#EmptyBatchRequest", "There should be at least one DeleteMessageBatchRequestEntry in the request.")
	case n > 10:
		return nil, failf("com.amazonaws.sqs#TooManyEntriesInBatchRequest", "Maximum number of entries per request are 10. You have sent %d.", n)
	}
	type ok struct{ Id string }
	type failed struct {
		Id, Code, Message string
		SenderFault       bool
	}
	out := struct {
		Successful []ok
		Failed     []failed `json:",omitempty"`
	}{}
	asked := map[string]bool{}
	for _, e := range in.Entries {
		if asked[e.Id] {
			return nil, failf("com.amazonaws.sqs#BatchEntryIdsNotDistinct", "Id %s repeated.", e.Id)
		}
		asked[e.Id] = true
		id, _, isHandle := strings.Cut(e.ReceiptHandle, "/")
		if !isHandle {
			out.Failed = append(out.Failed, failed{e.Id, "ReceiptHandleIsInvalid", "The input receipt handle is invalid.", true})
			continue
		}
		w.queue.messages = slices.DeleteFunc(w.queue.messages, func(m *message) bool { return m.id == id })
		out.Successful = append(out.Successful, ok{e.Id})
		r.results = append(r.results, id)
	}
	return out, nil
}

func digest(body string) string {
	sum := md5.Sum([]byte(body)) // SQS sends it so that clients can check the body
	return hex.EncodeToString(sum[:])
}

// event sends an event to the queue in EventBridge's envelope.
func (w *world) event(kind string, in *instance, detail map[string]string) {
	detail["instance-id"] = in.ID
	w.announce("aws.ec2", kind, in, detail)
}

func (w *world) announce(source, kind string, in *instance, detail any) {
	body, err := json.Marshal(map[string]any{
		"version": "0", "id": w.uuid("event-id"), "detail-type": kind, "source": source, "account": w.cfg.Account, "time": w.now.UTC().Format(time.RFC3339),
		"region": w.cfg.Region, "resources": []string{w.arn("ec2", "instance/"+in.ID)}, "detail": detail,
	})
	if err != nil {
		panic(err) // it contains only strings
	}
	w.put(string(body))
}

func (w *world) notifyState(in *instance) {
	if w.cfg.StateEvents {
		w.event("EC2 Instance State-change Notification", in, map[string]string{"state": in.State})
	}
}

// Interrupt announces the interruption of a spot instance, which is terminated after SpotNotice.
func (s *Sim) Interrupt(id string) error {
	return s.mark(id, spot, func(w *world, in *instance) {
		in.marked = true
		w.event("EC2 Spot Instance Interruption Warning", in, map[string]string{"instance-action": "terminate"})
		w.after(w.cfg.SpotNotice, func() { w.end(in, "Server.SpotInstanceTermination: Instance terminated due to spot interruption") })
	})
}

// Rebalance sends a rebalance recommendation for a spot instance.
func (s *Sim) Rebalance(id string) error {
	return s.mark(id, spot, func(w *world, in *instance) {
		w.event("EC2 Instance Rebalance Recommendation", in, map[string]string{})
	})
}

// Queued returns how many messages are in the queue, including those received but not deleted.
func (s *Sim) Queued() (n int) {
	s.with(func(w *world) { n = len(w.queue.messages) })
	return n
}

// Maintain announces, as AWS Health and DescribeInstanceStatus do, maintenance of an instance's host. It has no further effect.
func (s *Sim) Maintain(id string, begins time.Time) error {
	return s.mark(id, "", func(w *world, in *instance) {
		in.status.events = append(in.status.events, scheduledEvent{"instance-retirement", "The instance is running on degraded hardware", begins})
		w.announce("aws.health", "AWS Health Event", in, map[string]any{
			"eventArn": "arn:aws:health:" + w.cfg.Region + "::event/EC2/AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED/" + w.uuid("health"),
			"service":  "EC2", "eventTypeCode": "AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED", "eventTypeCategory": "scheduledChange",
			"startTime": begins.UTC().Format("Mon, 02 Jan 2006 15:04:05 GMT"), "affectedEntities": []map[string]string{{"entityValue": in.ID}},
		})
	})
}

// TakeReserved announces that the owner of an interruptible reservation reclaims an instance's capacity; the instance is terminated
// after SpotNotice.
func (s *Sim) TakeReserved(id string) error {
	return s.mark(id, onDemand, func(w *world, in *instance) {
		w.event("EC2 Capacity Reservation Instance Interruption Warning", in, map[string]string{"instance-action": "terminate"})
		w.after(w.cfg.SpotNotice, func() {
			w.end(in, "Server.InsufficientInstanceCapacity: Instance terminated as its capacity reservation was reclaimed")
		})
	})
}

// mark applies do to a live instance of the capacity type; "" means any.
func (s *Sim) mark(id, capacityType string, do func(*world, *instance)) error {
	var err error
	s.with(func(w *world) {
		switch in := w.byID[id]; {
		case in == nil || !in.live():
			err = fmt.Errorf("instance %s is not running", id)
		case capacityType != "" && in.CapacityType != capacityType:
			err = fmt.Errorf("instance %s is not a %s instance", id, capacityType)
		default:
			do(w, in)
		}
	})
	return err
}
