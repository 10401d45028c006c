package main

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-scheduler/dovetail/manifests"
	"github.com/dovetail-scheduler/dovetail/plugins/pluginargs"
	"github.com/dovetail-scheduler/dovetail/plugins/provision"
)

// shipped returns the object of that kind in a folder of manifests.
func shipped[T any](t *testing.T, folder, kind string) *T {
	t.Helper()
	contents, err := manifests.Folder(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, content := range contents {
		for document := range strings.SplitSeq(string(content), "\n---\n") {
			out := new(T)
			if strings.Contains(document, "\nkind: "+kind+"\n") && yaml.Unmarshal([]byte(document), out) == nil {
				return out
			}
		}
	}
	t.Fatalf("manifests/%s has no %s", folder, kind)
	return nil
}

// The shipped configurations read the queue that the stack creates, once the names are filled in, and are refused before.
func TestShippedConfigurations(t *testing.T) {
	stack, err := os.ReadFile("../../manifests/iam/cloudformation.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(stack), "QueueName:\n        Fn::Sub: Dovetail-${ClusterName}\n") {
		t.Error("the stack calls its queue otherwise")
	}
	for _, folder := range []string{"secondary", "replace"} {
		text := shipped[corev1.ConfigMap](t, folder, "ConfigMap").Data[manifests.ConfigKey]
		decode := func(text string) (*provision.Args, error) {
			o, _, err := scheme.Codecs.UniversalDecoder().Decode([]byte(text), nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			return provision.DecodeArgs(pluginargs.Of(o.(*schedulerapi.KubeSchedulerConfiguration).Profiles[0].PluginConfig, provision.Name))
		}
		_, err := decode(text)
		for _, field := range []string{"clusterName", "region", "interruptionQueue"} {
			if err == nil || !strings.Contains(err.Error(), field+": Invalid value") {
				t.Errorf("%s as it is shipped: %v, want a word on %s", folder, err, field)
			}
		}
		text = strings.NewReplacer("region: CHANGE-ME", "region: us-west-2", "CHANGE-ME", "blue").Replace(text)
		if args, err := decode(text); err != nil || args.ClusterName != "blue" || args.InterruptionQueue != "Dovetail-blue" {
			t.Errorf("%s with names: %+v, %v", folder, args, err)
		}
	}
}

// The shipped profiles, and those of the example, send pods to the fullest nodes, so that consolidation finds others to empty.
func TestShippedScores(t *testing.T) {
	example, err := manifests.Folder("examples/profile")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"secondary": shipped[corev1.ConfigMap](t, "secondary", "ConfigMap").Data[manifests.ConfigKey],
		"replace":   shipped[corev1.ConfigMap](t, "replace", "ConfigMap").Data[manifests.ConfigKey],
		"example":   string(example[0]),
		"tests":     hostedConfig,
	} {
		o, _, err := scheme.Codecs.UniversalDecoder().Decode([]byte(text), nil, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, p := range o.(*schedulerapi.KubeSchedulerConfiguration).Profiles {
			args := schedulerapi.NodeResourcesFitArgs{ScoringStrategy: &schedulerapi.ScoringStrategy{}}
			for _, c := range p.PluginConfig {
				if fit, ok := c.Args.(*schedulerapi.NodeResourcesFitArgs); ok {
					args = *fit
				}
			}
			want := &schedulerapi.ScoringStrategy{Type: schedulerapi.MostAllocated, Resources: []schedulerapi.ResourceSpec{{Name: "cpu", Weight: 1}, {Name: "memory", Weight: 1}}}
			if diff := cmp.Diff(want, args.ScoringStrategy); diff != "" {
				t.Errorf("%s, profile %s: scores (-want +got):\n%s", name, p.SchedulerName, diff)
			}
		}
	}
}

// No two replicas run on one node, nor in one zone where there are others, on Linux only; a rollout doesn't need a third node for that, and memory follows what the soak test has shown.
func TestShippedDeployment(t *testing.T) {
	d := shipped[appsv1.Deployment](t, "secondary", "Deployment")
	apart := d.Spec.Template.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	if len(apart) != 1 || apart[0].TopologyKey != corev1.LabelHostname || apart[0].LabelSelector.MatchLabels["app.kubernetes.io/name"] != d.Spec.Template.Labels["app.kubernetes.io/name"] {
		t.Errorf("replicas are kept apart by %+v", apart)
	}
	spread := d.Spec.Template.Spec.TopologySpreadConstraints
	if len(spread) != 1 || spread[0].TopologyKey != corev1.LabelTopologyZone || spread[0].MaxSkew != 1 || spread[0].WhenUnsatisfiable != corev1.DoNotSchedule ||
		spread[0].LabelSelector.MatchLabels["app.kubernetes.io/name"] != d.Spec.Template.Labels["app.kubernetes.io/name"] {
		t.Errorf("replicas are spread by %+v", spread)
	}
	if os := d.Spec.Template.Spec.NodeSelector[corev1.LabelOSStable]; os != "linux" {
		t.Errorf("replicas run on %q", os)
	}
	if u := d.Spec.Strategy.RollingUpdate; u == nil || u.MaxSurge.IntValue() != 0 || u.MaxUnavailable.IntValue() != 1 {
		t.Errorf("rolled out by %+v", d.Spec.Strategy)
	}
	pod, err := os.ReadFile("../../manifests/replace/static-pod/kube-scheduler.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var static corev1.Pod
	if err := yaml.UnmarshalStrict(pod, &static); err != nil {
		t.Fatal(err)
	}
	const soak = 504 << 20
	for name, c := range map[string]corev1.Container{"secondary": d.Spec.Template.Spec.Containers[0], "replace": static.Spec.Containers[0]} {
		if got := c.Resources.Requests.Memory().Value(); got < soak {
			t.Errorf("%s requests %d bytes of memory, the soak test needed %d", name, got, soak)
		}
		if limit := c.Resources.Limits.Memory(); !limit.IsZero() && limit.Value() < 2*soak {
			t.Errorf("%s is ended at %s of memory", name, limit)
		}
	}
}
