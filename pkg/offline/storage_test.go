package offline

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Volumes of drivers that publish their capacity: node-local capacity of new nodes is assumed from nodes of the same instance type;
// zonal capacity is checked against what is published.
func TestPlanStorageCapacity(t *testing.T) {
	driver := func(topologyKey string) string {
		return fmt.Sprintf(`
{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: topolvm.io}, spec: {storageCapacity: true}}
---
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: lvm}, provisioner: topolvm.io, volumeBindingMode: WaitForFirstConsumer}
---
{apiVersion: storage.k8s.io/v1, kind: CSINode, metadata: {name: node-1}, spec: {drivers: [{name: topolvm.io, nodeID: node-1, topologyKeys: [%s]}]}}
---
`, topologyKey)
	}
	node := func(cpu int) string {
		return fmt.Sprintf(`
apiVersion: v1
kind: Node
metadata: {name: node-1, labels: {kubernetes.io/hostname: node-1, topology.kubernetes.io/zone: eu-test-1a, karpenter.sh/nodepool: general,
  karpenter.sh/initialized: "true", node.kubernetes.io/instance-type: m1.large, topology.topolvm.io/node: node-1}}
status: {capacity: {cpu: %d, memory: 16Gi, pods: 50}, allocatable: {cpu: %[1]d, memory: 16Gi, pods: 50}}
---
`, cpu)
	}
	published := func(size, key, value string) string {
		return fmt.Sprintf("{apiVersion: storage.k8s.io/v1, kind: CSIStorageCapacity, metadata: {name: c, namespace: d}, storageClassName: lvm, capacity: %s, nodeTopology: {matchLabels: {%s: %s}}}\n---\n", size, key, value)
	}
	db := func(replicas int) string {
		return fmt.Sprintf(`
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: shop}
spec:
  replicas: %d
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: db}}
  template: {metadata: {labels: {app: db}}, spec: {containers: [{name: c, image: c, resources: {requests: {cpu: 100m}}, volumeMounts: [{name: data, mountPath: /d}]}]}}
  volumeClaimTemplates: [{metadata: {name: data}, spec: {storageClassName: lvm, accessModes: [ReadWriteOnce], resources: {requests: {storage: 10Gi}}}}]
---
`, replicas)
	}
	const local, zone = "topology.topolvm.io/node", "topology.kubernetes.io/zone"
	large := pool("general", "", "{key: node.kubernetes.io/instance-type, operator: In, values: [m1.large]}")
	const bought = "general m1.large on-demand eu-test-1a,eu-test-1b: shop/db"
	for _, tc := range []struct {
		name, text string
		want       []string
	}{
		{"nothing is known: one machine for all", large + driver(local) + db(3), []string{bought + " (3)"}},
		{"each machine holds what one has shown", large + driver(local) + node(1) + published("25Gi", local, "node-1") + db(5),
			[]string{bought, bought + " (2)", "node-1: shop/db (2)"}},
		{"less than a volume", large + driver(local) + node(4) + published("5Gi", local, "node-1") + db(1),
			[]string{"refused db-0: general: none of 1 instance types has capacity for it: storage of class lvm 10Gi requested, 5Gi at most"}},
		{"machines without the driver", large + driver(local) + node(4) + db(1),
			[]string{"refused db-0: general: none of 1 instance types has capacity for it: storage of class lvm 10Gi requested, 0 at most"}},
		{"another size that nobody has seen", pool("general", "", "{key: node.kubernetes.io/instance-type, operator: In, values: [m1.large, m1.xlarge]}") + driver(local) +
			node(4) + published("5Gi", local, "node-1") + db(1), []string{"general m1.xlarge on-demand eu-test-1a,eu-test-1b: shop/db"}},
		{"a zone's is where it is published", large + driver(zone) + node(0) + published("25Gi", zone, "eu-test-1b") + db(1),
			[]string{"general m1.large on-demand eu-test-1b: shop/db"}},
		{"a zone's that is too small", large + driver(zone) + node(0) + published("5Gi", zone, "eu-test-1b") + db(1),
			[]string{"refused db-0: the scheduler's VolumeBinding filter refuses the pod on every node that could be launched for it (2 tried, one for each node pool, zone and capacity type): node(s) did not have enough free storage"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := Plan(t.Context(), set(t, class+tc.text), settings(t))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, linesOf(r)); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
			if len(r.Warnings) > 0 {
				t.Errorf("warnings: %q", r.Warnings)
			}
		})
	}
}
