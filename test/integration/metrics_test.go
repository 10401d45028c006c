package integration

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/component-base/metrics/testutil"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
)

// scrapesVariable names a folder in which TestMetrics leaves what it has scraped, each second, for make dashboards.
const scrapesVariable = "DOVETAIL_SCRAPES"

// agreement is how long metrics may take to agree with the API: one scrape, whose values are up to five seconds old.
const agreement = 15 * time.Second

// TestMetrics compares the gauges of the cluster's state with the API while nodes come, are interrupted and go: allocatable and requests by
// node, use and limits of pools, what they cost, and pods by state.
func TestMetrics(t *testing.T) {
	t.Parallel()
	address := freeAddress(t)
	e := start(t, func(s *setting) {
		s.sim.SpotNotice, s.sim.StateEvents = 40*time.Minute, true
		s.config = func(cfg cluster.Config) {
			cfg.SetProvisionArgs(map[string]any{"interruptionQueue": "dovetail", "metricsBindAddress": address})
		}
	})
	s := scraper{e, "http://" + address + "/metrics"}
	if folder := os.Getenv(scrapesVariable); folder != "" {
		go s.record(folder)
	}
	replicaSets(t, e.c.AdminConfig(), 100)
	const limits = `  limits: {cpu: 1000, memory: 4000Gi, nodes: 100, pods: 10000, ephemeral-storage: 100Ti}
  disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: 1s}
`
	e.apply(nodeClass, strings.Replace(strings.Replace(nodePool, "[on-demand]", "[spot]", 1), "  disruption: {consolidationPolicy: WhenEmpty, consolidateAfter: Never}\n", limits, 1))
	e.apply(strings.Replace(strings.Replace(nodePool, "name: default}\nspec", "name: steady}\nspec", 1), "consolidateAfter: Never", "consolidateAfter: 1s", 1))
	web := replicas("web", 3, "500m", "1Gi")
	e.create(web)
	e.running("web", 3)
	e.pods("steady", 2, "1", "1Gi", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{karpv1.NodePoolLabelKey: "steady"} })
	e.running("steady", 2)
	e.pods("never", 1, "1", "1Gi", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{karpv1.NodePoolLabelKey: "missing"} })
	s.agree("with running pods", func(got testutil.Metrics) string {
		if n := sum(got, "dovetail_pods", "state", "refused"); n != 1 {
			return fmt.Sprintf("%v pods are refused, want 1", n)
		}
		if bound := sum(got, "dovetail_pod_wait_seconds_count"); bound < 5 {
			return fmt.Sprintf("%v pods were bound, want at least 5", bound)
		}
		return ""
	})

	for _, in := range e.sim.Live() {
		if in.CapacityType == karpv1.CapacityTypeSpot {
			if err := e.sim.Interrupt(in.ID); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	e.claimEvent("SpotInterrupted")
	s.agree("after an interruption", func(got testutil.Metrics) string {
		if n := sum(got, "karpenter_interruption_received_messages_total", "message_type", "spot_interrupted"); n < 1 {
			return "no interruption was counted"
		}
		return ""
	})

	if err := e.api.Delete(e.ctx, web); err != nil {
		t.Fatal(err)
	}
	if err := e.api.DeleteAllOf(e.ctx, &corev1.Pod{}, client.InNamespace("default"), client.MatchingLabels{"app": "web"}, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	s.agree("when the pool's first node has gone", func(got testutil.Metrics) string {
		if sum(got, "karpenter_nodeclaims_termination_duration_seconds_count", "nodepool", "default") < 1 {
			return "no end of a NodeClaim was observed"
		}
		return ""
	})
	// A counter that rises before the first scrape with it only has no rate: another node of the pool ends later.
	e.pods("again", 1, "500m", "1Gi", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{karpv1.NodePoolLabelKey: "default"} })
	e.running("again", 1)
	if err := e.api.DeleteAllOf(e.ctx, &corev1.Pod{}, client.InNamespace("default"), client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	e.settled(0)
	s.agree("when all nodes have gone", func(got testutil.Metrics) string {
		for _, name := range []string{"karpenter_nodes_allocatable", "karpenter_pods_state", "operator_nodeclaim_status_condition_count", "operator_node_status_condition_count",
			"operator_nodeclaim_termination_current_time_seconds"} {
			if n := len(got[name]); n > 0 {
				return fmt.Sprintf("%s still has %d series, the first %s", name, n, got[name][0].Metric)
			}
		}
		if n := sum(got, "karpenter_nodes_terminated_total"); n < 2 {
			return fmt.Sprintf("%v nodes were terminated, want at least 2", n)
		}
		for _, kind := range []string{"node", "nodeclaim"} {
			if n := sum(got, "operator_"+kind+"_termination_duration_seconds_count"); n < 2 {
				return fmt.Sprintf("the ends of %v objects of the kind %s were observed, want at least 2", n, kind)
			}
		}
		for _, status := range []string{"True", "False"} { // of claims that have registered
			if n := sum(got, "operator_nodeclaim_status_condition_transitions_total", "type", "Registered", "status", status); (n >= 2) != (status == "True") {
				return fmt.Sprintf("Registered has become %s %v times", status, n)
			}
		}
		if n := sum(got, "operator_nodeclaim_status_condition_transition_seconds_count", "type", "Ready", "karpenter_k8s_aws_ec2nodeclass", "default"); n < 2 {
			return fmt.Sprintf("how long it took to be Ready was observed %v times, want at least 2", n)
		}
		return ""
	})
}

// freeAddress returns an address on which nothing listens at the moment.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// scraper scrapes the scheduler.
type scraper struct {
	*env
	url string
}

func (s scraper) scrape(ctx context.Context) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return "", err
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, text)
	}
	return string(text), err
}

