package chaos

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/ec2"
	"github.com/dovetail-scheduler/dovetail/test/kubeapi"
)

// view is what the checker sees of the cluster and the account at one moment.
type view struct {
	claims    map[string]*karpv1.NodeClaim // by name
	nodes     map[string]*corev1.Node      // by name
	pods      map[types.UID]*corev1.Pod
	instances []ec2.Instance
	live      map[string]bool // provider IDs of pending and running instances
	there     map[string]bool // provider IDs of instances that are not terminated
}

// podsInOrder returns the pods sorted by name.
func (v *view) podsInOrder() []*corev1.Pod {
	return slices.SortedFunc(maps.Values(v.pods), func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
}

// reader makes views. It converts each version of an object, and parses each launch record, only once.
type reader struct {
	seen    map[types.UID]versioned
	records map[string]*recorded // by the annotation's value
}

func newReader() reader {
	return reader{seen: map[types.UID]versioned{}, records: map[string]*recorded{}}
}

type versioned struct {
	version string
	object  any
}

func (r *reader) look(api *kubeapi.Server, sim *ec2.Sim) (*view, error) {
	v := &view{claims: map[string]*karpv1.NodeClaim{}, nodes: map[string]*corev1.Node{}, pods: map[types.UID]*corev1.Pod{}, live: map[string]bool{}, there: map[string]bool{}}
	var err error
	api.Visit("karpenter.sh", "nodeclaims", func(o *unstructured.Unstructured) { v.claims[o.GetName()] = convert(r, o, &karpv1.NodeClaim{}, &err) })
	api.Visit("", "nodes", func(o *unstructured.Unstructured) { v.nodes[o.GetName()] = convert(r, o, &corev1.Node{}, &err) })
	api.Visit("", "pods", func(o *unstructured.Unstructured) { v.pods[o.GetUID()] = convert(r, o, &corev1.Pod{}, &err) })
	v.instances = sim.Instances()
	for _, in := range v.instances {
		v.live[providerID(in)] = in.State == "pending" || in.State == "running"
		v.there[providerID(in)] = in.State != "terminated"
	}
	return v, err
}

func convert[T any](r *reader, o *unstructured.Unstructured, into *T, failed *error) *T {
	if s, ok := r.seen[o.GetUID()]; ok && s.version == o.GetResourceVersion() {
		return s.object.(*T)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, into); err != nil {
		*failed = fmt.Errorf("%s %s can't be read: %w", o.GetKind(), o.GetName(), err)
	}
	r.seen[o.GetUID()] = versioned{o.GetResourceVersion(), into}
	return into
}

func providerID(in ec2.Instance) string { return "aws:///" + in.Zone + "/" + in.ID }

// recorded is the launch recorded in a NodeClaim's annotation: its client token and the NodeClaims that share it.
type recorded struct {
	Token  string   `json:"token"`
	Claims []string `json:"claims"`
}

// recordOf returns the launch recorded on a NodeClaim, or nil if there is none.
func (r *reader) recordOf(c *karpv1.NodeClaim) (*recorded, error) {
	value, ok := c.Annotations["dovetail.sh/launch-batch"]
	if !ok || r.records[value] != nil {
		return r.records[value], nil
	}
	record, err := readRecord(value)
	if err != nil {
		return nil, fmt.Errorf("claim %s: its record can't be read: %w", c.Name, err)
	}
	r.records[value] = record
	return record, nil
}

func readRecord(value string) (*recorded, error) {
	r, err := unpacked(value)
	if err != nil {
		return nil, err
	}
	out := &recorded{}
	return out, json.NewDecoder(r).Decode(out)
}

// unpacked returns a reader of the record's JSON. A long record is stored as base64 of its gzip, after the prefix "gzip:".
func unpacked(value string) (io.Reader, error) {
	var r io.Reader = strings.NewReader(value)
	if rest, zipped := strings.CutPrefix(value, "gzip:"); zipped {
		raw, err := base64.StdEncoding.DecodeString(rest)
		if err != nil {
			return nil, err
		}
		if r, err = gzip.NewReader(bytes.NewReader(raw)); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func condition(c *karpv1.NodeClaim, kind string) bool {
	for _, x := range c.Status.Conditions {
		if x.Type == kind {
			return x.Status == "True"
		}
	}
	return false
}
