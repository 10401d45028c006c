package offline

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/labels"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"

	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
)

// shared is two pods that use a claim which only one pod may use at a time: the planner doesn't know that rule.
const shared = `
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: disks}, provisioner: ebs.csi.aws.com, volumeBindingMode: WaitForFirstConsumer}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}, spec: {storageClassName: disks, accessModes: [ReadWriteOncePod], resources: {requests: {storage: 1Gi}}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: c, image: c, volumeMounts: [{name: data, mountPath: /d}]}], volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: b}, spec: {containers: [{name: c, image: c, volumeMounts: [{name: data, mountPath: /d}]}], volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]}}
`

func TestVerification(t *testing.T) {
	text := class + pool("general", "") + shared
	r, err := Plan(t.Context(), set(t, text), settings(t))
	if err != nil {
		t.Fatal(err)
	}
	if got := linesOf(r); len(got) != 2 || got[0] != "general m1.large on-demand eu-test-1a,eu-test-1b: default/a" ||
		!strings.Contains(got[1], "refused b: the scheduler's VolumeRestrictions filter refuses the pod") {
		t.Errorf("plan %q: want b refused by the scheduler's filters", got)
	}
	s := settings(t)
	s.NoVerify = true
	if r, err = Plan(t.Context(), set(t, text), s); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"general m1.large on-demand eu-test-1a,eu-test-1b: default/a, default/b"}, linesOf(r)); diff != "" || r.Verified {
		t.Errorf("unverified plan (-want +got):\n%s\nsaid to be verified: %v", diff, r.Verified)
	}
}

func TestPreferencesCanBeIgnored(t *testing.T) {
	text := class + pool("general", "") + deployment("web", 1, "cpu: 3",
		"      affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: node.kubernetes.io/instance-type, operator: In, values: [m1.xlarge]}]}}]}}")
	for ignore, want := range map[bool]string{false: "m1.xlarge", true: "m1.large"} {
		s := settings(t)
		s.Plan.IgnorePreferences = ignore
		r, err := Plan(t.Context(), set(t, text), s)
		if err != nil {
			t.Fatal(err)
		}
		if r.Nodes[0].InstanceType != want {
			t.Errorf("preferences ignored %v: %s, want %s", ignore, r.Nodes[0].InstanceType, want)
		}
	}
}

