package arch

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// module is the path of this module.
const module = "github.com/dovetail-scheduler/dovetail"

// Rule lists imports that are forbidden to a folder of this module, whether it imports them itself or through other packages of this
// module. What a library imports is not checked.
type Rule struct {
	Room   string   // folder of this module, with all packages below it
	Away   []string // import paths, with all below them
	Reason string
}

const (
	awsSDK    = "github.com/aws/aws-sdk-go-v2"
	ec2Types  = "github.com/aws/karpenter-provider-aws"
	karpTypes = "sigs.k8s.io/karpenter"
	clientGo  = "k8s.io/client-go"
	runtime   = "sigs.k8s.io/controller-runtime"
	framework = "k8s.io/kube-scheduler"
	scheduler = "k8s.io/kubernetes"
	klog      = "k8s.io/klog"
	clock     = "k8s.io/utils/clock"
)

func own(folders ...string) []string {
	var paths []string
	for _, f := range folders {
		paths = append(paths, module+"/"+f)
	}
	return paths
}

// launching is all that turns demand into instances: the launcher, and the packages that it is made of.
var launching = own("pkg/launch", "pkg/reservations", "pkg/pending", "pkg/spending", "pkg/provisioning", "pkg/moves", "pkg/staticpool", "pkg/daemons", "pkg/podevents", "pkg/podconditions", "pkg/bookings")

