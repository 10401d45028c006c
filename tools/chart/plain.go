package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// plain is a file below manifests/ that is rendered from charts/dovetail.
type plain struct {
	file     string
	template string // file of the chart's templates
	key      string // of the ConfigMap that the template makes, if only its value is written
	values   map[string]any
}

// placeholder is what users of plain manifests replace.
const placeholder = "CHANGE-ME"

func plainFiles() []plain {
	values := func(mode string, more map[string]any) map[string]any {
		v := map[string]any{
			"mode":     mode,
			"image":    map[string]any{"repository": "dovetail-scheduler", "tag": "latest"},
			"settings": map[string]any{"clusterName": placeholder, "region": placeholder, "interruptionQueue": "Dovetail-" + placeholder},
		}
		for name, value := range more {
			v[name] = value
		}
		return v
	}
	on := map[string]any{"enabled": true}
	secondary, replace := values("secondary", nil), values("replace", nil)
	surge := values("secondary", map[string]any{"surge": on})
	admission := values("secondary", map[string]any{"admissionPolicies": on})
	return []plain{
		{file: "secondary/10-rbac.yaml", template: "rbac.yaml", values: secondary},
		{file: "secondary/20-config.yaml", template: "config.yaml", values: secondary},
		{file: "secondary/30-deployment.yaml", template: "deployment.yaml", values: secondary},
		{file: "secondary/optional/people.yaml", template: "people.yaml", values: secondary},
		{file: "secondary/optional/scheduler-name.yaml", template: "namespace-policy.yaml", values: values("secondary", map[string]any{"namespacePolicy": on})},
		{file: "replace/10-rbac.yaml", template: "rbac.yaml", values: replace},
		{file: "replace/20-config.yaml", template: "config.yaml", values: replace},
		{file: "replace/static-pod/kube-scheduler.yaml", template: "config.yaml", key: "kube-scheduler.yaml", values: replace},
		{file: "admission/10-dovetail.yaml", template: "admission-policies.yaml", values: admission},
		{file: "surge/10-policy.yaml", template: "surge-policy.yaml", values: surge},
		{file: "surge/20-role.yaml", template: "surge-role.yaml", values: surge},
	}
}

// render returns the content of the file.
func (p plain) render(root string) ([]byte, error) {
	r := release{name: "dovetail", namespace: "kube-system", kubeVersion: kubeVersion, plain: true}
	rendered, err := r.render(filepath.Join(root, "charts", "dovetail"), p.values)
	if err != nil {
		return nil, fmt.Errorf("manifests/%s: %w", p.file, err)
	}
	text := rendered[p.template]
	if p.key != "" {
		var config struct {
			Data map[string]string `json:"data"`
		}
		if err := yaml.Unmarshal([]byte(text), &config); err != nil {
			return nil, fmt.Errorf("manifests/%s: reading the ConfigMap of %s: %w", p.file, p.template, err)
		}
		text = config.Data[p.key]
	}
	if text == "" {
		return nil, fmt.Errorf("manifests/%s: %s of the chart renders nothing", p.file, p.template)
	}
	return []byte("# Rendered from charts/dovetail by `make manifests`: change it there.\n" + text), nil
}

func runManifests(root string, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("manifests", flag.ContinueOnError)
	check := flags.Bool("check", false, "write nothing, and fail if a file differs")
	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("reading the flags of manifests: %w", err)
	}
	var stale []string
	for _, p := range plainFiles() {
		want, err := p.render(root)
		if err != nil {
			return err
		}
		path := filepath.Join(root, "manifests", filepath.FromSlash(p.file))
		if got, err := os.ReadFile(path); err == nil && bytes.Equal(got, want) {
			continue
		}
		if *check {
			stale = append(stale, "manifests/"+p.file)
			continue
		}
		if err := os.WriteFile(path, want, 0o644); err != nil {
			return fmt.Errorf("writing a manifest: %w", err)
		}
		fmt.Fprintln(out, "wrote manifests/"+p.file)
	}
	if len(stale) > 0 {
		return fmt.Errorf("not as charts/dovetail renders them (make manifests does it): %s", strings.Join(stale, ", "))
	}
	return nil
}
