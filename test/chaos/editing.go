package chaos

import (
	"fmt"
	"math/rand/v2"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// edits marks histories in which a user edits what nodes come from, counted among the faults.
const edits = "roll-out: the pool or its class is edited"

// editLag is how long after an edit new nodes may still come from what was there before.
const editLag = 2 * time.Minute

// editing is what differs in a history in which a user edits the pool's template and its class, which is every third one: its nodes drift.
// It is drawn from a stream of its own, so that everything else in the history of a seed is as it would be without.
type editing struct {
	at  []time.Duration // after the beginning of the storm
	rng *rand.Rand
	n   int
}

func drawEditing(r *rand.Rand) *editing {
	e := &editing{rng: r}
	if r.IntN(3) == 0 {
		for range 1 + r.IntN(3) {
			e.at = append(e.at, time.Duration(r.Int64N(int64(stormMin))))
		}
	}
	return e
}

// prepareEdits plans the edits, wait after now.
func (h *history) prepareEdits(wait time.Duration) {
	for _, at := range h.editing.at {
		h.later(wait+at, h.edit)
	}
}

// edit changes the pool, its class or both; or takes the last edit of the pool back.
func (h *history) edit() {
	e := h.editing
	e.n++
	what := e.rng.IntN(4)
	value := fmt.Sprint(e.n)
	if what == 3 {
		value = ""
	}
	done := ""
	if what != 1 {
		pool := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		if h.objects.Get(h.ctx, keyOf(pool), pool) == nil {
			pool.Spec.Template.Labels = nil
			if value != "" {
				pool.Spec.Template.Labels = map[string]string{"example.com/edit": value}
			}
			if h.objects.Update(h.ctx, pool) == nil {
				done += " pool"
			}
		}
	}
	if what == 1 || what == 2 {
		class := &ec2nc.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		if h.objects.Get(h.ctx, keyOf(class), class) == nil {
			class.Spec.UserData = ptr.To("#!/bin/sh\n# " + value)
			if h.objects.Update(h.ctx, class) == nil {
				done += " class"
			}
		}
	}
	if done != "" {
		h.check.edited = time.Now()
		h.faults.injected(edits)
		h.note("a user edits:%s (%q)", done, value)
	}
}
