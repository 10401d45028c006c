package offline

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dovetail-scheduler/dovetail/pkg/aws"
	awscatalog "github.com/dovetail-scheduler/dovetail/pkg/aws/catalog"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/capacity"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
)

// machines are two sizes of one family, and a more expensive type that is only used if the others can't be.
const machines = `{"meta":{"region":"eu-test-1"},"instanceTypes":[
	{"name":"m1.large","arch":["x86_64"],"vcpus":4,"memoryMiB":16384,"maxENIs":4,"ipv4PerENI":15,"maxEBSAttachments":8,"usageClasses":["on-demand","spot"],
	 "zones":["eu-test-1a","eu-test-1b"],"onDemandUSDPerHour":0.2,"spotUSDPerHourByZone":{"eu-test-1a":0.08,"eu-test-1b":0.07}},
	{"name":"m1.xlarge","arch":["x86_64"],"vcpus":8,"memoryMiB":32768,"maxENIs":4,"ipv4PerENI":15,"maxEBSAttachments":8,"usageClasses":["on-demand","spot"],
	 "zones":["eu-test-1a","eu-test-1b"],"onDemandUSDPerHour":0.4,"spotUSDPerHourByZone":{"eu-test-1a":0.16,"eu-test-1b":0.14}},
	{"name":"x1.large","arch":["x86_64"],"vcpus":4,"memoryMiB":65536,"maxENIs":4,"ipv4PerENI":15,"maxEBSAttachments":8,"usageClasses":["on-demand"],
	 "zones":["eu-test-1a"],"onDemandUSDPerHour":0.9}
]}`

