package sandbox

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/dovetail-scheduler/dovetail/manifests"
	"github.com/dovetail-scheduler/dovetail/test/cluster"
)

// SchedulerName is the name of the profile in the shipped configuration.
const SchedulerName = "dovetail-scheduler"

// Examples returns new copies of the shipped EC2NodeClass and NodePools.
func Examples() ([]client.Object, error) {
	contents, err := manifests.Folder("examples")
	if err != nil {
		return nil, err
	}
	var objects []client.Object
	for _, content := range contents {
		decoder := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content)))
		for {
			document, err := decoder.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("reading an example: %w", err)
			}
			object, err := decode(document)
			if err != nil {
				return nil, err
			}
			objects = append(objects, object)
		}
	}
	return objects, nil
}

func decode(document []byte) (client.Object, error) {
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(document, &kind); err != nil {
		return nil, fmt.Errorf("reading an example: %w", err)
	}
	made, err := cluster.Scheme.New(kind.GroupVersionKind())
	if err != nil {
		return nil, fmt.Errorf("reading an example: %w", err)
	}
	object := made.(client.Object)
	if err := yaml.UnmarshalStrict(document, object); err != nil {
		return nil, fmt.Errorf("reading the example %s: %w", kind.Kind, err)
	}
	return object, nil
}

// NodeClass returns an EC2NodeClass that the simulator supports.
func NodeClass(name string, change ...func(*ec2nc.EC2NodeClass)) *ec2nc.EC2NodeClass {
	discovery := map[string]string{"karpenter.sh/discovery": "dovetail"}
	class := &ec2nc.EC2NodeClass{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: ec2nc.EC2NodeClassSpec{
			Role:                       "DovetailNode",
			AMISelectorTerms:           []ec2nc.AMISelectorTerm{{Alias: "al2023@latest"}},
			SubnetSelectorTerms:        []ec2nc.SubnetSelectorTerm{{Tags: discovery}},
			SecurityGroupSelectorTerms: []ec2nc.SecurityGroupSelectorTerm{{Tags: discovery}},
		},
	}
	for _, f := range change {
		f(class)
	}
	return class
}

// NodePool returns a NodePool of on-demand amd64 instances with the node class default, whose empty nodes are removed after a second.
func NodePool(name string, change ...func(*karpv1.NodePool)) *karpv1.NodePool {
	after := karpv1.MustParseNillableDuration("1s")
	pool := &karpv1.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: karpv1.NodePoolSpec{
			Template: karpv1.NodeClaimTemplate{Spec: karpv1.NodeClaimTemplateSpec{
				NodeClassRef: &karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"},
				ExpireAfter:  karpv1.MustParseNillableDuration("Never"),
				Requirements: []karpv1.NodeSelectorRequirementWithMinValues{
					Require(corev1.LabelArchStable, "amd64"),
					Require("karpenter.sh/capacity-type", "on-demand"),
					Require("karpenter.k8s.aws/instance-category", "c", "m", "r"),
				},
			}},
			Disruption: karpv1.Disruption{ConsolidationPolicy: karpv1.ConsolidationPolicyWhenEmpty, ConsolidateAfter: after},
		},
	}
	for _, f := range change {
		f(pool)
	}
	return pool
}

// Require returns the requirement that key has one of the values.
func Require(key string, values ...string) karpv1.NodeSelectorRequirementWithMinValues {
	return karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
}

// Pods returns n pods of one class in namespace default for our profile, NAME-0 to NAME-(n-1), labelled app=NAME. They name a
// controller as owner, because pods without one aren't bound before their node has registered. The controller doesn't exist, so
// kube-controller-manager, where it runs, would garbage-collect the pods.
func Pods(name string, n int, cpu, memory string, change ...func(i int, pod *corev1.Pod)) []client.Object {
	objects := make([]client.Object, n)
	for i := range n {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: metav1.NamespaceDefault,
				Name:      name + "-" + strconv.Itoa(i),
				Labels:    map[string]string{"app": name},
				OwnerReferences: []metav1.OwnerReference{{
					APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name, UID: types.UID(strings.ToLower(name)), Controller: ptr.To(true),
				}},
			},
			Spec: corev1.PodSpec{
				SchedulerName:                 SchedulerName,
				TerminationGracePeriodSeconds: ptr.To[int64](0),
				Containers: []corev1.Container{{
					Name: "main", Image: "registry.invalid/main",
					Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
						corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
					}},
				}},
			},
		}
		for _, f := range change {
			f(i, pod)
		}
		objects[i] = pod
	}
	return objects
}
