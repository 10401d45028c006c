package integration

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"

	"github.com/dovetail-scheduler/dovetail/test/cluster"
)

// condition waits for a condition of that type to be false and returns its message.
func condition[T client.Object](e *env, list client.ObjectList, kind string, conditions func(T) []metav1.Condition) string {
	e.Helper()
	message := ""
	_, err := cluster.Until(e.wait(), e.api, list, func(objects []T) (bool, string, error) {
		for _, o := range objects {
			if c := meta.FindStatusCondition(conditions(o), kind); c != nil && c.Status == metav1.ConditionFalse {
				message = c.Message
				return true, "", nil
			}
		}
		return false, fmt.Sprintf("condition %s to be false", kind), nil
	})
	if err != nil {
		e.Fatal(err)
	}
	return message
}

func poolConditions(np *karpv1.NodePool) []metav1.Condition { return plain(np.GetConditions()) }

func classConditions(nc *ec2nc.EC2NodeClass) []metav1.Condition { return plain(nc.GetConditions()) }

func plain(in []status.Condition) []metav1.Condition {
	out := make([]metav1.Condition, 0, len(in))
	for _, c := range in {
		out = append(out, metav1.Condition(c))
	}
	return out
}

// Each case is a mistake that a user makes. It is reported on the object that contains it, and launches nothing.
func TestBadInputIsNamedAndLaunchesNothing(t *testing.T) {
	t.Parallel()
	e := start(t, nil)
	for _, bad := range []struct {
		name      string
		manifests []string
		message   func() string
		want      []string
	}{
		{
			name:      "a pool without its class",
			manifests: []string{nodePool},
			message: func() string {
				return condition(e, &karpv1.NodePoolList{}, "NodeClassReady", poolConditions)
			},
			want: []string{"default"},
		},
		{
			name:      "a class that selects no subnet",
			manifests: []string{strings.Replace(nodeClass, "subnetSelectorTerms: [{tags: {karpenter.sh/discovery: dovetail}}]", "subnetSelectorTerms: [{tags: {team: nobody}}]", 1), nodePool},
			message: func() string {
				return condition(e, &ec2nc.EC2NodeClassList{}, "SubnetsReady", classConditions)
			},
			want: []string{"subnetSelectorTerms"},
		},
		{
			name:      "an image that does not exist",
			manifests: []string{strings.Replace(nodeClass, "amiSelectorTerms: [{alias: al2023@latest}]", "amiFamily: AL2023\n  amiSelectorTerms: [{id: ami-0123456789abcdef0}]", 1), nodePool},
			message: func() string {
				return condition(e, &ec2nc.EC2NodeClassList{}, "AMIsReady", classConditions)
			},
			want: []string{"amiSelectorTerms"},
		},
		{
			name:      "a label that is not the user's to give",
			manifests: []string{nodeClass, strings.Replace(nodePool, "    spec:\n      nodeClassRef", "    metadata: {labels: {kubernetes.io/hostname: me}}\n    spec:\n      nodeClassRef", 1)},
			want:      []string{"kubernetes.io/hostname"},
		},
	} {
		t.Run(bad.name, func(t *testing.T) {
			e.T = t
			var refused error
			for _, m := range bad.manifests {
				if err := e.c.Apply(e.ctx, []byte(m)); err != nil {
					refused = err
				}
			}
			message := ""
			if refused != nil {
				message = refused.Error() // refused by the validation in the CustomResourceDefinition
			} else {
				message = bad.message()
			}
			for _, w := range bad.want {
				if !strings.Contains(message, w) {
					t.Errorf("the message does not name %q: %s", w, message)
				}
			}
			app := "bad-" + strings.ReplaceAll(strings.ToLower(bad.name[2:9]), " ", "-")
			app = strings.Trim(app, "-")
			e.pods(app, 1, "100m", "64Mi")
			if note := e.eventOf(app+"-0", "FailedProvisioning"); note == "" {
				t.Error("the pod's event says nothing")
			}
			if n := e.launches(); n > 0 {
				t.Errorf("%d instances launched", n)
			}
			e.clean()
		})
	}
}