// record writes a scrape each second, until the test ends.
func (s scraper) record(folder string) {
	_ = wait.PollUntilContextCancel(s.ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		if text, err := s.scrape(ctx); err == nil {
			return false, save(folder, text)
		}
		return false, nil
	})
}

// save writes a scrape, unless there is no folder for scrapes.
func save(folder, text string) error {
	if folder == "" {
		return nil
	}
	return os.WriteFile(filepath.Join(folder, fmt.Sprintf("%d.txt", time.Now().UnixMilli())), []byte(text), 0o600)
}

// agree waits until a scrape agrees with the API, and with what more says about it.
func (s scraper) agree(when string, more func(testutil.Metrics) string) {
	s.Helper()
	differs, since := "", time.Time{}
	err := wait.PollUntilContextTimeout(s.ctx, 500*time.Millisecond, *patience, true, func(ctx context.Context) (bool, error) {
		before := s.versions()
		text, err := s.scrape(ctx)
		if err != nil {
			differs = err.Error()
			return false, nil
		}
		got := testutil.NewMetrics()
		if err := testutil.ParseMetrics(text, &got); err != nil {
			return false, err
		}
		if differs = more(got); differs == "" {
			differs = s.compare(got)
		}
		if before != s.versions() {
			since = time.Time{} // objects are still changing
		} else if since.IsZero() {
			since = time.Now()
		}
		if differs == "" {
			return true, save(os.Getenv(scrapesVariable), text)
		}
		return !since.IsZero() && time.Since(since) > agreement, nil
	})
	if err != nil || differs != "" {
		s.Fatalf("%s: %s (%v)", when, differs, err)
	}
}

// versions changes with each change of Nodes, pods, pools and claims that metrics show.
func (s scraper) versions() string {
	s.Helper()
	var out strings.Builder
	for _, list := range []client.ObjectList{&karpv1.NodePoolList{}, &karpv1.NodeClaimList{}, &corev1.PodList{}, &corev1.NodeList{}} {
		if err := s.api.List(s.ctx, list); err != nil {
			s.Fatal(err)
		}
		switch list := list.(type) {
		case *karpv1.NodePoolList:
			for i := range list.Items {
				fmt.Fprint(&out, list.Items[i].Status.Resources)
			}
		case *karpv1.NodeClaimList:
			for i := range list.Items {
				fmt.Fprint(&out, list.Items[i].ResourceVersion, " ")
			}
		case *corev1.PodList:
			for i := range list.Items {
				fmt.Fprint(&out, list.Items[i].ResourceVersion, " ")
			}
		case *corev1.NodeList:
			for i := range list.Items {
				fmt.Fprint(&out, list.Items[i].Name, list.Items[i].Status.Allocatable, len(list.Items[i].Status.Conditions))
			}
		}
	}
	return out.String()
}

