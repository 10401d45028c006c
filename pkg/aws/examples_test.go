package aws

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-scheduler/dovetail/manifests"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/bootstrap"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodesize"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// The node classes in the examples are what their comments say.
func TestExamples(t *testing.T) {
	classes := map[string]*ec2nc.EC2NodeClass{}
	for _, folder := range []string{"examples", "examples/kubeadm", "examples/teams"} {
		files, err := manifests.Folder(folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			for doc := range bytes.SplitSeq(f, []byte("\n---\n")) {
				nc := &ec2nc.EC2NodeClass{}
				if !bytes.Contains(doc, []byte("kind: EC2NodeClass\n")) {
					continue
				}
				if err := yaml.UnmarshalStrict(doc, nc); err != nil {
					t.Fatal(err)
				}
				classes[nc.Name] = nc
			}
		}
	}
	for _, name := range []string{"default", "kubeadm", "general", "gpu", "local-disks"} {
		nc := classes[name]
		if nc == nil {
			t.Fatalf("there is no class %s", name)
		}
		if _, _, err := settingsOfClass(nc, nodesize.Config{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The class sets how its nodes are named, so that this is known before the first of them registers.
	nc := classes["kubeadm"]
	if form := bootstrap.NameFormOf(&nc.Spec, nc.Annotations[objects.AnnotationNodeName], bootstrap.Custom); form != bootstrap.NamePrivateDNS {
		t.Errorf("nodes of kubeadm are named %q", form)
	}
	bash := exec.Command("bash", "-n")
	bash.Stdin = strings.NewReader(*nc.Spec.UserData)
	if out, err := bash.CombinedOutput(); err != nil {
		t.Errorf("the script is no script: %v: %s", err, out)
	}
}
