package check

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/record"
)

// plannedAnnotation holds a claim's slots, as JSON or, long ones, as base64 of gzip behind a prefix.
const plannedAnnotation = "dovetail.sh/planned-pods"

// slot is capacity for a pod of a class, or for one that its owner will create later.
type slot struct {
	Pod struct {
		UID             types.UID `json:"uid"`
		Namespace, Name string
	} `json:"pod"`
	Owner types.UID `json:"owner"`
	Class string    `json:"class"`
	Order int       `json:"order"`
}

// pod is the history of one pod.
type pod struct {
	last *corev1.Pod
	// Revisions; 0: has not happened. A pod has ended if it is being deleted, or has succeeded or failed.
	created, bound, ended uint64
	node                  types.UID
}

// node is the history of one Node.
type node struct {
	name             string
	providerID       string
	created, deleted uint64
	taken            int // pods that were bound here, without DaemonSet pods
	// Memory for pods in bytes: as its launch was recorded or the Node was made, and as its kubelet reported it when it registered; 0: it has not.
	promised, reported int64
}

// claim is the history of one NodeClaim. Slots are in the order in which they were recorded, each in its last state.
type claim struct {
	name             string
	created, deleted uint64
	first            map[int]bool // slots, by order, that it had when it was created
	slots            map[int]slot
	named            map[types.UID]uint64 // pods that ever had a slot, with the revision
	providerIDs      map[string]bool
	node             types.UID // empty: there was none
	promised         int64     // memory for pods in bytes, as its launch was recorded; 0: it was not
}

// history is the evidence, sorted by pods, nodes and NodeClaims.
type history struct {
	events []record.Event
	pods   map[types.UID]*pod
	nodes  map[types.UID]*node
	claims map[types.UID]*claim
}

func read(events []record.Event) (*history, error) {
	h := &history{events: events, pods: map[types.UID]*pod{}, nodes: map[types.UID]*node{}, claims: map[types.UID]*claim{}}
	byName := map[string]types.UID{} // existing Nodes
	for _, e := range events {
		switch o := e.Object.(type) {
		case *corev1.Pod:
			h.takePod(e, o, byName)
		case *corev1.Node:
			h.takeNode(e, o, byName)
		case *karpv1.NodeClaim:
			if err := h.takeClaim(e, o); err != nil {
				return nil, err
			}
		}
	}
	for _, c := range h.claims {
		for uid, n := range h.nodes {
			if n.providerID != "" && c.providerIDs[n.providerID] {
				n.promised = max(n.promised, c.promised) // the kubelet may have made the Node
			}
			if n.providerID != "" && c.providerIDs[n.providerID] && (c.node == "" || h.nodes[c.node].created > n.created) {
				c.node = uid
			}
		}
	}
	return h, nil
}

func (h *history) takePod(e record.Event, o *corev1.Pod, byName map[string]types.UID) {
	p := h.pods[o.UID]
	if p == nil {
		p = &pod{created: e.Revision}
		h.pods[o.UID] = p
	}
	p.last = o
	if p.ended == 0 && (e.Type == watch.Deleted || o.DeletionTimestamp != nil || over(o)) {
		p.ended = e.Revision
	}
	if p.bound == 0 && o.Spec.NodeName != "" {
		p.bound, p.node = e.Revision, byName[o.Spec.NodeName]
		if n := h.nodes[p.node]; n != nil && !isDaemon(o) {
			n.taken++
		}
	}
}

func (h *history) takeNode(e record.Event, o *corev1.Node, byName map[string]types.UID) {
	n := h.nodes[o.UID]
	if n == nil {
		n = &node{name: o.Name, created: e.Revision, promised: o.Status.Allocatable.Memory().Value()}
		h.nodes[o.UID] = n
	}
	if o.Labels[karpv1.NodeRegisteredLabelKey] == "true" && n.reported == 0 {
		n.reported = o.Status.Allocatable.Memory().Value()
	}
	byName[o.Name] = o.UID
	if o.Spec.ProviderID != "" {
		n.providerID = o.Spec.ProviderID
	}
	if e.Type == watch.Deleted {
		n.deleted = e.Revision
		delete(byName, o.Name)
	}
}

func (h *history) takeClaim(e record.Event, o *karpv1.NodeClaim) error {
	c := h.claims[o.UID]
	if c == nil {
		c = &claim{
			name: o.Name, created: e.Revision, first: map[int]bool{}, slots: map[int]slot{}, named: map[types.UID]uint64{}, providerIDs: map[string]bool{},
		}
		h.claims[o.UID] = c
	}
	slots, err := slotsOf(o.Annotations[plannedAnnotation])
	if err != nil {
		return fmt.Errorf("reading annotation %s of NodeClaim %s: %w", plannedAnnotation, o.Name, err)
	}
	for _, s := range slots {
		if e.Revision == c.created {
			c.first[s.Order] = true
		}
		c.slots[s.Order] = s
		if _, ok := c.named[s.Pod.UID]; !ok && s.Pod.UID != "" {
			c.named[s.Pod.UID] = e.Revision
		}
	}
	if id := o.Status.ProviderID; id != "" {
		c.providerIDs[id] = true
	}
	if c.promised == 0 {
		c.promised = o.Status.Allocatable.Memory().Value()
	}
	if e.Type == watch.Deleted {
		c.deleted = e.Revision
	}
	return nil
}

func slotsOf(text string) ([]slot, error) {
	if text == "" {
		return nil, nil
	}
	data := []byte(text)
	if _, packed, ok := strings.Cut(text, ":"); ok && text[0] != '[' {
		zip, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(packed)))
		if err != nil {
			return nil, err
		}
		if data, err = io.ReadAll(zip); err != nil {
			return nil, err
		}
	}
	var slots []slot
	dec := json.NewDecoder(bytes.NewReader(data))
	if err := dec.Decode(&slots); err != nil {
		return nil, err
	}
	return slots, nil
}

// isDaemon reports whether a DaemonSet created the pod.
func isDaemon(p *corev1.Pod) bool {
	o := metav1.GetControllerOf(p)
	return o != nil && o.Kind == "DaemonSet"
}

// inOrder returns the NodeClaims sorted by name.
func (h *history) inOrder() []*claim {
	return slices.SortedFunc(maps.Values(h.claims), func(a, b *claim) int { return cmp.Compare(a.name, b.name) })
}

func (p *pod) String() string { return p.last.Namespace + "/" + p.last.Name }

// alive reports whether the pod existed at a revision and was not being deleted.
func (p *pod) alive(at uint64) bool {
	return p.created <= at && (p.ended == 0 || p.ended > at)
}

// over reports whether a pod has succeeded or failed.
func over(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// owner returns the UID of the pod's controller.
func (p *pod) owner() types.UID {
	if o := metav1.GetControllerOf(p.last); o != nil {
		return o.UID
	}
	return ""
}