// Rules of the module.
var Rules = []Rule{
	{"pkg/capacity", []string{clientGo, runtime, framework, scheduler, "sigs.k8s.io/scheduler-plugins"}, "a decision is made from values alone, so that it can be tested, replayed and run offline"},
	{"pkg/capacity", []string{klog}, "a decision explains itself in what it returns; who asked may log it"},
	{"pkg/capacity", []string{clock, "time/tzdata", "context"}, "time comes in as a value and nothing here waits"},
	{"pkg/capacity", []string{awsSDK, ec2Types, karpTypes}, "a second cloud or another API is a folder, not a change of the arithmetic"},
	{"pkg/capacity", []string{"net", "net/http", "os"}, "no input and no output"},
	{"pkg/capacity", append(own("pkg/aws", "pkg/karpenter", "pkg/simulate", "pkg/lifecycle", "pkg/disruption", "plugins"), launching...), "imports point down, and this is the floor"},

	{"pkg/capacity/ledger", own("pkg/capacity/planner"), "it keeps what a plan reserves, however the plan was made"},
	{"pkg/capacity/guard", own("pkg/capacity/planner"), "it judges instances, not plans"},
	{"pkg/capacity/packing", own("pkg/capacity/planner"), "it gets numbers and returns numbers"},
	{"pkg/capacity/planner/catalog", own("pkg/capacity/planner/topology"), "what can be bought doesn't depend on other pods"},
	{"pkg/capacity/planner/topology", own("pkg/capacity/planner/catalog"), "pods are counted the same way, whatever is bought"},

	{"pkg/admission", []string{clientGo, runtime, framework, scheduler, awsSDK, ec2Types, karpTypes}, "what is added to a pod is worked out from values alone, for whoever reads them where"},
	{"pkg/admission", own("pkg", "plugins"), "it knows pods and what is added to them, and nothing of plans"},

	{"pkg/objects", own("pkg", "plugins"), "plain facts of pods and nodes, for everybody"},
	{"pkg/objects", []string{clientGo, runtime, framework, scheduler, awsSDK, ec2Types, karpTypes}, "plain facts of pods and nodes, for everybody"},

	{"pkg/cloudprovider", []string{clientGo, runtime, framework, scheduler, awsSDK, ec2Types}, "clouds, controllers and adapters all import it"},
	{"pkg/cloudprovider", append(own("pkg/aws", "pkg/karpenter", "pkg/simulate", "pkg/lifecycle", "pkg/disruption", "plugins"), launching...), "it says what is asked of a cloud, and knows none"},

	{"pkg/legacy", append(own("pkg", "plugins"), clientGo, runtime, awsSDK, ec2Types), "types of an older API, for whoever reads or converts them"},

	{"pkg/aws", []string{clientGo, runtime}, "EC2 is asked on behalf of whoever calls; what the cluster knows comes in as values"},
	{"pkg/aws", []string{framework, scheduler}, "the scheduler's framework must not leak into a cloud"},
	{"pkg/aws", append(own("pkg/capacity/planner", "pkg/karpenter", "pkg/simulate", "pkg/lifecycle", "pkg/disruption", "plugins"), launching...), "edges don't know each other, nor who uses them"},

	{"cmd/scheduler", own("pkg/aws/catalog/builtin"), "it buys by AWS's prices, never by those of a table"},
	{"pkg", own("pkg/aws/catalog/builtin"), "only the user's tool counts with prices of a table"},

	{"pkg/karpenter", []string{awsSDK, ec2Types}, "API objects are read and written without a cloud at hand; what is in a node class is the cloud's business"},
	{"pkg/karpenter", []string{framework, scheduler}, "API objects have nothing to do with a scheduling cycle"},
	{"pkg/karpenter", append(own("pkg/capacity/planner", "pkg/aws", "pkg/simulate", "pkg/lifecycle", "pkg/disruption", "plugins"), launching...), "edges don't know each other, nor who uses them"},

	{"pkg/karpenter/derived", own("pkg/karpenter/store"), "it is told what has changed and remembers what follows from it; the store watches and writes"},

	{"pkg/simulate", []string{awsSDK, ec2Types, karpTypes}, "filters see nodes and pods; where nodes come from is none of their business"},
	{"pkg/simulate", append(own("pkg/capacity/planner", "pkg/aws", "pkg/karpenter", "pkg/lifecycle", "pkg/disruption", "plugins"), launching...), "edges don't know each other, nor who uses them"},

	{"pkg/reservations", []string{clientGo, runtime, framework, scheduler, awsSDK, ec2Types, karpTypes}, "plugins ask it in the scheduling cycle, and it knows no API object"},
	{"pkg/reservations", own("pkg/aws", "pkg/karpenter", "pkg/simulate", "pkg/pending", "pkg/spending", "pkg/launch", "pkg/lifecycle", "pkg/disruption", "plugins"), "those who ask and those who change it lean on it"},

	{"pkg/pending", []string{runtime, framework, scheduler, awsSDK, ec2Types, karpTypes}, "pods and their controllers are all it looks at"},
	{"pkg/pending", own("pkg/aws", "pkg/karpenter", "pkg/simulate", "pkg/spending", "pkg/launch", "pkg/lifecycle", "pkg/disruption", "plugins"), "what a pod needs doesn't depend on who launches a node for it"},

	{"pkg/spending", []string{runtime, framework, scheduler, awsSDK, ec2Types, karpTypes}, "instances and pods come in as values, records are an interface of this package"},
	{"pkg/spending", own("pkg/aws", "pkg/karpenter", "pkg/simulate", "pkg/launch", "pkg/lifecycle", "pkg/disruption", "plugins"), "those who buy and those who end nodes tell it, and it tells nobody"},

	{"pkg/daemons", []string{runtime, framework, scheduler, awsSDK, ec2Types, karpTypes}, "DaemonSets, their pods and what admission adds are all it looks at"},
	{"pkg/daemons", own("pkg/aws", "pkg/karpenter", "pkg/simulate", "pkg/reservations", "pkg/pending", "pkg/spending", "pkg/provisioning", "pkg/launch", "pkg/lifecycle", "pkg/disruption", "plugins"), "what a DaemonSet's pod needs doesn't depend on who plans for it"},

	{"pkg/podevents", own("pkg/aws", "pkg/karpenter", "pkg/simulate", "pkg/reservations", "pkg/pending", "pkg/spending", "pkg/provisioning", "pkg/launch", "pkg/lifecycle", "pkg/disruption", "plugins"), "it writes what it is given"},
	{"pkg/podconditions", own("pkg/podevents", "pkg/aws", "pkg/karpenter", "pkg/simulate", "pkg/reservations", "pkg/pending", "pkg/spending", "pkg/provisioning", "pkg/launch", "pkg/lifecycle", "pkg/disruption", "plugins"), "it writes what the gate says"},

	{"pkg/provisioning", []string{runtime, framework, scheduler, awsSDK, ec2Types, karpTypes}, "cloud, claims and filters are interfaces: a plan is made the same way in a cluster, offline and in a benchmark"},
	{"pkg/provisioning", own("pkg/aws", "pkg/karpenter", "pkg/simulate", "pkg/launch", "pkg/lifecycle", "pkg/disruption", "plugins"), "it ends in a plan; who carries it out imports it"},

	{"pkg/staticpool", []string{runtime, framework, scheduler, awsSDK, ec2Types, karpTypes}, "claims and nodes are interfaces of this package"},
	{"pkg/staticpool", own("pkg/aws", "pkg/karpenter", "pkg/simulate", "pkg/launch", "pkg/lifecycle", "pkg/disruption", "plugins"), "it proposes nodes; who launches them imports it"},

	{"pkg/launch", []string{awsSDK, ec2Types}, "the cloud is an interface of this package"},
	{"pkg/launch", []string{karpTypes, runtime}, "claims are an interface of this launcher"},
	{"pkg/launch", []string{framework, scheduler}, "verification is an interface of this package"},
	{"pkg/launch", own("pkg/aws", "pkg/karpenter", "pkg/simulate", "pkg/lifecycle", "pkg/disruption", "plugins"), "a package names what it needs; cmd wires it"},

	{"pkg/lifecycle", []string{awsSDK, ec2Types}, "this package names what it needs of the cloud as an interface"},
	{"pkg/lifecycle", []string{framework, scheduler}, "a node's life goes on whatever the scheduler does"},
	{"pkg/lifecycle", append(own("pkg/aws", "pkg/simulate", "pkg/disruption", "plugins"), launching...), "a package names what it needs; cmd wires it"},

	{"pkg/disruption", []string{awsSDK, ec2Types}, "this package names what it needs of the cloud as an interface"},
	{"pkg/disruption", []string{framework, scheduler}, "this package asks through an interface whether pods fit elsewhere"},
	{"pkg/disruption", append(own("pkg/aws", "pkg/simulate", "plugins"), launching...), "a package names what it needs; cmd wires it"},

	{"pkg/buffers", []string{framework, scheduler, awsSDK, ec2Types}, "it reads API objects and says what they ask for"},
	{"pkg/buffers", append(own("pkg/aws", "pkg/simulate", "pkg/lifecycle", "pkg/disruption", "plugins"), launching...), "who keeps the capacity is an interface of this package"},

	{"pkg/provisioningrequest", []string{framework, scheduler, awsSDK, ec2Types}, "it reads API objects and says what they ask for"},
	{"pkg/provisioningrequest", own("pkg/aws", "pkg/simulate", "pkg/launch", "pkg/lifecycle", "pkg/disruption", "plugins"), "it tells what is asked for; who launches doesn't hear of it"},
	{"pkg/provisioningrequest/v1", append(own("pkg", "plugins"), clientGo, runtime, awsSDK, ec2Types), "types of an API, for whoever reads them"},

	{"pkg/bookings", []string{runtime, framework, scheduler, awsSDK, ec2Types, karpTypes}, "requests come in as values, plans and launches are interfaces"},
	{"pkg/bookings", own("pkg/aws", "pkg/karpenter", "pkg/simulate", "pkg/launch", "pkg/lifecycle", "pkg/disruption", "plugins", "pkg/provisioningrequest"), "it proposes; who carries it out imports it"},

	{"pkg/peers", []string{runtime, framework, scheduler, awsSDK, ec2Types, karpTypes}, "it reads leases; labels of pools come in as values"},
	{"pkg/peers", append(own("pkg/aws", "pkg/karpenter", "pkg/capacity", "pkg/cloudprovider", "pkg/simulate", "pkg/lifecycle", "pkg/disruption", "plugins"), launching...), "it says whether we may act, and nothing about what is done"},

	{"pkg/observe", own("pkg", "plugins"), "it knows no kind of object"},
	{"pkg/poolmetrics", append(own("pkg", "plugins"), clientGo, awsSDK, karpTypes), "all parts have metrics by pool, so it leans on none of them"},
	{"pkg/karpentermetrics", append(own("pkg/aws", "pkg/karpenter", "pkg/capacity", "pkg/cloudprovider", "pkg/simulate", "pkg/lifecycle", "pkg/disruption", "plugins"), append(launching, clientGo, awsSDK, karpTypes)...), "all parts count in it, so it leans on none of them"},
	{"pkg/clustermetrics", append(own("pkg/aws", "pkg/karpenter", "pkg/simulate", "pkg/disruption", "plugins"), append(launching, awsSDK, ec2Types, framework, scheduler)...), "what it exports comes in as functions and caches; cmd wires it"},
	{"pkg/version", append(own("pkg", "plugins"), clientGo, awsSDK), "all parts say which build they belong to, so it leans on none of them"},

	{"pkg/manifest", []string{awsSDK, framework, scheduler + "/pkg/scheduler"}, "to read manifests takes neither a cloud nor a scheduling cycle"},
	{"pkg/manifest", append(own("pkg/aws", "pkg/simulate", "pkg/lifecycle", "pkg/disruption", "pkg/offline", "plugins"), launching...), "objects are read for whoever needs them"},

	{"pkg/offline", []string{awsSDK}, "what there is to buy comes in as values: a plan offline asks nobody"},
	{"pkg/offline", own("pkg/aws", "pkg/disruption", "plugins"), "it only introduces rooms of the production path to manifests; cmd brings the catalogue"},

	{"pkg/livecluster", []string{framework, scheduler + "/pkg/scheduler", awsSDK}, "it lists what an API server has, and takes no object apart"},
	{"pkg/livecluster", append(own("pkg/aws", "pkg/simulate", "pkg/lifecycle", "pkg/disruption", "pkg/offline", "plugins"), launching...), "it reads for whoever explains"},
	{"pkg/whatif", []string{awsSDK}, "it changes copies of objects and asks nobody"},
	{"pkg/whatif", own("pkg/aws", "pkg/disruption", "pkg/livecluster", "plugins"), "the planner says what would happen"},
	{"pkg/explain", []string{awsSDK}, "it explains a cluster that was read, and asks nobody"},
	{"pkg/explain", own("pkg/aws", "pkg/disruption", "pkg/livecluster", "plugins"), "what was decided is on objects; it doesn't decide again"},
	{"pkg/view", []string{awsSDK}, "it shows a cluster that was read, and asks nobody"},
	{"pkg/view", own("pkg/aws", "pkg/disruption", "pkg/livecluster", "plugins"), "its numbers are those of pkg/explain; who reads the cluster comes in as a function"},

	{"plugins", []string{awsSDK, ec2Types, karpTypes, runtime}, "a door translates framework calls and knows nothing behind the ledger"},
	{"plugins", own("pkg/aws", "pkg/karpenter", "pkg/simulate", "pkg/lifecycle", "pkg/disruption"), "a scheduling cycle waits for no cloud, no API object and no simulation"},

	{"pkg", own("cmd", "test", "manifests"), "the product knows neither who starts it nor who tests it"},
	{"plugins", own("cmd", "test", "manifests"), "the product knows neither who starts it nor who tests it"},
	{"cmd", own("test"), "what is shipped holds no simulator"},
	{"pkg", []string{"testing", "k8s.io/kubernetes/test"}, "what is shipped holds no test code"},
	{"plugins", []string{"testing", "k8s.io/kubernetes/test"}, "what is shipped holds no test code"},

	{"test/outside", own("pkg", "plugins", "cmd"), "a judge that shared code with the product would share its mistakes"},
	{"test/chaos", own("pkg", "plugins", "cmd"), "a checker that shared code with the product would share its mistakes"},
	{"test/kubeapi", own("pkg", "plugins", "cmd"), "an API server that shared code with the product would share its mistakes"},
	{"test/ec2", own("pkg", "plugins", "cmd"), "a simulator that shared code with the product would share its mistakes"},
	{"test/fakecloud", append(own("pkg/aws", "plugins", "cmd"), awsSDK, ec2Types), "it shows that another cloud needs nothing of AWS"},
	{"test/worlds/check", own("pkg", "plugins", "cmd"), "a checker that shared code with the product would share its mistakes"},
	{"test/cluster", []string{scheduler}, "the test binaries that import it must link in seconds"},
}

