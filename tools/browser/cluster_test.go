package browser

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"
)

// object is an API object.
type object map[string]any

// cluster is a synthetic cluster and what the page must say about it.
type cluster struct {
	objects []object
	// nodes counts NodeClaims without a Node, too; running are pods on nodes, waiting those without.
	nodes, running, waiting int
	now                     time.Time
}

// kind is an instance type with what its nodes allocate.
type kind struct {
	name   string
	cores  int
	memory int // GiB
}

var kinds = []kind{{"m6i.xlarge", 4, 15}, {"m6i.2xlarge", 8, 30}, {"c6i.4xlarge", 16, 30}, {"r6i.2xlarge", 8, 61}}

// clusterOf makes a cluster of so many nodes, a twentieth of which start, and ten pods on each that is up.
func clusterOf(nodes int) *cluster {
	c := &cluster{now: time.Now().UTC().Truncate(time.Second)}
	c.add("karpenter.k8s.aws/v1", "EC2NodeClass", object{"name": "default"}, object{"spec": object{"role": "r", "amiSelectorTerms": []object{{"alias": "al2023@latest"}},
		"subnetSelectorTerms": []object{{"id": "subnet-0"}}, "securityGroupSelectorTerms": []object{{"id": "sg-0"}}},
		"status": object{"subnets": []object{{"id": "subnet-0", "zone": "us-west-2a"}}}})
	for _, pool := range pools {
		c.add("karpenter.sh/v1", "NodePool", object{"name": pool}, object{"spec": object{"template": object{"spec": object{
			"nodeClassRef": object{"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}, "requirements": []object{
				{"key": "karpenter.sh/capacity-type", "operator": "In", "values": []string{"on-demand"}}, {"key": "kubernetes.io/arch", "operator": "In", "values": []string{"amd64"}}}}}},
			"status": ready()})
	}
	for i := range nodes {
		c.node(i, i%20 == 7)
	}
	for i := range max(nodes/20, 3) {
		c.pod(fmt.Sprintf("huge-%d", i), "", "ReplicaSet", "900", "4Gi")
	}
	c.event("NodePool", "general", "HeldBack", "Warning", "launches wait: the last instance didn't join <b>in time</b>")
	c.event("NodeClaim", "general-00001", "ReplacementPlanned", "Normal", "Underutilized: its pods move to two nodes, which saves $0.1920/h")
	return c
}

var pools = []string{"general", "batch", "data"}

func (c *cluster) add(version, kind string, meta, rest object) {
	o := object{"apiVersion": version, "kind": kind, "metadata": meta}
	for k, v := range rest {
		o[k] = v
	}
	c.objects = append(c.objects, o)
}

func ready() object { return object{"conditions": []object{condition("Ready", time.Time{})}} }

// condition is one that is true since a time.
func condition(name string, at time.Time) object {
	if at.IsZero() {
		at = time.Unix(1_700_000_000, 0)
	}
	return object{"type": name, "status": "True", "reason": name, "message": "", "lastTransitionTime": stamp(at)}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// node adds a NodeClaim, and its Node with pods unless it is starting.
func (c *cluster) node(i int, starting bool) {
	k, pool := kinds[i%len(kinds)], pools[i%len(pools)]
	name, claim := fmt.Sprintf("ip-10-0-%d-%d.us-west-2.compute.internal", i/250, i%250), fmt.Sprintf("%s-%05d", pool, i)
	created := c.now.Add(-time.Duration(600+i%50*60) * time.Second)
	if starting {
		created = c.now.Add(-time.Duration(10+i%60) * time.Second)
	}
	labels := object{"kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "karpenter.sh/nodepool": pool, "karpenter.sh/capacity-type": "on-demand",
		"node.kubernetes.io/instance-type": k.name, "topology.kubernetes.io/zone": "us-west-2" + string("abc"[i%3]), "topology.kubernetes.io/region": "us-west-2"}
	room := object{"cpu": fmt.Sprint(k.cores), "memory": fmt.Sprintf("%dGi", k.memory), "pods": "58"}
	status := object{"capacity": room, "allocatable": room, "providerID": "aws:///us-west-2a/i-" + claim, "conditions": []object{condition("Launched", created.Add(3*time.Second))}}
	if !starting {
		status["nodeName"] = name
		status["conditions"] = []object{condition("Launched", created.Add(3*time.Second)), condition("Registered", created.Add(30*time.Second)),
			condition("Initialized", created.Add(time.Duration(38+i%9)*time.Second))}
	}
	c.nodes++
	c.add("karpenter.sh/v1", "NodeClaim", object{"name": claim, "uid": claim, "creationTimestamp": stamp(created), "labels": labels}, object{"status": status,
		"spec": object{"nodeClassRef": object{"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}, "requirements": []object{},
			"resources": object{"requests": object{"cpu": "1500m", "memory": "3Gi"}}}})
	if starting {
		return
	}
	c.add("v1", "Node", object{"name": name, "uid": name, "creationTimestamp": stamp(created), "labels": labels}, object{
		"status": object{"capacity": room, "allocatable": room, "conditions": []object{{"type": "Ready", "status": "True", "lastHeartbeatTime": stamp(c.now), "lastTransitionTime": stamp(created)}}}})
	c.pod(fmt.Sprintf("agent-%d", i), name, "DaemonSet", "200m", "512Mi")
	for p := range 9 {
		c.pod(fmt.Sprintf("web-%d-%d", i, p), name, "ReplicaSet", fmt.Sprintf("%dm", k.cores*(60+i*7%40)), "1Gi")
	}
}

func (c *cluster) pod(name, on, owner, cpu, memory string) {
	if on == "" {
		c.waiting++
	} else {
		c.running++
	}
	c.add("v1", "Pod", object{"namespace": "shop", "name": name, "uid": name, "creationTimestamp": stamp(c.now.Add(-5 * time.Minute)),
		"ownerReferences": []object{{"apiVersion": "apps/v1", "kind": owner, "name": "o", "uid": "o", "controller": true}}}, object{
		"spec":   object{"nodeName": on, "containers": []object{{"name": "c", "image": "i", "resources": object{"requests": object{"cpu": cpu, "memory": memory}}}}},
		"status": object{"phase": "Running"}})
	if on == "" {
		c.objects[len(c.objects)-1]["status"] = object{"phase": "Pending"}
	}
}

func (c *cluster) event(kind, name, reason, eventType, message string) {
	c.add("v1", "Event", object{"name": reason, "namespace": "default"}, object{"involvedObject": object{"kind": kind, "name": name}, "reason": reason, "type": eventType,
		"message": message, "reportingController": "dovetail", "lastTimestamp": stamp(c.now.Add(-time.Minute))})
}

// write replaces the file that the page reads, at once.
func (c *cluster) write(t *testing.T, file string) {
	t.Helper()
	raw, err := json.Marshal(object{"apiVersion": "v1", "kind": "List", "items": c.objects})
	if err == nil {
		err = os.WriteFile(file+".new.json", raw, 0o600)
	}
	if err == nil {
		err = os.Rename(file+".new.json", file)
	}
	if err != nil {
		t.Fatal(err)
	}
}