// compare returns what a scrape says otherwise than the API, or "".
func (s scraper) compare(got testutil.Metrics) string {
	var nodes corev1.NodeList
	var pods corev1.PodList
	var pools karpv1.NodePoolList
	var claims karpv1.NodeClaimList
	for _, list := range []client.ObjectList{&nodes, &pods, &pools, &claims} {
		if err := s.api.List(s.ctx, list); err != nil {
			return err.Error()
		}
	}
	var classes v1.EC2NodeClassList
	if err := s.api.List(s.ctx, &classes); err != nil {
		return err.Error()
	}
	want := map[string]float64{}
	labels := map[string][]string{}
	expect := func(v float64, metric string, nameValues ...string) {
		key := metric + fmt.Sprint(nameValues)
		want[key] += v
		labels[key] = append([]string{metric}, nameValues...)
	}
	conditions := func(kind, name string, of []status.Condition) {
		for _, c := range of {
			expect(1, "operator_"+strings.ToLower(kind)+"_status_condition_count", "name", name, "type", c.Type, "status", string(c.Status), "reason", c.Reason)
			expect(1, "operator_status_condition_count", "kind", kind, "name", name, "type", c.Type, "status", string(c.Status))
		}
		expect(float64(len(of)), "operator_"+strings.ToLower(kind)+"_status_condition_count", "name", name)
	}
	for i := range classes.Items {
		conditions("EC2NodeClass", classes.Items[i].Name, classes.Items[i].Status.Conditions)
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		for j := range n.Status.Conditions {
			c := &n.Status.Conditions[j]
			expect(1, "operator_node_status_condition_count", "name", n.Name, "type", string(c.Type), "status", string(c.Status), "karpenter_sh_nodepool", n.Labels[karpv1.NodePoolLabelKey])
		}
		for name, q := range n.Status.Allocatable {
			expect(valueOf(name, q), "karpenter_nodes_allocatable", "node_name", n.Name, "resource_type", typeOf(name))
		}
		expect(0, "karpenter_nodes_total_pod_requests", "node_name", n.Name, "resource_type", "cpu")
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		expect(1, "karpenter_pods_state", "phase", string(p.Status.Phase))
		expect(1, "karpenter_pods_state", "node", p.Spec.NodeName)
		if p.Spec.NodeName != "" {
			expect(valueOf(corev1.ResourceCPU, p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU]), "karpenter_nodes_total_pod_requests", "node_name", p.Spec.NodeName, "resource_type", "cpu")
		}
	}
	for i := range pools.Items {
		p := &pools.Items[i]
		conditions("NodePool", p.Name, p.Status.Conditions)
		for name, q := range p.Status.Resources {
			expect(valueOf(name, q), "karpenter_nodepools_usage", "nodepool", p.Name, "resource_type", typeOf(name))
		}
		for name, q := range p.Spec.Limits {
			expect(valueOf(name, q), "karpenter_nodepools_limit", "nodepool", p.Name, "resource_type", typeOf(name))
		}
		expect(0, "karpenter_nodepools_cost_total", "nodepool", p.Name)
	}
	onDemand := map[string]float64{} // prices by instance
	for _, in := range s.sim.Live() {
		if in.CapacityType == karpv1.CapacityTypeOnDemand {
			onDemand["aws:///"+in.Zone+"/"+in.ID] = in.Price
		}
	}
	for i := range claims.Items {
		l := claims.Items[i].Labels
		conditions("NodeClaim", claims.Items[i].Name, claims.Items[i].Status.Conditions)
		if claims.Items[i].Status.ProviderID != "" {
			price := sum(got, "karpenter_cloudprovider_instance_type_offering_price_estimate", "instance_type", l[corev1.LabelInstanceTypeStable], "zone", l[corev1.LabelTopologyZone],
				"capacity_type", l[karpv1.CapacityTypeLabelKey])
			expect(price, "karpenter_nodepools_cost_total", "nodepool", l[karpv1.NodePoolLabelKey])
			if ec2, ok := onDemand[claims.Items[i].Status.ProviderID]; price <= 0 || ok && math.Abs(price-ec2) > 1e-6 {
				return fmt.Sprintf("the offering of NodeClaim %s costs %v, and EC2 bills %v", claims.Items[i].Name, price, ec2)
			}
		}
	}
	for key, v := range want {
		if is := sum(got, labels[key][0], labels[key][1:]...); math.Abs(is-v) > 1e-6*math.Max(1, v) {
			return fmt.Sprintf("%s is %v, and %v in the API", key, is, v)
		}
	}
	return ""
}

// sum adds up the series of a metric that have these labels.
func sum(of testutil.Metrics, metric string, nameValues ...string) (out float64) {
series:
	for _, s := range of[metric] {
		for i := 0; i < len(nameValues); i += 2 {
			if string(s.Metric[testutil.LabelName(nameValues[i])]) != nameValues[i+1] {
				continue series
			}
		}
		out += float64(s.Value)
	}
	return out
}

func typeOf(name corev1.ResourceName) string { return strings.ReplaceAll(string(name), "-", "_") }

func valueOf(name corev1.ResourceName, q resource.Quantity) float64 {
	if name == corev1.ResourceCPU {
		return float64(q.MilliValue()) / 1000
	}
	return float64(q.Value())
}