// exceptions are packages below a rule's folder that the rule does not apply to, with the reason.
var exceptions = map[string]string{
	module + "/test/cluster/cmd/controlplane": "it is the kube-apiserver that others needn't link",
	module + "/test/cluster/inprocess":        "it exists for tests that link kube-apiserver on purpose",
}

// Violations returns one line per forbidden import, sorted. imports holds, for each package of this module, what it imports directly,
// without its tests.
func Violations(imports map[string][]string, rules []Rule) []string {
	var lines []string
	for _, rule := range rules {
		for _, pkg := range slices.Sorted(maps.Keys(imports)) {
			if !below(pkg, module+"/"+rule.Room) || exceptions[pkg] != "" {
				continue
			}
			for _, path := range reach(imports, pkg) {
				last := path[len(path)-1]
				for _, away := range rule.Away {
					if below(last, away) {
						lines = append(lines, fmt.Sprintf("%s must stay away from %s: %s", strings.Join(path, " -> "), away, rule.Reason))
					}
				}
			}
		}
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

// reach returns, for every package that pkg imports directly or through packages of this module, a shortest import path to it.
func reach(imports map[string][]string, pkg string) [][]string {
	seen := map[string]bool{pkg: true}
	ways := [][]string{{pkg}}
	for i := 0; i < len(ways); i++ {
		way := ways[i]
		for _, next := range imports[way[len(way)-1]] {
			if !seen[next] {
				seen[next] = true
				ways = append(ways, append(slices.Clone(way), next))
			}
		}
	}
	return ways[1:]
}

// below reports whether an import path is the given one or lies below it. "pkg/awsome" is not below "pkg/aws".
func below(path, above string) bool {
	return path == above || strings.HasPrefix(path, above+"/")
}