func TestExplain(t *testing.T) {
	text := class + pool("general", "  limits: {cpu: 4}") + `
{apiVersion: v1, kind: Node, metadata: {name: node-1, labels: {kubernetes.io/hostname: node-1}}, status: {allocatable: {cpu: 1, memory: 1Gi, pods: 5}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: there}, spec: {nodeName: node-1, containers: [{name: c, image: c}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: one}, spec: {priority: 1, containers: [{name: c, image: c, resources: {requests: {cpu: 3}}}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: one, namespace: other}, spec: {containers: [{name: c, image: c, resources: {requests: {cpu: 3}}}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: held}, spec: {schedulingGates: [{name: gate}], containers: [{name: c, image: c}]}}
---
` + shared
	for _, tc := range []struct{ pod, want, err string }{
		{pod: "default/one", want: "it is on a new node of pool general: m1.large"},
		{pod: "other/one", want: "it fits nowhere"},
		{pod: "there", want: "it is bound to node node-1 already"},
		{pod: "held", want: "it gets no node: spec.schedulingGates: it waits for gate to be removed"},
		{pod: "b", want: "it gets no node: the scheduler's VolumeRestrictions filter refuses the pod"},
		{pod: "one", err: "pod one may be default/one or other/one: name its namespace"},
		{pod: "nobody", err: "there is no pod nobody to explain"},
		{pod: "other/on", err: "there is no pod other/on to explain; there is default/one"},
	} {
		t.Run(tc.pod, func(t *testing.T) {
			s := settings(t)
			s.Explain = tc.pod
			r, err := Plan(t.Context(), set(t, text), s)
			if tc.err != "" {
				if err == nil || err.Error() != tc.err {
					t.Fatalf("error %v, want %s", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			if err := r.Explain(&out); err != nil {
				t.Fatal(err)
			}
			if name := tc.pod[strings.Index(tc.pod, "/")+1:]; !strings.Contains(out.String(), "/"+name+":\n") || !strings.Contains(out.String(), "- "+tc.want) {
				t.Errorf("explanation:\n%swant it to say: %s", out.String(), tc.want)
			}
		})
	}
}

func TestInputThatCannotBePlannedFor(t *testing.T) {
	if _, err := Plan(t.Context(), set(t, deployment("web", 1, "cpu: 1", "")), settings(t)); !errors.Is(err, ErrNoPool) {
		t.Errorf("without a pool: %v", err)
	}
	s, err := manifest.Read(manifest.Options{Definitions: definitions, Manifests: []string{"-"}, Stdin: strings.NewReader("{apiVersion: karpenter.sh/v1alpha5, kind: Provisioner, metadata: {name: old}, spec: {weight: 1000}}")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Plan(t.Context(), s, settings(t)); err == nil || !strings.HasPrefix(err.Error(), "standard input: document 1: Provisioner old: spec.") {
		t.Errorf("a Provisioner that can't be: %v", err)
	}
	if _, err := Plan(t.Context(), set(t, class+pool("general", "")+gang(1, 0)), settings(t)); err == nil || !strings.HasSuffix(err.Error(), "PodGroup shop/train: spec.minMember: must be at least 1, not 0") {
		t.Errorf("a PodGroup that can't be: %v", err)
	}
}

// Overlays influence what is launched; a warning names one that is not applied because it conflicts with another.
func TestOverlays(t *testing.T) {
	const overlay = `
apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata: {name: %s}
spec: {requirements: [{key: node.kubernetes.io/instance-type, operator: In, values: [x1.large]}], price: "%s"}
---
`
	input := class + pool("default", "") + deployment("web", 1, "cpu: 1", "")
	for _, tc := range []struct{ name, overlays, want, warning string }{
		{"without", "", "m1.large", ""},
		{"with a price", fmt.Sprintf(overlay, "cheap", "0.01"), "x1.large", ""},
		{"with two that contradict each other", fmt.Sprintf(overlay, "a", "5") + fmt.Sprintf(overlay, "b", "0.01"), "x1.large",
			"NodeOverlay a is not applied: it conflicts with NodeOverlay b, which has the same weight, over the price of x1.large in pool default"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := Plan(t.Context(), set(t, input+tc.overlays), settings(t))
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(linesOf(r), "\n"); !strings.Contains(got, tc.want) {
				t.Errorf("plan, want %s:\n%s", tc.want, got)
			}
			if got := strings.Join(r.Warnings, "\n"); got != tc.warning {
				t.Errorf("warnings %q, want %q", got, tc.warning)
			}
		})
	}
}

// The pods of each profile are checked by its own filters, and have nodes launched in the pools it selects.
func TestProfiles(t *testing.T) {
	defaults, err := latest.Default()
	if err != nil {
		t.Fatal(err)
	}
	strict, lenient := defaults.Profiles[0], *defaults.Profiles[0].DeepCopy()
	lenient.SchedulerName = "lenient"
	lenient.Plugins.MultiPoint.Enabled = slices.DeleteFunc(lenient.Plugins.MultiPoint.Enabled, func(p schedulerapi.Plugin) bool { return p.Name == "VolumeRestrictions" })
	s := settings(t)
	s.Profiles = []schedulerapi.KubeSchedulerProfile{strict, lenient}
	s.Pools = []karpenter.Profile{
		{Scheduler: strict.SchedulerName, Selects: func(of map[string]string) bool { return of["for"] == "" }},
		{Scheduler: lenient.SchedulerName, Selects: func(of map[string]string) bool { return of["for"] == "lenient" }},
	}
	pods := strings.ReplaceAll(shared, "spec: {containers", "spec: {schedulerName: lenient, containers")
	own := strings.Replace(pool("own", ""), "{name: own}", "{name: own, labels: {for: lenient}}", 1)
	r, err := Plan(t.Context(), set(t, class+pool("general", "")+own+deployment("web", 1, "cpu: 3", "")+pods), s)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"general m1.large on-demand eu-test-1a,eu-test-1b: shop/web", "own m1.large on-demand eu-test-1a,eu-test-1b: default/a, default/b"}
	if diff := cmp.Diff(want, linesOf(r)); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}

// Nodes are only launched for pods of selected namespaces. A namespace that isn't in the input has its name as its only label.
func TestNamespacesThatMayCauseLaunches(t *testing.T) {
	const there = "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {nodes: \"yes\"}}}\n---\n"
	app := class + pool("general", "") + deployment("web", 1, "cpu: 3", "")
	bought := []string{"general m1.large on-demand eu-test-1a,eu-test-1b: shop/web"}
	refused := func(selector string) []string {
		return []string{"refused web: no node may be launched for pods of namespace \"shop\": namespaceSelector of ProvisionArgs (" + selector + ") doesn't select it"}
	}
	const assumed = "Namespace shop: no labels but its name"
	for _, tc := range []struct {
		name, input, selector string
		want                  []string
		assumed               bool
	}{
		{"by a label", there, "nodes=yes", bought, false},
		{"by a label that it doesn't have", there, "nodes=no", refused("nodes=no"), false},
		{"by a label, and it isn't in the input", "", "nodes=yes", refused("nodes=yes"), true},
		{"by name", there, "kubernetes.io/metadata.name=shop", bought, false},
		{"by name, and it isn't in the input", "", "kubernetes.io/metadata.name=shop", bought, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := settings(t)
			var err error
			if s.NamespaceSelector, err = labels.Parse(tc.selector); err != nil {
				t.Fatal(err)
			}
			r, err := Plan(t.Context(), set(t, tc.input+app), s)
			if err != nil {
				t.Fatal(err)
			}
			got := linesOf(r)
			for i := range got { // replace the pod's generated name
				got[i] = regexp.MustCompile("refused web-[^:]*").ReplaceAllString(got[i], "refused web")
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
			if slices.Contains(r.Assumed, assumed) != tc.assumed {
				t.Errorf("assumed %q", r.Assumed)
			}
		})
	}
}

// Objects of EKS Auto Mode under the same definitions are neither planned with nor counted against limits.
func TestObjectsOfEKSAutoMode(t *testing.T) {
	theirs := strings.ReplaceAll(pool("general-purpose", ""), "{group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}", "{group: eks.amazonaws.com, kind: NodeClass, name: default}") + `
apiVersion: karpenter.sh/v1
kind: NodeClaim
metadata: {name: theirs, labels: {karpenter.sh/nodepool: default}}
spec: {nodeClassRef: {group: eks.amazonaws.com, kind: NodeClass, name: default}, requirements: []}
status: {nodeName: theirs, capacity: {cpu: "1000"}}
---
apiVersion: v1
kind: Node
metadata: {name: theirs, labels: {karpenter.sh/nodepool: default, eks.amazonaws.com/compute-type: auto}}
spec: {taints: [{key: theirs, effect: NoSchedule}]}
status: {capacity: {cpu: "1000"}, allocatable: {cpu: "1000", pods: "100", memory: 1000Gi}}
---
`
	input := class + pool("default", "  limits: {cpu: 16}") + deployment("web", 1, "cpu: 1", "") + deployment("huge", 1, "cpu: 500", "")
	var want []string
	for _, more := range []string{"", theirs} {
		r, err := Plan(t.Context(), set(t, input+more), settings(t))
		if err != nil {
			t.Fatal(err)
		}
		got := slices.DeleteFunc(linesOf(r), func(line string) bool { return strings.HasPrefix(line, "theirs:") })
		if more == "" {
			want = got
		} else if !slices.Equal(got, want) {
			t.Errorf("with Auto Mode's objects:\n%s\nwithout:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	if len(want) != 2 || !strings.HasPrefix(want[0], "default m1") {
		t.Errorf("plan: %q", want)
	}
}

// A pod's anti-affinity selects the namespace of a bound pod by the label that each namespace has, also where the input doesn't have the namespace.
func TestNamespacesOfBoundPods(t *testing.T) {
	const text = `
{apiVersion: v1, kind: Node, metadata: {name: node-1, labels: {kubernetes.io/hostname: node-1}}, status: {allocatable: {cpu: 3, memory: 8Gi, pods: 5}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: there, namespace: team-%s}, spec: {nodeName: node-1, containers: [{name: c, image: c}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: one}, spec: {containers: [{name: c, image: c, resources: {requests: {cpu: 1}}}], affinity: {podAntiAffinity: {
  requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname, labelSelector: {}, namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: team-a}}}]}}}}
`
	for team, want := range map[string]string{"a": "it is on a new node of pool general", "b": "it is on node node-1"} {
		s := settings(t)
		s.Explain = "one"
		r, err := Plan(t.Context(), set(t, class+pool("general", "")+fmt.Sprintf(text, team)), s)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := r.Explain(&out); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), want) {
			t.Errorf("beside a pod of team-%s:\n%swant it to say: %s", team, out.String(), want)
		}
	}
}
