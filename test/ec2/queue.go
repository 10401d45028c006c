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

// queue is the SQS queue interruption events come by. It may deliver twice when a message isn't deleted in time, and it
// promises no order.
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

// uuid makes an id in the form of one.
func (w *world) uuid(kind string) string {
	w.counter[kind]++
	r := w.draw(kind, w.counter[kind])
	a, b := r.Uint64(), r.Uint64()
	return fmt.Sprintf("%08x-%04x-4%03x-a%03x-%012x", uint32(a>>32), uint16(a>>16), a&0xfff, b>>52, b&0xffffffffffff)
}

// queued checks that a request is about the queue there is.
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
		m.visible = w.now.Add(hidden)
		w.after(time.Duration(float64(hidden)*w.cfg.Speed), func() { w.effects = append(w.effects, effect{arrived: true}) })
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

func digest(body string) string {
	sum := md5.Sum([]byte(body)) // what SQS sends for clients to check
	return hex.EncodeToString(sum[:])
}

// event puts an event on the queue in EventBridge's envelope.
func (w *world) event(kind string, in *instance, detail map[string]string) {
	detail["instance-id"] = in.ID
	body, err := json.Marshal(map[string]any{
		"version": "0", "id": w.uuid("event-id"), "detail-type": kind, "source": "aws.ec2", "account": w.cfg.Account, "time": w.now.UTC().Format(time.RFC3339),
		"region": w.cfg.Region, "resources": []string{w.arn("ec2", "instance/"+in.ID)}, "detail": detail,
	})
	if err != nil {
		panic(err) // strings only
	}
	w.put(string(body))
}

func (w *world) notifyState(in *instance) {
	if w.cfg.StateEvents {
		w.event("EC2 Instance State-change Notification", in, map[string]string{"state": in.State})
	}
}

// Interrupt warns of the interruption of a spot instance; it ends SpotNotice later.
func (s *Sim) Interrupt(id string) error {
	return s.mark(id, func(w *world, in *instance) {
		w.event("EC2 Spot Instance Interruption Warning", in, map[string]string{"instance-action": "terminate"})
		w.after(w.cfg.SpotNotice, func() { w.end(in, "Server.SpotInstanceTermination: Instance terminated due to spot interruption") })
	})
}

// Rebalance recommends to leave a spot instance.
func (s *Sim) Rebalance(id string) error {
	return s.mark(id, func(w *world, in *instance) {
		w.event("EC2 Instance Rebalance Recommendation", in, map[string]string{})
	})
}

func (s *Sim) mark(id string, do func(*world, *instance)) error {
	var err error
	s.with(func(w *world) {
		switch in := w.byID[id]; {
		case in == nil || !in.live():
			err = fmt.Errorf("instance %s is not running", id)
		case in.CapacityType != spot:
			err = fmt.Errorf("instance %s is not a spot instance", id)
		default:
			do(w, in)
		}
	})
	return err
}
