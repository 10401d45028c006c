package karpenter

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/awslabs/operatorpkg/status"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/pkg/cloudprovider"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// RollOut is how far the replacement of a pool's drifted nodes has come: the value of objects.AnnotationRollOut, as JSON.
//
//	launched -> proved: a node of the template is initialized and has held a pod Ready for long enough
//	launched -> failed: the node has ended before that, or takes too long. No other node is launched before Until
//	failed -> launched: another node is launched
//	any -> nothing:     the template changes, or no node is drifted any more
type RollOut struct {
	// Template identifies what nodes of the pool are launched from now (both strings that func Template returns, joined). Since is when this
	// value was first seen.
	Template string    `json:"template"`
	Since    time.Time `json:"since"`
	// Proved: a node of the template has proved to work.
	Proved bool `json:"proved,omitempty"`
	// Canaries are the names of the NodeClaims that were launched to find out whether nodes of the template work. Launched is when the latest of
	// these was launched.
	Canaries []string  `json:"canaries,omitempty"`
	Launched time.Time `json:"launched,omitzero"`
	// Forgiven: one canary ended without having held a pod. This didn't count as a failure, but the next such end does.
	Forgiven bool `json:"forgiven,omitempty"`
	// Failed is how many canaries have failed in a row, Why how the last one failed; no other is launched before Until.
	Failed int       `json:"failed,omitempty"`
	Until  time.Time `json:"until,omitzero"`
	Why    string    `json:"why,omitempty"`
	// Again has the names of NodeClaims that drifted soon after their launch, although the template was the same. Their nodes are not replaced.
	Again []string `json:"again,omitempty"`
}

// RollOutOf returns the roll-out that is recorded on a pool; false: none is, or it can't be read.
func RollOutOf(np *karpv1.NodePool) (RollOut, bool) {
	var out RollOut
	text, ok := np.Annotations[objects.AnnotationRollOut]
	if !ok || json.Unmarshal([]byte(text), &out) != nil {
		return RollOut{}, false
	}
	return out, true
}

// Problem returns why the roll-out doesn't go on, as reason and sentence of a condition; empty: it does.
func (r *RollOut) Problem() (reason, why string) {
	if r.Failed > 0 && !r.Proved {
		return "CanaryFailed", fmt.Sprintf("no drifted node is replaced by a new one before %s: %s (%d in a row)", r.Until.UTC().Format(time.RFC3339), r.Why, r.Failed)
	}
	if len(r.Again) > 0 {
		return "DriftsAgain", fmt.Sprintf("NodeClaims %s drifted within minutes of their launch, though neither the pool nor its node class has changed: they are not replaced",
			strings.Join(r.Again[:min(len(r.Again), 5)], ", "))
	}
	return "", ""
}

// Template identifies what nodes of a pool are launched from, by two strings: pool stands for what the pool says, class for its node class and
// what the cloud has resolved that to. As long as both stay the same, a node can drift only if it, or its claim, is changed itself.
func Template(np *karpv1.NodePool, nc status.Object, k *cloudprovider.NodeClassKind) (pool, class string, err error) {
	requirements, err := json.Marshal(np.Spec.Template.Spec.Requirements)
	if err != nil {
		return "", "", fmt.Errorf("reading the requirements of NodePool %s: %w", np.Name, err)
	}
	pool = sum(np.Hash(), string(requirements))
	if nc == nil {
		return pool, "", nil
	}
	raw, err := json.Marshal(nc)
	if err != nil {
		return "", "", fmt.Errorf("reading %s %s: %w", k.Kind, nc.GetName(), err)
	}
	var fields struct{ Status map[string]any }
	if err := json.Unmarshal(raw, &fields); err != nil {
		return "", "", fmt.Errorf("reading %s %s: %w", k.Kind, nc.GetName(), err)
	}
	delete(fields.Status, "conditions")
	return pool, sum(string(nc.GetUID()), fmt.Sprint(nc.GetGeneration()), nc.GetAnnotations()[k.HashKey], canonical(fields.Status)), nil
}

// canonical returns a text for a value that doesn't depend on the order of lists. An object with an id is represented by the id alone, because its
// other fields may change although it is the same.
func canonical(v any) string {
	switch v := v.(type) {
	case map[string]any:
		if id, ok := v["id"].(string); ok {
			return id
		}
		var out []string
		for key, value := range v {
			out = append(out, key+"="+canonical(value))
		}
		slices.Sort(out)
		return "{" + strings.Join(out, " ") + "}"
	case []any:
		var out []string
		for _, value := range v {
			out = append(out, canonical(value))
		}
		slices.SortFunc(out, cmp.Compare)
		return "[" + strings.Join(out, " ") + "]"
	}
	return fmt.Sprint(v)
}

func sum(texts ...string) string {
	h := fnv.New64a()
	for _, t := range texts {
		_, _ = fmt.Fprintf(h, "%d %s ", len(t), t) // never fails
	}
	return fmt.Sprintf("%016x", h.Sum64())
}
