package karpenter

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"
)

const poolWithoutSpec = `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default, uid: u1, generation: 3, annotations: {a: b}}
status: {nodes: 4}
`

func TestDecode(t *testing.T) {
	for name, tc := range map[string]struct {
		object string
		want   []string // parts of the reason; none: well-formed
	}{
		"a whole pool": {object: poolWithoutSpec + `
spec:
  weight: 3
  limits: {cpu: "10", nodes: 5}
  disruption: {consolidateAfter: Never, budgets: [{nodes: "1"}]}
  template:
    spec: {expireAfter: 720h, terminationGracePeriod: 1h, requirements: [{key: a, operator: In, values: ["1"], minValues: 1}], nodeClassRef: {group: g, kind: k, name: c}}
`},
		"a duration no clock can hold": {
			object: poolWithoutSpec + "spec: {template: {spec: {expireAfter: 9999999h}}}",
			want:   []string{"spec.template.spec.expireAfter: "},
		},
		"two bad durations and a bad quantity, each named": {
			object: poolWithoutSpec + "spec: {limits: {cpu: 1x}, disruption: {consolidateAfter: 9999999h}, template: {spec: {terminationGracePeriod: soon}}}",
			want:   []string{"spec.limits.cpu: ", "spec.disruption.consolidateAfter: ", "spec.template.spec.terminationGracePeriod: "},
		},
		"the element of a list is named": {
			object: poolWithoutSpec + "spec: {template: {spec: {requirements: [{key: a, operator: Exists}, {key: 7}]}}}",
			want:   []string{"spec.template.spec.requirements[1].key: "},
		},
		"a map where a list belongs": {
			object: poolWithoutSpec + "spec: {template: {spec: {taints: {key: a}}}}",
			want:   []string{"spec.template.spec.taints.key: "},
		},
		"a spec that is a word": {object: poolWithoutSpec + "spec: hello", want: []string{"spec: "}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Decode(fromYAML(t, tc.object), NodePools.New).(*karpv1.NodePool)
			reason := Malformed(got)
			for _, want := range tc.want {
				if !strings.Contains(reason, want) {
					t.Errorf("reason %q, want %q in it", reason, want)
				}
			}
			if (reason == "") != (len(tc.want) == 0) {
				t.Errorf("reason is %q", reason)
			}
			if got.Name != "default" || got.UID != "u1" || got.Generation != 3 || got.Annotations["a"] != "b" || *got.Status.Nodes != 4 {
				t.Errorf("metadata or status are lost: %+v", got)
			}
		})
	}
}

func TestDecodeKeepsMetadataOfAnObjectWithABadStatus(t *testing.T) {
	u := fromYAML(t, "apiVersion: karpenter.sh/v1\nkind: NodeClaim\nmetadata: {name: c}\nstatus: {capacity: {cpu: many}}")
	got := Decode(u, NodeClaims.New)
	if got.GetName() != "c" || !strings.Contains(Malformed(got), "status.capacity.cpu: ") {
		t.Errorf("name %q, reason %q", got.GetName(), Malformed(got))
	}
	if c := ClaimOf(got.(*karpv1.NodeClaim), classKind); c.Unreadable == "" {
		t.Error("the claim can be launched although its status can't be read")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"a"},"spec":{"template":{"spec":{"expireAfter":"1h"}}}}`))
	f.Add([]byte(`{"metadata":7,"spec":[{"template":null}],"status":{"conditions":[{"type":1}]}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		u := &unstructured.Unstructured{}
		if yaml.Unmarshal(raw, &u.Object) != nil || u.Object == nil {
			return
		}
		for _, k := range kinds {
			switch o := Decode(u, k.New).(type) {
			case *karpv1.NodePool:
				_ = PoolOf(o, classKind)
				_, _ = UnhonoredBy(o)
			case *karpv1.NodeClaim:
				_ = ClaimOf(o, classKind)
			case client.Object:
			}
		}
	})
}