// catalog offers the machines.
func catalog(t *testing.T) Catalog {
	t.Helper()
	f, err := awscatalog.Read(strings.NewReader(machines))
	if err != nil {
		t.Fatal(err)
	}
	c, err := aws.NewOffline(f, aws.OfflineConfig{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const class = `
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec: {role: r, amiSelectorTerms: [{alias: al2023@latest}], subnetSelectorTerms: [{id: subnet-0}], securityGroupSelectorTerms: [{id: sg-0}]}
---
`

// pool returns a NodePool; more is added to its spec, requirements to its template's.
func pool(name, more string, requirements ...string) string {
	return fmt.Sprintf(`
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: %s}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}, %s]
%s
---
`, name, strings.Join(requirements, ","), more)
}

// deployment returns a Deployment of one container with these requests; more is added to the pod's spec.
func deployment(name string, replicas int, requests, more string) string {
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %s, namespace: shop}
spec:
  replicas: %d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      containers: [{name: c, image: c, resources: {requests: {%[3]s}}}]
%[4]s
---
`, name, replicas, requests, more)
}

// daemonSet returns a DaemonSet called agent with one container with these requests; more is added to the pod's spec.
func daemonSet(requests, more string) string {
	return strings.Replace(strings.Replace(deployment("agent", 1, requests, more), "Deployment", "DaemonSet", 1), "  replicas: 1\n", "", 1)
}

// gang returns a Deployment whose pods are a PodGroup of which this many members must run together.
func gang(replicas, members int) string {
	return strings.Replace(deployment("train", replicas, "cpu: 3", ""), "labels: {app: train}", "labels: {app: train, scheduling.x-k8s.io/pod-group: train}", 1) +
		fmt.Sprintf("{apiVersion: scheduling.x-k8s.io/v1alpha1, kind: PodGroup, metadata: {name: train, namespace: shop}, spec: {minMember: %d}}\n---\n", members)
}

// ticks is a clock that advances by a millisecond whenever it is read.
type ticks struct{ now time.Time }

func (c *ticks) Now() time.Time {
	c.now = c.now.Add(time.Millisecond)
	return c.now
}
func (c *ticks) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

var definitions = karpenter.NewDefinitions(nodeclass.CRDs())

func settings(t *testing.T) Settings {
	return Settings{Catalog: catalog(t), NodeClass: nodeclass.Kind, Legacy: nodeclass.Legacy{}, Plan: capacity.Options{Effort: 50_000}, Clock: &ticks{}, Coscheduling: true}
}

func set(t *testing.T, manifests string) *manifest.Set {
	t.Helper()
	s, err := manifest.Read(manifest.Options{Definitions: definitions, Manifests: []string{"-"}, Stdin: strings.NewReader(manifests)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// linesOf returns a report in lines: new nodes with their workloads, existing nodes, and refused pods.
func linesOf(r *Report) []string {
	var out []string
	for i := range r.Nodes {
		n := &r.Nodes[i]
		out = append(out, fmt.Sprintf("%s %s %s %s: %s", n.Pool, n.InstanceType, n.CapacityType, strings.Join(n.Zones, ","), workloads(n.Pods, n.classes)))
	}
	for _, n := range r.Existing {
		out = append(out, n.Name+": "+workloads(n.Pods, n.classes))
	}
	for _, p := range r.Refused {
		out = append(out, "refused "+p.Name+": "+p.Reason)
	}
	slices.Sort(out)
	return out
}

func TestPlan(t *testing.T) {
	const node = `
apiVersion: v1
kind: Node
metadata: {name: node-1, labels: {kubernetes.io/hostname: node-1, topology.kubernetes.io/zone: eu-test-1a, karpenter.sh/nodepool: general}}
status: {capacity: {cpu: 4, memory: 16Gi, pods: 50}, allocatable: {cpu: 4, memory: 16Gi, pods: 50}}
---
`
	for _, tc := range []struct {
		name, text string
		want       []string
		total      float64
		warnings   []string
	}{
		{name: "nothing to plan for", text: class + pool("general", "")},
		{name: "the cheapest way", text: class + pool("general", "") + deployment("web", 2, "cpu: 3", ""), total: 0.4,
			want: []string{"general m1.large on-demand eu-test-1a,eu-test-1b: shop/web", "general m1.large on-demand eu-test-1a,eu-test-1b: shop/web"}},
		{name: "an agent on every node leaves less room", total: 0.4, want: []string{"general m1.xlarge on-demand eu-test-1a,eu-test-1b: shop/web"},
			text: class + pool("general", "") + deployment("web", 1, "cpu: 3", "") + daemonSet("cpu: 1", "")},
		{name: "an agent takes what a LimitRange makes of it", total: 0.4, want: []string{"general m1.xlarge on-demand eu-test-1a,eu-test-1b: shop/web"},
			text: class + pool("general", "") + deployment("web", 1, "cpu: 3", "") + daemonSet("", "") +
				"{apiVersion: v1, kind: LimitRange, metadata: {name: usual, namespace: shop}, spec: {limits: [{type: Container, default: {cpu: 1}}]}}"},
		{name: "and what its RuntimeClass costs", total: 0.4, want: []string{"general m1.xlarge on-demand eu-test-1a,eu-test-1b: shop/web"},
			text: class + pool("general", "") + deployment("web", 1, "cpu: 3", "") + daemonSet("", "      runtimeClassName: vm") +
				"{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: vm}, handler: vm, overhead: {podFixed: {cpu: 1}}}"},
		{name: "as pods of it that are there show, though they wait", total: 0.4, want: []string{"general m1.xlarge on-demand eu-test-1a,eu-test-1b: shop/web"},
			text: class + pool("general", "") + deployment("web", 1, "cpu: 3", "") + strings.Replace(daemonSet("", ""), "name: agent,", "name: agent, uid: 1-2-3,", 1) +
				"{apiVersion: v1, kind: Pod, metadata: {name: agent-1, namespace: shop, ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: agent, uid: 1-2-3, controller: true}]}, " +
				"spec: {containers: [{name: c, image: c}, {name: side, image: c, resources: {requests: {cpu: 1}}}]}}"},
		{name: "spread over zones and apart", total: 0.4, want: []string{"general m1.large on-demand eu-test-1a: shop/web", "general m1.large on-demand eu-test-1b: shop/web"},
			text: class + pool("general", "") + deployment("web", 2, "cpu: 100m",
				"      topologySpreadConstraints: [{topologyKey: topology.kubernetes.io/zone, maxSkew: 1, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}]")},
		{name: "a node that is there takes what fits", text: class + pool("general", "") + node + deployment("web", 2, "cpu: 3", ""), total: 0.2,
			want: []string{"general m1.large on-demand eu-test-1a,eu-test-1b: shop/web", "node-1: shop/web"}},
		{name: "less what runs on it", total: 0.2, want: []string{"general m1.large on-demand eu-test-1a,eu-test-1b: shop/web"},
			text: class + pool("general", "") + node + deployment("web", 1, "cpu: 3", "") +
				"{apiVersion: v1, kind: Pod, metadata: {name: old}, spec: {nodeName: node-1, containers: [{name: c, image: c, resources: {requests: {cpu: 2}}}]}}"},
		{name: "nodes that are there count against their pool's limits", text: class + pool("general", "  limits: {cpu: 4}") + node + deployment("web", 2, "cpu: 3", ""),
			want: []string{"node-1: shop/web", "refused web-#-2: general: limit of cpu 4 reached: 0 left"}},
		{name: "volumes are attached up to the machine's limit, in zones that the class allows", total: 0.2, want: []string{"general m1.large on-demand eu-test-1b: shop/db"},
			text: class + pool("general", "") + `
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: disks}, provisioner: ebs.csi.aws.com, volumeBindingMode: WaitForFirstConsumer,
 allowedTopologies: [{matchLabelExpressions: [{key: topology.kubernetes.io/zone, values: [eu-test-1b]}]}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: shop}
spec:
  replicas: 1
  selector: {matchLabels: {app: db}}
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: c, image: c, volumeMounts: [{name: data, mountPath: /d}]}]}}
  volumeClaimTemplates: [{metadata: {name: data}, spec: {storageClassName: disks, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]
`},
		{name: "a pool without its class", text: pool("general", "") + deployment("web", 1, "cpu: 1", ""),
			want: []string{"refused web-#-1: general: NodePool general: spec.template.spec.nodeClassRef.name: there is no EC2NodeClass default"}},
		{name: "a Provisioner", total: 0.2, want: []string{"provisioner_old m1.large on-demand eu-test-1a,eu-test-1b: shop/web"}, text: `
apiVersion: karpenter.sh/v1alpha5
kind: Provisioner
metadata: {name: old}
spec: {requirements: [{key: kubernetes.io/arch, operator: In, values: [amd64]}, {key: node.kubernetes.io/instance-type, operator: In, values: [m1.large]}], providerRef: {name: old}}
---
apiVersion: karpenter.k8s.aws/v1alpha1
kind: AWSNodeTemplate
metadata: {name: old}
spec: {subnetSelector: {any: "*"}, securityGroupSelector: {any: "*"}, amiFamily: AL2023, instanceProfile: nodes}
---
` + deployment("web", 1, "cpu: 3", "")},
		{name: "a Provisioner with a launch template of its own", total: 0.2, want: []string{"provisioner_old m1.large on-demand eu-test-1a,eu-test-1b: shop/web"}, text: `
apiVersion: karpenter.sh/v1alpha5
kind: Provisioner
metadata: {name: old}
spec: {requirements: [{key: node.kubernetes.io/instance-type, operator: In, values: [m1.large]}], provider: {launchTemplate: mine, subnetSelector: {any: "*"}}}
---
` + deployment("web", 1, "cpu: 3", "")},
		{name: "a gang that fits is placed", text: class + pool("general", "  limits: {cpu: 8}") + gang(2, 2), total: 0.4,
			want: []string{"general m1.large on-demand eu-test-1a,eu-test-1b: shop/train", "general m1.large on-demand eu-test-1a,eu-test-1b: shop/train"}},
		{name: "a gang is placed as a whole or not at all", text: class + pool("general", "  limits: {cpu: 8}") + gang(3, 3),
			want: []string{"refused train-#-1", "refused train-#-2", "refused train-#-3"}},
		{name: "members of a gang that run already count", text: class + pool("general", "  limits: {cpu: 8}") + node + gang(1, 2) +
			"{apiVersion: v1, kind: Pod, metadata: {name: first, namespace: shop, labels: {scheduling.x-k8s.io/pod-group: train}}, spec: {nodeName: node-1, containers: [{name: c, image: c, resources: {requests: {cpu: 3}}}]}}", total: 0.2,
			want: []string{"general m1.large on-demand eu-test-1a,eu-test-1b: shop/train"}},
		{name: "a gang with too few pods", text: class + pool("general", "") + gang(1, 2), want: []string{"refused train-#-1"}},
		{name: "a pod whose group isn't in the input", text: class + pool("general", "") + strings.Split(gang(1, 2), "---")[0],
			want: []string{"refused train-#-1"}},
		{name: "pods of any scheduler, the more important ones first", text: class + pool("general", "  limits: {cpu: 4}") + deployment("web", 1, "cpu: 3", "      schedulerName: other") +
			"{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 10}\n---\n" + deployment("pay", 1, "cpu: 3", "      priorityClassName: high"), total: 0.2,
			want: []string{"general m1.large on-demand eu-test-1a,eu-test-1b: shop/pay", "refused web-#-1: general: limit of cpu 4 reached: 0 left"}},
		{name: "a pod on a node that isn't in the input", text: class + pool("general", "") +
			"{apiVersion: v1, kind: Pod, metadata: {name: old}, spec: {nodeName: node-9, containers: [{name: c, image: c}]}}",
			warnings: []string{"Pod default/old is on node node-9, and there is no such node: the pod is ignored"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := Plan(t.Context(), set(t, tc.text), settings(t))
			if err != nil {
				t.Fatal(err)
			}
			got := linesOf(r)
			for i := range got {
				got[i] = withoutHash(got[i])
				if strings.HasPrefix(got[i], "refused train") {
					got[i], _, _ = strings.Cut(got[i], ":") // the reason is tested with the planner
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.warnings, r.Warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			if r.TotalPerHour != tc.total || r.LowerBoundPerHour > r.TotalPerHour {
				t.Errorf("$%v/h, bound %v, want %v", r.TotalPerHour, r.LowerBoundPerHour, tc.total)
			}
			if !r.Verified || len(r.Nodes) > 0 && (r.PlanMillis <= 0 || r.VerifyMillis <= 0) {
				t.Errorf("verified %v; planned in %v ms, verified in %v ms", r.Verified, r.PlanMillis, r.VerifyMillis)
			}
		})
	}
}

// With nodes that exist, the bound is about the new nodes for those pods that get one: other pods on the existing nodes might leave cheaper ones to buy. Here the
// small pod takes the existing node, and the big one needs a new one of $0.4; the other way round it would be $0.2.
func TestBoundBesideExistingNodes(t *testing.T) {
	const node = "{apiVersion: v1, kind: Node, metadata: {name: node-1}, status: {allocatable: {cpu: 8, memory: 32Gi, pods: 50}, conditions: [{type: Ready, status: 'True'}]}}\n---\n"
	big := deployment("big", 1, "cpu: 7", "")
	for _, tc := range []struct{ name, text, want string }{
		{"no node exists", class + pool("general", "") + big, "No plan for these pods costs less than $0.4000/h (linear program): this one is at most 0.0 % above that"},
		{"one exists", class + pool("general", "") + node + deployment("small", 1, "cpu: 3", "") + "---" + big,
			"No new nodes for the pods that get one cost less than $0.4000/h (linear program): these are at most 0.0 % above that; with other pods on existing nodes, less may be enough"},
	} {
		r, err := Plan(t.Context(), set(t, tc.text), settings(t))
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := r.Table(&b, false); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), tc.want+"\n") {
			t.Errorf("%s: want %q in\n%s", tc.name, tc.want, b.String())
		}
	}
}

// withoutHash makes the name of a Deployment's pod readable: the part between the first and the last dash is a hash.
func withoutHash(line string) string {
	before, rest, ok := strings.Cut(line, "refused ")
	name, after, colon := strings.Cut(rest, ":")
	parts := strings.Split(name, "-")
	if !ok || !colon || len(parts) != 3 {
		return line
	}
	parts[1] = "#"
	return before + "refused " + strings.Join(parts, "-") + ":" + after
}
