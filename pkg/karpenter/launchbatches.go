package karpenter

import (
	"bytes"
	"fmt"
	"slices"
	"sync"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// Batches caches the annotation values of recent launch batches. All claims of a launch batch carry the same long value, and each
// claim is encoded or decoded several times: when it is created, and with every update that the watch delivers. The LaunchBatches it
// returns are shared and must not be changed.
type Batches struct {
	mu     sync.Mutex
	recent []batch // the launch batches used last, the latest first
}

type batch struct {
	value string
	batch *capacity.LaunchBatch
}

const recentBatches = 8

// EncodeBatch returns the value of the NodeClaim annotation that records w.
func EncodeBatch(w *capacity.LaunchBatch) (string, error) {
	return EncodeAnnotation(objects.AnnotationLaunchBatch, w)
}

// BatchOf returns the launch batch that is recorded on a NodeClaim, or nil if there is none.
func BatchOf(nc *karpv1.NodeClaim) (*capacity.LaunchBatch, error) {
	value, ok := nc.Annotations[objects.AnnotationLaunchBatch]
	if !ok {
		return nil, nil
	}
	w := &capacity.LaunchBatch{}
	if err := decodeAnnotation(objects.AnnotationLaunchBatch, value, w); err != nil {
		return nil, fmt.Errorf("NodeClaim %s: %w", nc.Name, err)
	}
	return w, nil
}

// Encode returns the annotation's value for w.
func (c *Batches) Encode(w *capacity.LaunchBatch) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.recent {
		if sameBatch(r.batch, w) {
			return r.value, nil
		}
	}
	value, err := EncodeBatch(w)
	if err != nil {
		return "", err
	}
	own := *w // the caller may change its own copy afterwards
	own.Claims, own.Offers, own.Request = slices.Clone(w.Claims), slices.Clone(w.Offers), slices.Clone(w.Request)
	own.Labels, own.Taints, own.StartupTaints, own.Prices, own.Requests = nil, nil, nil, nil, nil // not recorded
	c.keep(value, &own)
	return value, nil
}

// Decode returns the launch batch of an annotation's value.
func (c *Batches) Decode(value string) (*capacity.LaunchBatch, error) {
	c.mu.Lock()
	for _, r := range c.recent {
		if r.value == value {
			c.mu.Unlock()
			return r.batch, nil
		}
	}
	c.mu.Unlock()
	w := &capacity.LaunchBatch{}
	if err := decodeAnnotation(objects.AnnotationLaunchBatch, value, w); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keep(value, w)
	return w, nil
}

func (c *Batches) keep(value string, w *capacity.LaunchBatch) {
	c.recent = slices.Insert(c.recent, 0, batch{value, w})
	c.recent = c.recent[:min(len(c.recent), recentBatches)]
}

// sameBatch reports whether a and b agree in everything that is recorded.
func sameBatch(a, b *capacity.LaunchBatch) bool {
	return a.Token == b.Token && a.Attempt == b.Attempt && a.Pool == b.Pool && a.NodeClass == b.NodeClass && a.CapacityType == b.CapacityType && a.For == b.For &&
		slices.Equal(a.Claims, b.Claims) && slices.Equal(a.Offers, b.Offers) && bytes.Equal(a.Request, b.Request)
}
