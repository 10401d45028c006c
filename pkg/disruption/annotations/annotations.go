// Package annotations reads the annotations by which users change how their pods and nodes are disrupted. It doesn't know what they lead to.
package annotations

import (
	"cmp"
	"errors"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/disruption/rebalance"
	"github.com/dovetail-scheduler/dovetail/pkg/disruption/repair"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// ReasonIgnored is the reason of events about annotations that can't be read.
const ReasonIgnored = "AnnotationIgnored"

// Reader reads annotations by which users change how their pods and nodes are consolidated. One that can't be read is ignored, and
// reported once.
type Reader struct {
	recorder events.EventRecorder
	reported map[string]bool
}

// NewReader returns a reader that reports by events.
func NewReader(recorder events.EventRecorder) *Reader {
	return &Reader{recorder: recorder, reported: map[string]bool{}}
}

// reportMost is how many malformed annotations are remembered, so that each is reported once.
const reportMost = 10_000

// RestartCost returns what a restart of a pod costs by the object's annotation, as the time in which the pod costs as much; nil: it has none.
func (s *Reader) RestartCost(kind string, obj client.Object) *time.Duration {
	text, ok := obj.GetAnnotations()[objects.AnnotationRestartCost]
	if !ok {
		return nil
	}
	d, err := parseRestartCost(text)
	if err != nil {
		s.report(kind, obj, objects.AnnotationRestartCost, text, err)
		return nil
	}
	return &d
}

// SpotFlexibility returns how many cheaper instance types a pool needs before a spot node is replaced by a spot node; 0: it doesn't say.
func (s *Reader) SpotFlexibility(pool *karpv1.NodePool) int {
	text, ok := pool.Annotations[objects.AnnotationSpotFlexibility]
	if !ok {
		return 0
	}
	n, err := parseSpotFlexibility(text)
	if err != nil {
		s.report("NodePool", pool, objects.AnnotationSpotFlexibility, text, err)
	}
	return n
}

func parseRestartCost(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, errors.New(`it must be a duration of zero or more, like "10m"`)
	}
	return d, nil
}

func parseSpotFlexibility(text string) (int, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 1 {
		return 0, errors.New(`it must be a whole number of one or more, like "5"`)
	}
	return int(n), nil
}

// report records an event that an annotation is ignored, once for all pods of a controller.
func (s *Reader) report(kind string, obj client.Object, key, text string, err error) {
	about := obj.GetUID()
	if pod, ok := obj.(*corev1.Pod); ok {
		about = cmp.Or(objects.Controller(pod), about)
	}
	once := string(about) + " " + key + "=" + text
	if s.reported[once] {
		return
	}
	if len(s.reported) >= reportMost {
		clear(s.reported)
	}
	s.reported[once] = true
	name := obj.GetName()
	if obj.GetNamespace() != "" {
		name = obj.GetNamespace() + "/" + name
	}
	s.recorder.Eventf(obj, nil, corev1.EventTypeWarning, ReasonIgnored, "Disrupt", "The annotation %s: %q of %s %s is ignored: %v", key, text, kind, name, err)
}

// Rebalance reports whether a pool asks for nodes to be replaced whose spot capacity EC2 recommends to leave.
func (s *Reader) Rebalance(pool *karpv1.NodePool) bool {
	yes, err := rebalance.Asked(pool)
	if err != nil {
		s.report("NodePool", pool, objects.AnnotationRebalance, rebalance.Text(pool), err)
	}
	return yes
}

// Repair returns the repair policies as a pool changes them.
func (s *Reader) Repair(pool *karpv1.NodePool, all repair.Policies) repair.Policies {
	text, ok := pool.Annotations[objects.AnnotationRepair]
	if !ok || len(all) == 0 {
		return all
	}
	out, err := all.Override(text)
	if err != nil {
		s.report("NodePool", pool, objects.AnnotationRepair, text, err)
	}
	return out
}