// clean deletes pods, NodePools and EC2NodeClasses.
func (e *env) clean() {
	e.Helper()
	for _, o := range []client.Object{&karpv1.NodePool{}, &ec2nc.EC2NodeClass{}} {
		if err := e.api.DeleteAllOf(e.ctx, o); err != nil {
			e.Fatal(err)
		}
	}
	for _, p := range e.podsIn("default") {
		if err := e.api.Delete(e.ctx, &p, client.GracePeriodSeconds(0)); err != nil {
			e.Fatal(err)
		}
	}
	for _, l := range []client.ObjectList{&karpv1.NodePoolList{}, &ec2nc.EC2NodeClassList{}} {
		if _, err := cluster.Until(e.wait(), e.api, l, func(o []client.Object) (bool, string, error) {
			return len(o) == 0, fmt.Sprintf("%T to be empty", l), nil
		}); err != nil {
			e.Fatal(err)
		}
	}
}

// A scheduler that can't apply its configuration exits with an error that names the wrong field.
func TestBadConfigurationEndsTheStart(t *testing.T) {
	t.Parallel()
	e := start(t, func(s *setting) { s.idle = true })
	for _, bad := range []struct {
		name   string
		change func(cluster.Config)
		want   string
	}{
		{"an unknown field", func(c cluster.Config) { c.SetProvisionArgs(map[string]any{"clusterNam": "x"}) }, "clusterNam"},
		{"no cluster name", func(c cluster.Config) { c.SetProvisionArgs(map[string]any{"clusterName": nil}) }, "clusterName"},
		{"a window that ends before it begins", func(c cluster.Config) { c.SetProvisionArgs(map[string]any{"batchMaxDuration": "1ms"}) }, "batchMaxDuration"},
		{"a pool of the arguments", func(c cluster.Config) {
			c.SetProvisionArgs(map[string]any{"nodePools": []any{map[string]any{"name": "x", "spec": map[string]any{"weight": 101}}}})
		}, "nodePools[0].spec.weight"},
		{"the cluster's own lease", func(c cluster.Config) {
			c["leaderElection"].(map[string]any)["resourceName"] = "kube-scheduler"
		}, "leaderElection.resourceName"},
	} {
		t.Run(bad.name, func(t *testing.T) {
			cfg, err := e.c.ShippedConfig()
			if err != nil {
				t.Fatal(err)
			}
			cfg.SetProvisionArgs(map[string]any{"clusterName": "dovetail", "region": e.sim.Region()})
			bad.change(cfg)
			o := e.options
			o.Config, o.Name = cfg, "bad"
			_, err = e.c.StartScheduler(e.ctx, o)
			if err == nil {
				t.Fatal("the scheduler started")
			}
			if !strings.Contains(err.Error(), bad.want) {
				t.Errorf("the message does not name %s: %v", bad.want, err)
			}
		})
	}
}

// AWS doesn't answer: the scheduler becomes ready, schedules the pods that fit on existing nodes, and reports what it is missing.
func TestStartsWithoutAWS(t *testing.T) {
	t.Parallel()
	e := start(t, func(s *setting) { s.idle = true })
	e.options.AWSEnv = []string{"AWS_ENDPOINT_URL=http://127.0.0.1:1", "AWS_REGION=us-west-2", "AWS_EC2_METADATA_DISABLED=true"}
	e.apply(nodeClass, nodePool)
	e.run()
	e.create(fullNode("old", zones[0], "4"))
	e.pods("fits", 1, "1", "1Gi")
	e.bound("fits", 1)
	e.pods("web", 1, "3500m", "1Gi")
	if note := e.eventOf("web-0", "FailedProvisioning"); !strings.Contains(note, "default") {
		t.Errorf("the event does not say what is missing: %s", note)
	}
}
