package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/explain"
	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

const (
	// mostEntries is how many entries the timeline has, the newest.
	mostEntries = 200
	// oneBurst: NodeClaims of a pool that were created within this of each other are one burst.
	oneBurst = 10 * time.Second
)

// Entry is something that has happened: a burst of NodeClaims, or what a controller reported.
type Entry struct {
	At      int64  `json:"at"`
	Kind    string `json:"kind"` // Burst, Move, Warning or Event
	Object  string `json:"object"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// timelineOf returns what has happened, the newest first.
func timelineOf(c *explain.Cluster) []Entry {
	all := append(burstsOf(c), reported(c)...)
	slices.SortFunc(all, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(b.At, a.At), cmp.Compare(a.Object, b.Object), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Message, b.Message))
	})
	return all[:min(len(all), mostEntries)]
}

// burst is NodeClaims of one pool that were created together.
type burst struct {
	pool        string
	first, last time.Time
	claims      []*karpv1.NodeClaim
}

// burstsOf groups the NodeClaims that are there by pool and time.
func burstsOf(c *explain.Cluster) (out []Entry) {
	claims := slices.Clone(manifest.All[*karpv1.NodeClaim](c.Set))
	slices.SortStableFunc(claims, func(a, b *karpv1.NodeClaim) int { return a.CreationTimestamp.Time.Compare(b.CreationTimestamp.Time) })
	open := map[string]*burst{}
	var bursts []*burst
	for _, nc := range claims {
		pool, at := nc.Labels[karpv1.NodePoolLabelKey], nc.CreationTimestamp.Time
		if at.IsZero() {
			continue
		}
		b := open[pool]
		if b == nil || at.Sub(b.last) > oneBurst {
			b = &burst{pool: pool, first: at}
			open[pool] = b
			bursts = append(bursts, b)
		}
		b.last, b.claims = at, append(b.claims, nc)
	}
	for _, b := range bursts {
		out = append(out, b.entry(c))
	}
	return out
}

// entry says how far the claims of a burst are, what they cost, and how long the last of them took.
func (b *burst) entry(c *explain.Cluster) Entry {
	price := 0.0
	for _, nc := range b.claims {
		p, _ := c.Price(nc.Labels)
		price += p
	}
	var steps []string
	for _, stage := range []string{karpv1.ConditionTypeLaunched, karpv1.ConditionTypeRegistered, karpv1.ConditionTypeInitialized} {
		n, last := 0, time.Time{}
		for _, nc := range b.claims {
			if at := when(nc, stage); !at.IsZero() {
				n++
				if at.After(last) {
					last = at
				}
			}
		}
		step := fmt.Sprintf("%d %s", n, strings.ToLower(stage))
		if n > 0 {
			step += " after " + explain.Age(last.Sub(b.first))
		}
		steps = append(steps, step)
	}
	what := "NodeClaims"
	if len(b.claims) == 1 {
		what = "NodeClaim"
	}
	return Entry{At: millis(b.first), Kind: "Burst", Object: "NodePool " + cmp.Or(b.pool, "(none)"), Reason: fmt.Sprintf("%d %s created", len(b.claims), what),
		Message: fmt.Sprintf("%s; $%.4f/h", strings.Join(steps, ", "), price)}
}

// moves are the reasons of events about nodes that are replaced, emptied or ended.
var moves = map[string]bool{
	"ReplacementPlanned": true, "ReplacementMissing": true, "ConsolidationPlanned": true, "ConsolidationGivenUp": true, "MovedByRollout": true,
	"MoveByRolloutGivenUp": true, "DisruptionTerminating": true, "DisruptionLaunching": true, "Interrupted": true, "Expired": true, "Disrupted": true,
}

// reported returns the events about NodePools, NodeClaims and their Nodes. Many are on a NodeClaim and its Node alike; they are one entry.
func reported(c *explain.Cluster) (out []Entry) {
	events := slices.Clone(manifest.All[*corev1.Event](c.Set))
	slices.SortStableFunc(events, func(a, b *corev1.Event) int { // those on NodeClaims before those on their Nodes
		return -cmp.Compare(a.InvolvedObject.Kind, b.InvolvedObject.Kind)
	})
	twice := newTwice(c)
	for _, e := range events {
		switch e.InvolvedObject.Kind {
		case "NodePool", "NodeClaim":
		case "Node":
			if by := cmp.Or(e.ReportingController, e.Source.Component); !strings.HasPrefix(by, "dovetail") && !strings.HasPrefix(by, "karpenter") {
				continue // kubelets and others report there, too
			}
		default:
			continue
		}
		if twice.reported(e) {
			continue
		}
		kind := "Event"
		switch {
		case moves[e.Reason]:
			kind = "Move"
		case e.Type == corev1.EventTypeWarning:
			kind = "Warning"
		}
		out = append(out, Entry{At: millis(eventTime(e)), Kind: kind, Object: e.InvolvedObject.Kind + " " + e.InvolvedObject.Name, Reason: e.Reason, Message: objects.OneLine(e.Message)})
	}
	return out
}

// eventText is what an event says, and when.
type eventText struct {
	reason, message string
	at              int64 // seconds
}

// twice finds events that are on a NodeClaim and on its Node. It must get those on NodeClaims first.
type twice struct {
	claims map[string]bool   // the NodeClaims that are there
	of     map[string]string // the NodeClaim of a Node
	seen   map[eventOf]bool
	// gone counts events on NodeClaims that don't exist any more, less the events on Nodes that were matched with them. Events stay for an hour, but
	// which Node a deleted NodeClaim had isn't known; so an event on a Node that says the same at the same time is taken for its copy.
	gone map[eventText]int
}

type eventOf struct {
	object string
	eventText
}

func newTwice(c *explain.Cluster) *twice {
	t := &twice{claims: map[string]bool{}, of: map[string]string{}, seen: map[eventOf]bool{}, gone: map[eventText]int{}}
	for _, nc := range manifest.All[*karpv1.NodeClaim](c.Set) {
		t.claims[nc.Name] = true
		if nc.Status.NodeName != "" {
			t.of[nc.Status.NodeName] = nc.Name
		}
	}
	return t
}

// reported reports whether the same event about the same NodeClaim was seen before, on the NodeClaim or on its Node, and remembers this one.
func (t *twice) reported(e *corev1.Event) bool {
	kind, name, says := e.InvolvedObject.Kind, e.InvolvedObject.Name, eventText{e.Reason, e.Message, eventTime(e).Unix()}
	if claim, ok := t.of[name]; ok && kind == "Node" {
		kind, name = "NodeClaim", claim
	}
	key := eventOf{kind + " " + name, says}
	if t.seen[key] {
		return true
	}
	t.seen[key] = true
	switch {
	case kind == "NodeClaim" && !t.claims[name]:
		t.gone[says]++
	case kind == "Node" && t.gone[says] > 0:
		t.gone[says]--
		return true
	}
	return false
}

// eventTime returns when an event was last seen.
func eventTime(e *corev1.Event) time.Time {
	if e.Series != nil {
		return e.Series.LastObservedTime.Time
	}
	for _, t := range []time.Time{e.LastTimestamp.Time, e.EventTime.Time, e.FirstTimestamp.Time} {
		if !t.IsZero() {
			return t
		}
	}
	return e.CreationTimestamp.Time
}
