package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	autoscalingv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-scheduler/dovetail/pkg/aws/nodeclass"
	"github.com/dovetail-scheduler/dovetail/pkg/karpenter"
	"github.com/dovetail-scheduler/dovetail/pkg/manifest"
)

// pages returns the documentation by path: everything in docs, and the pages beside it.
func pages(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, glob := range []string{"*.md", "docs/*.md", "docs/design/*.md"} {
		paths, err := filepath.Glob(filepath.Join("..", "..", glob))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			out[path] = string(text)
		}
	}
	return out
}

// ownCommand finds commands of this tool, as a line of a block or quoted in the text.
var ownCommand = regexp.MustCompile("(?m)(?:^(?:    +|\\$ +)|`)(?:bin/|kubectl )?dovetail ((?:plan|catalog|settings|version|why|retry|top|view)\\b[^`\n]*)")

// Every command of this tool that any page names has the flags that the tool has, and files that exist. What those of docs/plan.md print is
// compared by TestDocumentedCommandsWork.
func TestEveryOwnCommandParses(t *testing.T) {
	found := 0
	for path, text := range pages(t) {
		for _, m := range ownCommand.FindAllStringSubmatch(text, -1) {
			found++
			command, _, _ := strings.Cut(m[1], " > ")
			name, flags, _ := strings.Cut(command, " ")
			if name == "why" { // its flags are those of its commands
				kind, rest, _ := strings.Cut(flags, " ")
				name, flags = name+" "+kind, rest
			}
			// A flag that is named without its value is one that the tool has, too.
			if out := dovetail(t, "dovetail "+name+" --help "+flags); !strings.Contains(out, "Usage:") && !strings.Contains(out, "flag needs an argument") {
				t.Errorf("%s: dovetail %s:\n%s", path, command, out)
			}
			for _, word := range strings.Fields(command) {
				if strings.HasPrefix(word, "manifests/") {
					if _, err := os.Stat(filepath.Join("..", "..", word)); err != nil {
						t.Errorf("%s: dovetail %s: %v", path, command, err)
					}
				}
			}
		}
	}
	if found < 8 {
		t.Errorf("only %d commands were found: this test reads the pages wrongly", found)
	}
}

var (
	yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")
	hereBlock = regexp.MustCompile(`(?s)cat <<END \| kubectl apply -f -\n(.*?)\n *END\n`)
	indent    = regexp.MustCompile(`(?m)^    `)
)

// Every object in the documentation is one that the API server would accept, without fields that it doesn't know, and every configuration one
// that the scheduler would start with.
func TestEveryYAMLIsAccepted(t *testing.T) {
	objects, configurations := 0, 0
	for path, text := range pages(t) {
		var blocks []string
		for _, m := range yamlBlock.FindAllStringSubmatch(text, -1) {
			blocks = append(blocks, m[1])
		}
		for _, m := range hereBlock.FindAllStringSubmatch(text, -1) {
			blocks = append(blocks, strings.ReplaceAll(indent.ReplaceAllString(m[1], ""), "$CLUSTER", "blue"))
		}
		for _, block := range blocks {
			var head map[string]any
			first, _, _ := strings.Cut(block, "\n---")
			if err := yaml.UnmarshalStrict([]byte(first), &head); err != nil {
				t.Errorf("%s: %v:\n%s", path, err, block)
				continue
			}
			var err error
			switch {
			case head["apiVersion"] != nil:
				objects++
				err = acceptObjects(block)
			case head["profiles"] != nil:
				configurations++
				err = acceptConfiguration(t, block)
			case head["plugins"] != nil:
				configurations++
				err = acceptConfiguration(t, "profiles:\n- schedulerName: a\n  pluginConfig: [{name: Provision, args: {clusterName: a}}]\n"+regexp.MustCompile("(?m)^").ReplaceAllString(strings.TrimSpace(block), "  "))
			}
			if err != nil {
				t.Errorf("%s: %v:\n%s", path, err, block)
			}
		}
	}
	if objects < 3 || configurations < 2 {
		t.Errorf("only %d objects and %d configurations were found: this test reads the pages wrongly", objects, configurations)
	}
}

func acceptConfiguration(t *testing.T, text string) error {
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"+text), 0o600); err != nil {
		return err
	}
	_, err := readConfig(file)
	return err
}

// acceptObjects reads what the tool plans for as it does itself, and decodes other kinds strictly.
func acceptObjects(text string) error {
	var known []string
	for document := range strings.SplitSeq(text, "\n---\n") {
		var head struct{ Kind string }
		if err := yaml.Unmarshal([]byte(document), &head); err != nil {
			return err
		}
		into := map[string]any{"PodTemplate": &corev1.PodTemplate{}, "ClusterRole": &rbacv1.ClusterRole{}, "CapacityBuffer": &autoscalingv1beta1.CapacityBuffer{}}[head.Kind]
		if into == nil {
			known = append(known, document)
		} else if err := yaml.UnmarshalStrict([]byte(document), into); err != nil {
			return err
		}
	}
	if len(known) == 0 {
		return nil
	}
	set, err := manifest.Read(manifest.Options{Definitions: karpenter.NewDefinitions(nodeclass.CRDs()), Manifests: []string{"-"}, Stdin: strings.NewReader(strings.Join(known, "\n---\n"))})
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(set.Warnings, func(w string) bool { return strings.Contains(w, "is ignored") }); i >= 0 {
		return errors.New(set.Warnings[i])
	}
	return nil
}
