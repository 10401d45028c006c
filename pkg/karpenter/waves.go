package karpenter

import (
	"bytes"
	"fmt"
	"slices"
	"sync"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
)

// waves remembers how the waves of late look as annotations. All claims of a wave carry the same long value, each of them
// several times: when it is created, and with every update that the watch brings. Waves that are handed out are shared and must
// not be changed.
type waves struct {
	mu     sync.Mutex
	recent []wave // the latest first
}

type wave struct {
	value string
	wave  *capacity.Wave
}

const recentWaves = 8

// EncodeWave is the value of a NodeClaim's annotation that records w.
func EncodeWave(w *capacity.Wave) (string, error) { return encodeAnnotation(WaveAnnotation, w) }

// WaveOf is the wave that is recorded on a NodeClaim; nil: none is.
func WaveOf(nc *karpv1.NodeClaim) (*capacity.Wave, error) {
	value, ok := nc.Annotations[WaveAnnotation]
	if !ok {
		return nil, nil
	}
	w := &capacity.Wave{}
	if err := decodeAnnotation(WaveAnnotation, value, w); err != nil {
		return nil, fmt.Errorf("NodeClaim %s: %w", nc.Name, err)
	}
	return w, nil
}

// encode is the annotation's value for w.
func (c *waves) encode(w *capacity.Wave) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.recent {
		if sameWave(r.wave, w) {
			return r.value, nil
		}
	}
	value, err := EncodeWave(w)
	if err != nil {
		return "", err
	}
	own := *w // the caller may go on and change its own
	own.Claims, own.Offers, own.Request = slices.Clone(w.Claims), slices.Clone(w.Offers), slices.Clone(w.Request)
	own.Labels, own.Taints, own.StartupTaints, own.Prices, own.Requests = nil, nil, nil, nil, nil // not recorded
	c.keep(value, &own)
	return value, nil
}

// decode is the wave of an annotation's value.
func (c *waves) decode(value string) (*capacity.Wave, error) {
	c.mu.Lock()
	for _, r := range c.recent {
		if r.value == value {
			c.mu.Unlock()
			return r.wave, nil
		}
	}
	c.mu.Unlock()
	w := &capacity.Wave{}
	if err := decodeAnnotation(WaveAnnotation, value, w); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keep(value, w)
	return w, nil
}

func (c *waves) keep(value string, w *capacity.Wave) {
	c.recent = slices.Insert(c.recent, 0, wave{value, w})
	c.recent = c.recent[:min(len(c.recent), recentWaves)]
}

// sameWave says that everything that is recorded of both is the same.
func sameWave(a, b *capacity.Wave) bool {
	return a.Token == b.Token && a.Attempt == b.Attempt && a.Pool == b.Pool && a.NodeClass == b.NodeClass && a.CapacityType == b.CapacityType && a.For == b.For &&
		slices.Equal(a.Claims, b.Claims) && slices.Equal(a.Offers, b.Offers) && bytes.Equal(a.Request, b.Request)
}
