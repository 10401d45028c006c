package aws

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	ec2nc "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-scheduler/dovetail/manifests"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/bootstrap"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodesize"
	"github.com/dovetail-scheduler/dovetail/pkg/aws/ownership"
	"github.com/dovetail-scheduler/dovetail/pkg/objects"
)

// A token with which machines join is in no example, and none is advised that lives for more than a day.
func TestBootstrapTokensExpire(t *testing.T) {
	files, err := manifests.Folder("examples/kubeadm")
	if err != nil {
		t.Fatal(err)
	}
	advised := 0
	for _, f := range files {
		if token := regexp.MustCompile(`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`).Find(f); token != nil {
			t.Errorf("the token %s is written out", token)
		}
		for _, ttl := range regexp.MustCompile(`--ttl[= ]*(\S*?)[)\s,;]`).FindAllSubmatch(f, -1) {
			advised++
			if d, err := time.ParseDuration(string(ttl[1])); err != nil || d <= 0 || d > 24*time.Hour {
				t.Errorf("%s: %v, want a duration of at most a day", ttl[0], err)
			}
		}
	}
	if advised == 0 {
		t.Error("no example says how long a token is to live")
	}
}

// Each pool of the examples has a limit on what pods can buy.
func TestExamplesHaveLimits(t *testing.T) {
	root := os.DirFS(filepath.Join("..", "..", "manifests", "examples"))
	pools := 0
	if err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".yaml") {
			return err
		}
		f, err := fs.ReadFile(root, path)
		if err != nil {
			return err
		}
		for doc := range bytes.SplitSeq(f, []byte("\n---\n")) {
			var pool struct {
				Kind     string
				Metadata struct{ Name string }
				Spec     struct {
					Replicas *int64
					Limits   map[string]any
				}
			}
			if err := yaml.Unmarshal(doc, &pool); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			for _, inline := range inlinePools(t, doc) {
				if pools++; !strings.Contains(inline, "limits:") {
					t.Errorf("%s: a pool in the arguments has no limits:\n%s", path, inline)
				}
			}
			if pool.Kind != "NodePool" && pool.Kind != "Provisioner" || pool.Spec.Replicas != nil {
				continue
			}
			if pools++; len(pool.Spec.Limits) == 0 {
				t.Errorf("%s: %s %s has no limits", path, pool.Kind, pool.Metadata.Name)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if pools < 5 {
		t.Errorf("%d pools were looked at", pools)
	}
}

// inlinePools returns the pools in the arguments of a KubeSchedulerConfiguration, as YAML.
func inlinePools(t *testing.T, doc []byte) (out []string) {
	t.Helper()
	var cfg struct {
		Profiles []struct {
			PluginConfig []struct {
				Args struct{ NodePools []any }
			}
		}
	}
	if err := yaml.Unmarshal(doc, &cfg); err != nil {
		t.Fatal(err)
	}
	for _, p := range cfg.Profiles {
		for _, c := range p.PluginConfig {
			for _, pool := range c.Args.NodePools {
				text, err := yaml.Marshal(pool)
				if err != nil {
					t.Fatal(err)
				}
				out = append(out, string(text))
			}
		}
	}
	return out
}

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
		if _, _, err := settingsOfClass(nc, nodesize.Config{}, ownership.Owner{Cluster: "films"}); err != nil {
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
